"""Shared by the faults that make clients leave and return: their fields, and a schedule of changes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from pydantic import Field

from seedbus.agents.availability import Returns
from seedbus.scenarios.faults.base import CLIENT_KEY, ClientSelector

INTERMITTENT_KEY = f"{CLIENT_KEY} announced returns"
"""The fields of `IntermittentClients` in `keyed_as`, in which they come first."""


class IntermittentClients(ClientSelector):
    """Clients that are not always available. Default: they announce that they leave, and return with their state."""

    announced: bool = Field(
        default=True, description="whether the server is told that a client leaves; if not, it keeps asking the client"
    )
    returns: Returns = Field(default="with-state", description="what a client still has when it returns")

    @property
    def is_announced(self) -> bool:
        return self.announced

    @property
    def may_lose(self) -> bool:
        return not self.announced


class ToggleSchedule:
    """A schedule of clients that switch between available and absent at given rounds or times.

    Implements `agents.availability.Schedule`.

    Attributes:
        absent: the clients that are absent now.
        is_by_rounds: whether changes happen at rounds; otherwise at nanoseconds of simulated time.
    """

    def __init__(self, absent: Iterable[int], changes: Iterable[tuple[int, Iterator[int]]], *, by_rounds: bool) -> None:
        """Create the schedule.

        Args:
            absent: the clients that are absent at the start.
            changes: for each client, when it changes: ascending rounds or nanoseconds, finite or infinite.
            by_rounds: whether the changes are rounds.
        """
        self.absent = set(absent)
        self.is_by_rounds = by_rounds
        self._next = [(when, client, later) for client, later in changes if (when := next(later, None)) is not None]
        heapq.heapify(self._next)
        self._initially_absent = set(self.absent)

    def advance(self, round: int, now_ns: int) -> set[int]:
        """Apply all changes up to `round` or `now_ns`; returns the clients whose availability has changed."""
        latest = round if self.is_by_rounds else now_ns
        was_absent = dict[int, bool]()
        while self._next and self._next[0][0] <= latest:
            _, client, later = self._next[0]
            was_absent.setdefault(client, client in self.absent)
            self.absent ^= {client}
            when = next(later, None)
            if when is None:
                heapq.heappop(self._next)
            else:
                heapq.heapreplace(self._next, (when, client, later))
        changed = {client for client, before in was_absent.items() if before != (client in self.absent)}
        # the first call reports the clients that are absent at the start, unless they have returned by then
        changed ^= self._initially_absent
        self._initially_absent = set()
        return changed

    @property
    def is_over(self) -> bool:
        return not self._next

    def next_ns(self) -> int | None:
        return None if self.is_by_rounds or not self._next else self._next[0][0]
