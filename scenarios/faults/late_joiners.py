"""Clients that come later than the others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.agents.availability import Returns
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.presence import Toggling
from seedbus.scenarios.faults.selector import Chosen


class LateJoiners(Chosen):
    """The selected clients join when the run is under way, and never leave."""

    fault: Literal["late-joiners"] = "late-joiners"
    at_round: int = Field(default=1, ge=1, description="the first of them come at this round")
    spread_rounds: int = Field(default=1, ge=1, description="and the others within so many rounds, evenly by lot")

    @property
    def is_announced(self) -> bool:
        return True

    @property
    def returns(self) -> Returns:
        return "with-state"

    def schedule(self, clients: int, random: KeyedRandom) -> Toggling:
        chosen = self.chosen(clients, random)
        rounds = {client: self.at_round + int(random.draw("joins", client) * self.spread_rounds) for client in chosen}
        return Toggling(chosen, ((client, iter((round,))) for client, round in rounds.items()), by_rounds=True)
