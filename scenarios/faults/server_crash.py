"""A server that crashes and comes back."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.agents.server.outages import Phase
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.selector import Fault


class ServerCrash(Fault):
    """The server crashes in a round, loses the round's reports and what arrives meanwhile, and begins it again."""

    fault: Literal["server-crash"] = "server-crash"
    at_round: int = Field(ge=0, description="the round in which it crashes")
    every_rounds: int | None = Field(default=None, ge=1, description="and again after every so many rounds; none: once")
    phase: Phase = Field(
        default="gathering",
        description="asking: once the plans are sent; gathering: when half of the reports are in; committing: when the "
        "round is over and nothing is durable; publishing: when it is, and nobody has heard of it",
    )
    down_s: float = Field(default=10.0, ge=0, le=10**6, description="simulated seconds until it is back")

    def outage_ns(self, round: int, phase: Phase) -> int | None:
        since = round - self.at_round
        is_due = since == 0 if self.every_rounds is None else since >= 0 and since % self.every_rounds == 0
        return round_ns(self.down_s) if is_due and phase == self.phase else None
