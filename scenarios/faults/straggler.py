"""Clients that compute slowly."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import Duration, KeyedRandom, Slowed
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.selector import Clients


class Straggler(Clients):
    """Make the selected clients compute slowly: by a factor on the time that `compute` says, by a pause, or by both."""

    fault: Literal["straggler"] = "straggler"
    factor: Duration | None = Field(default=None, description="how many times as long; times where it says seconds")
    drawn: Literal["once", "every_round"] = Field(
        default="every_round", description="once: a client has one factor for ever; every_round: a new one each round"
    )
    pause_s: float | None = Field(default=None, ge=0, le=10**6, description="and so many seconds longer")

    @model_validator(mode="after")
    def _slows_somehow(self) -> Straggler:
        if self.factor is None and self.pause_s is None:
            raise ValueError("give factor or pause_s, or both")
        return self

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed:
        if not self.strikes_client(client, round, random):
            return Slowed()
        drawn_for = (client,) if self.drawn == "once" else (client, round)
        factor = 1.0 if self.factor is None else self.factor.quantile(random.draw("factor", *drawn_for))
        return Slowed(factor, round_ns(self.pause_s or 0))
