"""Lines of metrics. They are checked on reading: a run's folder may not be our own."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from seedbus.bus.records import Number, Text, record

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
