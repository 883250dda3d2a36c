"""Rate limits for log lines that unknown peers can cause by connecting and disconnecting.

Each kind of event has a token bucket: a burst of lines may be written at once, and one more for each second of real
time. Omitted lines are counted, and the count is written before the next line of their kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from seedbus.bus.clock import wall_seconds

SERVER_BURSTS = {"joined": 1000, "gone": 20, "looked": 20, "refused": 20}
"""Bursts for a server's log. A process that joins has shown that it computes the run's bits, hence the high limit."""
CLIENT_BURST = 100
"""Burst of each kind for a client's log: a server can disconnect it, or send it invalid messages, at any rate."""

Event = tuple[str, Mapping[str, Any]]


class RateLimit:
    """A token bucket for each kind of event.

    Args:
        bursts: event → lines that may be written at once.
        others: the burst of any other event; None: no limit.
        now: clock, in seconds.
    """

    def __init__(
        self, bursts: Mapping[str, int], others: float | None = None, now: Callable[[], float] = wall_seconds
    ) -> None:
        self._bursts = bursts
        self._others = inf if others is None else others
        self._now = now
        self._tokens: dict[str, float] = {}
        self._refilled_s: dict[str, float] = {}
        self._omitted: Counter[str] = Counter()

    def admitted(self, event: str, facts: Mapping[str, Any]) -> Iterator[Event]:
        """Yield what may be written now.

        That is nothing, or the event, preceded by an "omitted" event if events of its kind were omitted before.
        """
        tokens = self._refill(event)
        if event == "joined":
            self._tokens["gone"] = self._refill("gone") + 1  # a process that has joined may leave again
        if tokens < 1:
            self._omitted[event] += 1
            return
        self._tokens[event] = tokens - 1
        if event in self._omitted:
            yield _omitted(event, self._omitted.pop(event))
        yield event, facts

    def _refill(self, event: str) -> float:
        """Add the tokens for the time since the last refill, and return how many there are."""
        now, burst = self._now(), self._bursts.get(event, self._others)
        tokens = self._tokens.get(event, burst)
        # tokens beyond the burst, which joins have added, are kept
        self._tokens[event] = max(tokens, min(tokens + now - self._refilled_s.get(event, now), burst))
        self._refilled_s[event] = now
        return self._tokens[event]

    def rest(self) -> Iterator[Event]:
        """Yield an "omitted" event for each kind whose omitted events have not been reported yet."""
        unreported, self._omitted = self._omitted, Counter()
        for event, count in unreported.items():
            yield _omitted(event, count)


def _omitted(event: str, count: int) -> Event:
    return "omitted", {"of": event, "count": count}
