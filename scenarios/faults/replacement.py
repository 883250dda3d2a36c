"""A set of active clients, some of which are replaced at fixed intervals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.intermittent import INTERMITTENT_KEY, IntermittentClients


class Replacement(IntermittentClients):
    """Keep some of the selected clients active; at fixed intervals, each may be replaced with an inactive one.

    The dynamic setting of FedACG (arXiv:2201.03172, Section 5): 250 active of 500, each replaced with probability ½
    every 100 rounds.
    """

    keyed_as = f"Replacement {INTERMITTENT_KEY} active every_rounds probability"

    fault: Literal["replacement"] = "replacement"
    active: int = Field(ge=1, description="number of active clients")
    every_rounds: int = Field(default=100, ge=1, description="rounds from one replacement to the next")
    probability: float = Field(default=0.5, ge=0, le=1, description="chance that an active client is replaced")

    @property
    def client_counts(self) -> dict[str, int]:
        return {"active": self.active}

    def schedule(self, clients: int, random: KeyedRandom) -> _ReplacementSchedule:
        return _ReplacementSchedule(self, list(self.chosen(clients, random)), random)


class _ReplacementSchedule:
    """The absent clients, epoch by epoch. Implements `agents.availability.Schedule`."""

    is_by_rounds = True

    def __init__(self, fault: Replacement, chosen: list[int], random: KeyedRandom) -> None:
        self._fault = fault
        self._random = random
        self._epoch = 0
        order = sorted(chosen, key=lambda client: random.draw("first", client))
        self.absent = set(order[fault.active :])
        self._active = set(order[: fault.active])
        self._inactive = order[fault.active :]
        self._changed = set(self.absent)

    def advance(self, round: int, now_ns: int) -> Iterable[int]:
        while self._epoch < round // self._fault.every_rounds:
            self._epoch += 1
            self._replace()
        changed = self._changed
        self._changed = set()
        return changed

    @property
    def is_over(self) -> bool:
        return not (self.absent and self._fault.probability)

    def next_ns(self) -> None:
        return None

    def _replace(self) -> None:
        random = self._random
        epoch = self._epoch
        draws = sorted((random.draw("leaves", epoch, client), client) for client in self._active)
        # a client leaves only if an inactive one can take its place
        leaving = [client for draw, client in draws if draw < self._fault.probability][: len(self._inactive)]
        arriving = [self._pop_inactive(random.draw("comes", epoch, number)) for number in range(len(leaving))]
        self._inactive += leaving
        self._active = self._active.difference(leaving).union(arriving)
        self.absent.symmetric_difference_update([*leaving, *arriving])
        self._changed.symmetric_difference_update([*leaving, *arriving])

    def _pop_inactive(self, draw: float) -> int:
        """Remove and return the inactive client that the draw selects, in constant time: it swaps with the last."""
        index = int(draw * len(self._inactive))
        self._inactive[index], self._inactive[-1] = self._inactive[-1], self._inactive[index]
        return self._inactive.pop()
