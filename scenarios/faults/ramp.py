"""A number of clients that rises and falls by stages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.presence import IntermittentClients, Toggling


class Stage(BaseModel):
    """So many rounds in which the number of clients that are there moves evenly to the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(ge=1, description="how long the stage lasts")
    target: int = Field(ge=0, description="clients that are there at its end")


class Ramp(IntermittentClients):
    """So many of the selected clients are there as the stages say, in the manner of load tests; always the same first.

    After the last stage their number stays.
    """

    fault: Literal["ramp"] = "ramp"
    start: int = Field(ge=0, description="clients that are there at first")
    stages: list[Stage] = Field(min_length=1, description="one after the other")

    def schedule(self, clients: int, random: KeyedRandom) -> Toggling:
        order = sorted(self.chosen(clients, random), key=lambda client: random.draw("rank", client))
        changes = ((client, self._changes(rank)) for rank, client in enumerate(order))
        return Toggling(order[self.start :], changes, by_rounds=True)

    def _changes(self, rank: int) -> Iterator[int]:
        """The rounds at which the number of clients passes `rank`: who has it is there while they are more."""
        begins, number = 0, self.start
        for stage in self.stages:
            is_there = stage.target > rank
            if (number > rank) != is_there:
                rise = stage.target - number
                since = range(1, stage.rounds + 1)
                # the number moves one way only, so whether it has passed does too
                passed = bisect_left(since, True, key=lambda i: (number + rise * i // stage.rounds > rank) == is_there)
                yield begins + since[passed]
            begins, number = begins + stage.rounds, stage.target
