"""What `results.json` and `metrics.jsonl` must hold to be shown: a run's folder may come from somebody else."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Measure = Annotated[float, Field(strict=True, ge=0, lt=2**63)]
"""Bytes, seconds, shares and rounds, whole or not."""
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, max_length=10_000)]
MOST = 10_000  # names in a table


class _Bytes(TypedDict):
    bytes: Count
    bytes_per_client: Measure
    scalars: Count
    seeds: Count


class _OfKind(TypedDict):
    bytes: Count


class _CaughtUp(TypedDict):
    median: Measure
    p95: Measure
    max: Measure


class _Transport(TypedDict):
    framing_bytes: Count
    link_bytes: Count
    rows: Count


class _Traffic(TypedDict):
    by_kind: Annotated[dict[Text, _OfKind], Field(max_length=MOST)]
    fates: Annotated[dict[Text, Count], Field(max_length=MOST)]
    up: _Bytes
    down: _Bytes
    catchup_bytes: Count
    catchup_share: Measure
    catchup_per_client: _CaughtUp
    replayed: Annotated[int, Field(strict=True)]
    bytes_per_client: Measure
    conventions: dict[Literal["decomfl_12PK", "hiso_8PK", "dense_8d"], Measure]
    transport: _Transport


class _Counted(TypedDict):
    min: Count
    median: Measure
    max: Count
    total: Count


class _Participation(TypedDict):
    clients: Count
    heard: Count
    counted: _Counted


class _Lag(TypedDict):
    median: Measure
    p95: Measure
    max: Measure


class _Staleness(TypedDict):
    late: Count
    late_share: Measure
    max: Measure


class _RoundTimes(TypedDict):
    median_s: Measure
    p95_s: Measure
    at_deadline: Count
    stragglers_s: Measure
    stragglers_share: Measure


class _Expectation(TypedDict):
    at_least: Value | None
    at_most: Value | None
    found: Value | None
    is_met: Annotated[bool, Field(strict=True)]


class _Summary(TypedDict):
    """The fields that are shown, or computed with; there are others."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    run: Text
    scenario: Text
    reason: Text
    rounds: Count
    version: Count
    digest: Text
    metrics: Annotated[dict[Text, Value | None], Field(max_length=MOST)]
    clock: Literal["virtual", "wall"]
    simulated_s: Measure
    wall_s: Measure
    was_resumed: NotRequired[Annotated[bool, Field(strict=True)]]
    traffic: _Traffic
    refusals: Annotated[dict[Text, dict[Text, Count]], Field(max_length=MOST)]
    faults: Annotated[list[dict[Text, Measure | Text]], Field(max_length=MOST)]
    participation: _Participation
    lag: _Lag
    staleness: _Staleness
    round_times: _RoundTimes
    expectations: Annotated[dict[Text, _Expectation], Field(max_length=MOST)]


_SUMMARY: TypeAdapter[Any] = TypeAdapter(_Summary)
_LINES: TypeAdapter[Any] = TypeAdapter(list[dict[Text, Value | None]])
_WHEN: TypeAdapter[Any] = TypeAdapter(Measure)
WHEN = ("round", "version", "time_s", "bytes_up", "bytes_down")
"""What every line of metrics holds beside its metrics."""


def wrong_in_summary(summary: Any) -> str | None:
    """What a summary has wrong, in a few words, or None."""
    if (wrong := _wrong(_SUMMARY, summary)) is not None:
        return wrong
    for number, fault in enumerate(summary["faults"]):
        if not isinstance(fault.get("fault"), str):
            return f"faults.{number}.fault: there is no name"
        if any(isinstance(value, str) for name, value in fault.items() if name != "fault"):
            return f"faults.{number}: it holds other things than numbers"
    return None


def wrong_in_lines(lines: Any) -> str | None:
    """What lines of metrics have wrong, in a few words, or None."""
    if (wrong := _wrong(_LINES, lines)) is not None:
        return wrong
    for number, line in enumerate(lines):
        for name in WHEN:
            if (wrong := _wrong(_WHEN, line.get(name))) is not None:
                return f"{number}.{name}: {wrong}"
    return None


def _wrong(schema: TypeAdapter[Any], value: Any) -> str | None:
    try:
        schema.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    except RecursionError:
        return "it is nested too deeply"
    return None
