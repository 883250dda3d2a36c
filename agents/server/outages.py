"""A server that crashes, as a scenario says: it loses what was not durable yet, and is away for a while.

What is lost is the round that is open: its reports are gone, and what arrives meanwhile is lost. When the server is
back it begins that round again; who has answered already says the same once more. The machine of the run itself may be
killed at any instant too: that is no part of a scenario, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from seedbus.bus.in_flight import Key

Phase = Literal["asking", "gathering", "committing", "publishing"]


@runtime_checkable
class Outage(Protocol):
    """Implemented by the faults of a scenario."""

    def outage_ns(self, round: int, phase: Phase) -> int | None:
        """For how long the server is away if it crashes in that phase of that round; None if it does not."""
        ...


class Outages:
    """All outages of a run. What reaches a server that is away is lost. counts: for each, where they are counted."""

    def __init__(self, outages: Sequence[Outage], counts: Sequence[Counter[str]]) -> None:
        self._outages, self._counts = outages, counts
        self._past: set[tuple[int, int, Phase]] = set()
        self.is_away = False

    def stops(self, key: Key, arriving: bool) -> bool:
        return self.is_away and arriving and key[0].is_upward

    def begins_ns(self, round: int, phase: Phase) -> int | None:
        """How long the server is to be away from now on, if it crashes here; each outage happens once."""
        for number, outage in enumerate(self._outages):
            lasts_ns = outage.outage_ns(round, phase)
            if lasts_ns is not None and (number, round, phase) not in self._past:
                self._past.add((number, round, phase))
                self._counts[number]["crashed"] += 1
                return lasts_ns
        return None
