"""A set of active clients of which some are replaced now and then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.presence import IntermittentClients


class Replacement(IntermittentClients):
    """Only some clients are active; at times each of them is replaced, by lot, with one that is not.

    The dynamic setting of FedACG (arXiv:2201.03172, Section 5): 250 active of 500, each replaced with probability ½
    every 100 rounds.
    """

    fault: Literal["replacement"] = "replacement"
    active: int = Field(ge=1, description="how many of the selected clients are active at a time")
    every_rounds: int = Field(default=100, ge=1, description="rounds between replacements")
    probability: float = Field(default=0.5, ge=0, le=1, description="chance of each active client to be replaced")

    def schedule(self, clients: int, random: KeyedRandom) -> _Replacing:
        return _Replacing(self, list(self.chosen(clients, random)), random)


class _Replacing:
    """The active set, epoch by epoch."""

    is_by_rounds = True

    def __init__(self, fault: Replacement, chosen: list[int], random: KeyedRandom) -> None:
        self._fault, self._random, self._epoch = fault, random, 0
        order = sorted(chosen, key=lambda client: random.draw("first", client))
        self.absent = set(order[fault.active :])
        self._active, self._pool = set(order[: fault.active]), order[fault.active :]
        self._moved = set(self.absent)

    def advance(self, round: int, now_ns: int) -> Iterable[int]:
        while self._epoch < round // self._fault.every_rounds:
            self._epoch += 1
            self._replace()
        moved, self._moved = self._moved, set()
        return moved

    @property
    def is_over(self) -> bool:
        return not (self.absent and self._fault.probability)

    def next_ns(self) -> None:
        return None

    def _replace(self) -> None:
        random, epoch = self._random, self._epoch
        lots = sorted((random.draw("leaves", epoch, client), client) for client in self._active)
        # nobody leaves for whom there is nobody
        leave = [client for lot, client in lots if lot < self._fault.probability][: len(self._pool)]
        come = [self._drawn(random.draw("comes", epoch, number)) for number in range(len(leave))]
        self._pool += leave
        self._active = self._active.difference(leave).union(come)
        self.absent.symmetric_difference_update([*leave, *come])
        self._moved.symmetric_difference_update([*leave, *come])

    def _drawn(self, lot: float) -> int:
        """One of those who are not active, taken out from among them: at no cost by how many they are."""
        place = int(lot * len(self._pool))
        self._pool[place], self._pool[-1] = self._pool[-1], self._pool[place]
        return self._pool.pop()
