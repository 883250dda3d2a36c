"""Simulated crashes of the server: it loses what is not durable, and is away for a while.

The open round is lost with its reports, and so are all messages that arrive during the outage. After the restart the
server begins the same round again, and clients that have answered already send the same answers. The process that
simulates the run may also be killed at any instant: that is no part of a scenario and does not change the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from seedbus.bus import FaultHooks
from seedbus.bus.errors import Unusable
from seedbus.bus.fault_hooks import ActiveFault
from seedbus.bus.in_flight import Key

if TYPE_CHECKING:
    from seedbus.agents.server.round import Phase
    from seedbus.agents.server.server import Server


@runtime_checkable
class Outage(Protocol):
    """A fault that crashes the server."""

    def outage_ns(self, round: int, phase: Phase) -> int | None:
        """Return how long the server is away if it crashes in that phase of that round; None if it does not."""
        ...


class Outages:
    """All outages of a run. Messages that reach a server that is away are lost.

    Of each fault it counts how often the server "crashed", and the messages that were "dropped" for it.

    Attributes:
        is_away: whether the server is away now.
    """

    def __init__(self, hooks: FaultHooks) -> None:
        self._outages = hooks.of_kind(Outage)
        self._newest = 0  # which of them began last
        self._started: set[tuple[int, int, Phase]] = set()
        self.is_away = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._outages)

    async def strikes(self, round: int, phase: Phase, server: Server) -> bool:
        """Let the server crash, if a fault says so, and come back. Returns whether it crashed."""
        lasts_ns = self.crash_ns(round, phase)
        if lasts_ns is None:
            return False
        server.observer.noted("server-crashed", round=round, phase=phase, away_s=lasts_ns / 1e9)
        self.is_away = True
        await server.until_time(server.bus.clock.now_ns + lasts_ns)
        self.is_away = False
        return True

    def stops(self, key: Key, arriving: bool) -> bool:
        """Return whether a message is lost because it reaches a server that is away."""
        return self.is_away and arriving and key[0].is_upward

    def count_dropped(self, client: int) -> ActiveFault | None:
        """Count a message that is lost because the server is away."""
        self._outages[self._newest].counts["dropped"] += 1
        return self._outages[self._newest]

    def crash_ns(self, round: int, phase: Phase) -> int | None:
        """Return how long the server is away from now on; None if it does not crash now. An outage happens once."""
        for index, each in enumerate(self._outages):
            duration_ns = each.fault.outage_ns(round, phase)
            if duration_ns is not None and not (hasattr(duration_ns, "__index__") and duration_ns >= 0):
                what = f"keeps the server away for {duration_ns!r:.80} ns"
                raise Unusable.of_fault(each.fault, what, "None, or a whole number that is not below 0")
            if duration_ns is not None and (index, round, phase) not in self._started:
                self._started.add((index, round, phase))
                self._newest = index
                each.counts["crashed"] += 1
                return int(duration_ns)  # a NumPy integer cannot be journalled
        return None
