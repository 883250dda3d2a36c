"""A server that crashes, as a scenario says: it loses what was not durable yet, and is away for a while.

What is lost is the round that is open: its reports are gone, and what arrives meanwhile is lost. When the server is
back it begins that round again; who has answered already says the same once more. The machine of the run itself may be
killed at any instant too: that is no part of a scenario, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from seedbus.bus import PASS, Passage, Verdict

Phase = Literal["asking", "gathering", "committing", "publishing"]


@runtime_checkable
class Outage(Protocol):
    """Implemented by the faults of a scenario."""

    def outage_ns(self, round: int, phase: Phase) -> int | None:
        """For how long the server is away if it crashes in that phase of that round; None if it does not."""
        ...


class Outages:
    """All outages of a run. Also a rule of the bus: what reaches a server that is away is lost."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        self._outages = outages
        self._past: set[tuple[int, int, Phase]] = set()
        self.is_away = False

    def __repr__(self) -> str:
        return "the server is away"

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=True) if self.is_away and passage.arriving and passage.kind.is_upward else PASS

    def begins_ns(self, round: int, phase: Phase) -> int | None:
        """How long the server is to be away from now on, if it crashes here; each outage happens once."""
        for number, outage in enumerate(self._outages):
            lasts_ns = outage.outage_ns(round, phase)
            if lasts_ns is not None and (number, round, phase) not in self._past:
                self._past.add((number, round, phase))
                return lasts_ns
        return None
