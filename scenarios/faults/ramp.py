"""A number of available clients that rises and falls in stages, as in load tests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.intermittent import INTERMITTENT_KEY, IntermittentClients, ToggleSchedule
from seedbus.settings import Settings


class Stage(Settings):
    """A stage of a ramp, in which the number of available clients moves linearly to the target."""

    keyed_as = "Stage rounds target"

    rounds: int = Field(ge=1, lt=2**32, description="length of the stage")
    target: int = Field(ge=0, description="available clients at the end of the stage")


class Ramp(IntermittentClients):
    """Change the number of available clients in stages, as in load tests; clients join and leave in one fixed order.

    After the last stage the number stays constant.
    """

    keyed_as = f"Ramp {INTERMITTENT_KEY} start stages"

    fault: Literal["ramp"] = "ramp"
    start: int = Field(ge=0, description="available clients at the start")
    stages: list[Stage] = Field(min_length=1, description="the stages, in order")

    @property
    def client_counts(self) -> dict[str, int]:
        targets = {f"stages.{number}.target": stage.target for number, stage in enumerate(self.stages)}
        return {"start": self.start} | targets

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        order = sorted(self.chosen(clients, random), key=lambda client: random.draw("rank", client))
        changes = ((client, self._changes(rank)) for rank, client in enumerate(order))
        return ToggleSchedule(order[self.start :], changes, by_rounds=True)

    def _changes(self, rank: int) -> Iterator[int]:
        """Yield the rounds at which the client of this rank arrives or leaves.

        The client is available while the number of available clients exceeds its rank.
        """
        first_round = 0
        number = self.start
        for stage in self.stages:
            is_available = stage.target > rank
            if (number > rank) != is_available:
                rise = stage.target - number
                elapsed = range(1, stage.rounds + 1)
                # within a stage the number is monotonic, so it passes the rank once
                passed = bisect_left(
                    elapsed, True, key=lambda i: (number + rise * i // stage.rounds > rank) == is_available
                )
                yield first_round + elapsed[passed]
            first_round += stage.rounds
            number = stage.target
