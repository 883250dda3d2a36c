"""How often strangers can have a line written of their coming and going.

Each kind of event may be written so many times at once, and once more for each second of real time that passes. What is
left out is counted, and the count is written before the next line of its kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from seedbus.bus.clock import wall_seconds

STRANGERS = {"joined": 1000, "gone": 20, "refused": 20}
"""Of what a server is told. A process that joins has shown that it computes the run's bits; it may go again."""
OF_A_SERVER = 100
"""Of each kind that a client is told: a server may hang up on it, or send it nonsense, as often as it likes."""

Event = tuple[str, Mapping[str, Any]]


class RateLimit:
    """bursts: event → lines at once; others: those of any other event, None: no limit. now: seconds."""

    def __init__(
        self, bursts: Mapping[str, int], others: float | None = None, now: Callable[[], float] = wall_seconds
    ) -> None:
        self._bursts, self._others, self._now = bursts, inf if others is None else others, now
        self._left: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._omitted: Counter[str] = Counter()

    def admitted(self, event: str, facts: Mapping[str, Any]) -> Iterator[Event]:
        """What may be written now: nothing, or the event, perhaps with how many of its kind were left out before."""
        left = self._refilled(event)
        if event == "joined":
            self._left["gone"] = self._refilled("gone") + 1  # so that it may go again
        if left < 1:
            self._omitted[event] += 1
            return
        self._left[event] = left - 1
        if event in self._omitted:
            yield _omitted(event, self._omitted.pop(event))
        yield event, facts

    def _refilled(self, event: str) -> float:
        """How many of them may be written by now."""
        now, burst = self._now(), self._bursts.get(event, self._others)
        left = self._left.get(event, burst)
        # what those that joined have added to a burst stays
        self._left[event] = max(left, min(left + now - self._since.get(event, now), burst))
        self._since[event] = now
        return self._left[event]

    def rest(self) -> Iterator[Event]:
        """What has been left out since it was last told."""
        left_out, self._omitted = self._omitted, Counter()
        for event, count in left_out.items():
            yield _omitted(event, count)


def _omitted(event: str, count: int) -> Event:
    return "omitted", {"of": event, "count": count}
