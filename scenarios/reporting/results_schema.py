"""Schemas of `results.json` and `metrics.jsonl`. They are checked on reading: a run's folder may not be our own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from seedbus.agents.journal.metrics import check_line
from seedbus.bus.transport import MOST_CLIENTS

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Measure = Annotated[float, Field(strict=True, ge=0, lt=2**63)]
"""Bytes, seconds, shares and rounds; integer or fractional."""
Text = Annotated[str, Field(strict=True, max_length=10_000)]
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
MAX_NAMES = 10_000  # in one table


class _Bytes(TypedDict):
    bytes: Count
    bytes_per_client: Measure
    scalars: Count
    seeds: Count


class _OfKind(TypedDict):
    bytes: Count
    catchup_bytes: Count


class _CaughtUp(TypedDict):
    median: Measure
    p95: Measure
    max: Measure


class _Links(TypedDict):
    count: Count
    min: NotRequired[Measure]
    max: NotRequired[Measure]


class _Transport(TypedDict):
    framing_bytes: Count
    link_bytes: Count
    rows: Count


class _Carried(TypedDict):
    framed: Count
    bytes: Count
    packets: Count
    resent_of_percent: Count
    bytes_of_rounds: Count
    bytes_of_heartbeats: Count
    bytes_of_connections: Count


class _Traffic(TypedDict):
    by_kind: Annotated[dict[Text, _OfKind], Field(max_length=MAX_NAMES)]
    fates: Annotated[dict[Text, Count], Field(max_length=MAX_NAMES)]
    up: _Bytes
    down: _Bytes
    catchup_bytes: Count
    catchup_share: Measure
    catchup_per_client: _CaughtUp
    replayed: Annotated[int, Field(strict=True)] | None
    repeated: NotRequired[Count]
    bytes_per_client: Measure
    conventions: dict[Literal["decomfl_12PK", "hiso_8PK", "dense_8d"], Measure]
    transport: _Transport
    wire: NotRequired[dict[Literal["up", "down"], _Carried]]
    links: NotRequired[_Links]


class _Counted(TypedDict):
    min: Count
    median: Measure
    max: Count
    total: Count
    none: NotRequired[Count]


class _Unused(TypedDict):
    reports: Count
    bytes: Count


class _Participation(TypedDict):
    clients: Annotated[int, Field(strict=True, ge=0, le=MOST_CLIENTS)]
    heard: Count
    counted: _Counted
    unused: NotRequired[_Unused]


class _Lag(TypedDict):
    median: Measure
    p95: Measure
    max: Measure


class _Staleness(TypedDict):
    late: Count
    late_share: Measure
    max: Measure


class _Liars(TypedDict):
    commits: Count
    median: Measure
    most: Count
    beyond: Count


class _RoundTimes(TypedDict):
    median_s: Measure
    p95_s: Measure
    at_deadline: Count
    stragglers_s: Measure
    stragglers_share: Measure
    in_vain_s: NotRequired[Measure]
    in_vain_share: NotRequired[Measure]


class _Expectation(TypedDict):
    at_least: Value | None
    at_most: Value | None
    found: Value | None
    is_met: Annotated[bool, Field(strict=True)]


class _OfClients(TypedDict):
    clients: Count
    reports_median: Measure
    reports_share: Measure
    bytes_up_per_client: Measure
    bytes_down_per_client: Measure
    catchup_bytes_per_client: Measure
    lag_mean: Measure | None


class _Group(_OfClients):
    others: _OfClients


class _Summary(TypedDict):
    """The fields that are displayed or used in computations; further fields are allowed."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    run: Text
    scenario: Text
    reason: Text
    training_diverged: NotRequired[Annotated[bool, Field(strict=True)]]
    shortcomings: NotRequired[Annotated[list[Text], Field(max_length=MAX_NAMES)]]
    rounds: Count
    version: Count
    digest: Text
    digests: NotRequired[Annotated[dict[Text, Text], Field(max_length=MAX_NAMES)]]
    verified: NotRequired[Count]
    metrics: Annotated[dict[Text, Value | None], Field(max_length=MAX_NAMES)]
    noise: NotRequired[Literal["seeded", "system"]]
    clock: Literal["virtual", "wall"]
    simulated_s: Measure
    wall_s: Measure
    was_resumed: NotRequired[Annotated[bool, Field(strict=True)]]
    dimension: NotRequired[Count]
    device: NotRequired[Text]
    seedbus: NotRequired[Text]
    processor: NotRequired[Text]
    client_names: NotRequired[Annotated[list[Text], Field(max_length=MOST_CLIENTS)]]
    client_devices: NotRequired[
        Annotated[dict[Text, Annotated[list[Text | None], Field(max_length=MOST_CLIENTS)]], Field(max_length=MAX_NAMES)]
    ]
    versions: NotRequired[Annotated[dict[Text, Text], Field(max_length=MAX_NAMES)]]
    traffic: _Traffic
    refusals: Annotated[dict[Text, dict[Text, Count]], Field(max_length=MAX_NAMES)]
    refusal_details: NotRequired[Annotated[dict[Text, Text], Field(max_length=MAX_NAMES)]]
    faults: Annotated[list[dict[Text, Value | Text]], Field(max_length=MAX_NAMES)]
    participation: _Participation
    lag: _Lag
    staleness: _Staleness
    round_times: _RoundTimes
    liars: NotRequired[_Liars]
    groups: NotRequired[Annotated[dict[Text, _Group], Field(max_length=MAX_NAMES)]]
    expectations: Annotated[dict[Text, _Expectation], Field(max_length=MAX_NAMES)]


_SUMMARY: TypeAdapter[Any] = TypeAdapter(_Summary)
_LINES: TypeAdapter[Any] = TypeAdapter(list[dict[Text, Value | None]])


def summary_problem(summary: Any) -> str | None:
    """Return what is wrong with a summary, in a few words; None if it is valid."""
    if (problem := _problem_of(_SUMMARY, summary)) is not None:
        return problem
    names, clients = summary.get("client_names", ()), summary["participation"]["clients"]
    if names and len(names) != clients:
        return f"client_names: {len(names):,} names of {clients:,} clients"
    for name, devices in summary.get("client_devices", {}).items():
        if len(devices) != clients:
            return f"client_devices.{name}: {len(devices):,} devices of {clients:,} clients"
    for number, fault in enumerate(summary["faults"]):
        if not isinstance(fault.get("fault"), str):
            return f"faults.{number}.fault: there is no name"
        if any(isinstance(value, str) for name, value in fault.items() if name != "fault"):
            return f"faults.{number}: it holds other things than numbers"
        if any(value < 0 for name, value in fault.items() if name != "fault" and not name.endswith("_s")):
            return f"faults.{number}: a count is below 0"  # a sum of seconds is, where a device is faster
    return None


def lines_problem(lines: Any) -> str | None:
    """Return what is wrong with the lines of `metrics.jsonl`, in a few words; None if they are valid."""
    if (problem := _problem_of(_LINES, lines)) is not None:
        return problem
    for number, line in enumerate(lines):
        try:
            check_line(line)
        except ValueError as error:
            return f"{number}: {error}"
    return None


def _problem_of(form: TypeAdapter[Any], value: Any) -> str | None:
    """Return where a value has another form than this, and what it is, in a few words; None: nowhere."""
    try:
        form.validate_python(value)
    except ValidationError as error:
        return first_problem(error)
    except RecursionError:
        return "it is nested too deeply"
    return None


def first_problem(error: ValidationError) -> str:
    """Return where a value has another form than it should have, the first place, and what it is, in a few words."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
