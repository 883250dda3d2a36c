"""Clients that join after the start of the run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.agents.availability import Returns
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import CLIENT_KEY, ClientSelector
from seedbus.scenarios.faults.intermittent import ToggleSchedule


class LateJoiners(ClientSelector):
    """Let the selected clients join during the run; they never leave."""

    keyed_as = f"LateJoiners {CLIENT_KEY} at_round spread_rounds"

    fault: Literal["late-joiners"] = "late-joiners"
    at_round: int = Field(default=1, ge=1, description="first round in which clients join")
    spread_rounds: int = Field(
        default=1, ge=1, description="number of rounds over which they join; each client's round is drawn uniformly"
    )

    @property
    def is_announced(self) -> bool:
        return True

    @property
    def returns(self) -> Returns:
        return "with-state"

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        chosen = self.chosen(clients, random)
        rounds = {client: self.at_round + int(random.draw("joins", client) * self.spread_rounds) for client in chosen}
        return ToggleSchedule(chosen, ((client, iter((round,))) for client, round in rounds.items()), by_rounds=True)
