"""The forms of what a journal holds. They are checked on reading: its digests can be computed by anybody."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from seedbus.bus.transport import MOST_CLIENTS

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Measure = Annotated[float, Field(strict=True, ge=0, lt=2**63)]
"""Bytes, seconds, shares and rounds; integer or fractional."""
Text = Annotated[str, Field(strict=True, max_length=10_000)]
WHEN = ("round", "version", "time_s", "bytes_up", "bytes_down")
"""The fields of every line of metrics that are not metrics."""

_Clients = list[Annotated[int, Field(strict=True, ge=0, lt=MOST_CLIENTS)]]
_Lag = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]  # commits; below 0 if a client says that it is ahead
_Late = tuple[Count, _Lag, _Clients] | tuple[_Lag, _Clients]  # the second in journals of version 0.1.0
_Record = tuple[Count, Count, Annotated[bool, Field(strict=True)], list[_Lag], list[_Late]]
_BODY: TypeAdapter[Any] = TypeAdapter(tuple[_Clients, _Clients, _Record, Any])
_LINE: TypeAdapter[Any] = TypeAdapter(dict[Text, Annotated[float, Field(strict=True)] | None])
_WHEN: TypeAdapter[Any] = TypeAdapter(Measure)
_END: TypeAdapter[Any] = TypeAdapter(tuple[Count, Count, list[Text]])


def body_problem(body: Any) -> str | None:
    """Return what is wrong with a round's [cohort, reported, record, commit], in a few words; None if it is valid."""
    if (problem := problem_of(_BODY, body)) is not None:
        return problem
    cohort, reported, (_, _, _, lags, _), _ = body
    if any(clients != sorted(set(clients)) for clients in (cohort, reported)):
        return "clients that do not ascend"
    return None if len(lags) == len(cohort) else f"{len(lags)} lags of {len(cohort)} clients"


def line_problem(line: Any) -> str | None:
    """Return what is wrong with a line of metrics, in a few words; None if it is valid."""
    if (problem := problem_of(_LINE, line)) is not None:
        return problem
    for name in WHEN:
        if (problem := problem_of(_WHEN, line.get(name))) is not None:
            return f"{name}: {problem}"
    return None


def end_problem(end: Any) -> str | None:
    """Return what is wrong with a note of how to take a run's end back, in a few words; None if it is valid."""
    return problem_of(_END, end)


def problem_of(form: TypeAdapter[Any], value: Any) -> str | None:
    """Return where a value has another form than this, and what it is, in a few words; None: nowhere."""
    try:
        form.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    except RecursionError:
        return "it is nested too deeply"
    return None
