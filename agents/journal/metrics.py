"""Lines of metrics. They are checked on reading: a run's folder may not be our own."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from seedbus.bus.records import Number, Text, record
from seedbus.bus.transport import Client

TOLD = "told"
"""What the journal's line of an evaluation by clients has beside metrics: who measured, if not all of them did."""
_Measure = Annotated[float, Meta(ge=0, lt=2**63)]


class When(TypedDict):
    """The fields of every line of metrics that are not metrics."""

    round: _Measure
    version: _Measure
    time_s: _Measure
    bytes_up: _Measure
    bytes_down: _Measure


WHEN = tuple(When.__annotations__)


def check_line(line: Any) -> None:
    """Raise `ValueError` unless this is a line of metrics; says in a few words what is wrong."""
    record(dict[Text, Number | None], line)
    record(When, line)


def taken_apart(line: Any) -> tuple[dict[str, Any], list[int] | None]:
    """Return a line of metrics, and the clients that it says have measured; None: all that there are, or none has.

    Raises:
        ValueError: it is none; says in a few words what is wrong.
    """
    line = record(dict[Text, Any], line)
    told = line.pop(TOLD, None)
    check_line(line)
    return line, None if told is None else record(list[Client], told)
