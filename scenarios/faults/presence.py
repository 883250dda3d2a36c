"""What the faults about who is there have in common; none of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from pydantic import Field

from seedbus.agents.availability import Returns
from seedbus.scenarios.faults.selector import Chosen


class IntermittentClients(Chosen):
    """Clients that are not always there. Default: they say when they leave, and come back with what they had."""

    announced: bool = Field(default=True, description="whether the server is told by those who leave, or asks in vain")
    returns: Returns = Field(default="with-state", description="with what a client comes back")

    @property
    def is_announced(self) -> bool:
        return self.announced

    @property
    def may_lose(self) -> bool:
        return not self.announced


class Toggling:
    """Clients that change between here and away at given rounds, or nanoseconds.

    absent: those who are away at first; changes: for each client when it changes, ascending, without end or not.
    """

    def __init__(self, absent: Iterable[int], changes: Iterable[tuple[int, Iterator[int]]], *, by_rounds: bool) -> None:
        self.absent = set(absent)
        self.is_by_rounds = by_rounds
        self._next = [(when, client, later) for client, later in changes if (when := next(later, None)) is not None]
        heapq.heapify(self._next)
        self._fresh = set(self.absent)

    def advance(self, round: int, now_ns: int) -> set[int]:
        latest, before = round if self.is_by_rounds else now_ns, dict[int, bool]()
        while self._next and self._next[0][0] <= latest:
            _, client, later = self._next[0]
            before.setdefault(client, client in self.absent)
            self.absent ^= {client}
            when = next(later, None)
            if when is None:
                heapq.heappop(self._next)
            else:
                heapq.heapreplace(self._next, (when, client, later))
        moved = {client for client, was_absent in before.items() if was_absent != (client in self.absent)}
        moved ^= self._fresh  # who is away at first goes at the first call, unless it is back by then
        self._fresh = set()
        return moved

    @property
    def is_over(self) -> bool:
        return not self._next

    def next_ns(self) -> int | None:
        return None if self.is_by_rounds or not self._next else self._next[0][0]
