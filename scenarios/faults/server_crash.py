"""A server that crashes and restarts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.agents.server.round import Phase
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.base import Fault


class ServerCrash(Fault):
    """Crash the server in a round, which it starts again after the restart.

    The reports received so far and all messages that arrive while the server is down are lost.
    """

    keyed_as = "ServerCrash at_round every_rounds phase down_s"

    fault: Literal["server-crash"] = "server-crash"
    at_round: int = Field(ge=0, description="round of the crash")
    every_rounds: int | None = Field(
        default=None, ge=1, description="rounds from one crash to the next; none: only once"
    )
    phase: Phase = Field(
        default="gathering",
        description="asking: after the plans are sent; gathering: after half of the reports have arrived; committing: "
        "after the round is over, before the commit is durable; publishing: before the durable commit is sent",
    )
    down_s: float = Field(default=10.0, ge=0, le=10**6, description="simulated seconds until the restart")

    def outage_ns(self, round: int, phase: Phase) -> int | None:
        elapsed = round - self.at_round
        is_due = elapsed == 0 if self.every_rounds is None else elapsed >= 0 and elapsed % self.every_rounds == 0
        return round_ns(self.down_s) if is_due and phase == self.phase else None
