"""Clients that compute slowly."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import Duration, KeyedRandom, Slowed
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector


class Straggler(RoundSelector):
    """Slow down the local work of the selected clients: multiply the time given by `compute`, add a pause, or both."""

    keyed_as = f"Straggler {ROUND_KEY} factor drawn pause_s"

    fault: Literal["straggler"] = "straggler"
    factor: Duration | None = Field(
        default=None, description="factor on the time of local work; a plain number, not seconds"
    )
    drawn: Literal["once", "every_round"] = Field(
        default="every_round", description="once: a client keeps one factor; every_round: a new factor in every round"
    )
    pause_s: float | None = Field(default=None, ge=0, le=10**6, description="additional pause in seconds")

    @model_validator(mode="after")
    def _check_slows(self) -> Straggler:
        if self.factor is None and self.pause_s is None:
            raise ValueError("give factor or pause_s, or both")
        return self

    @property
    def only_multiplies(self) -> bool:
        return not self.pause_s

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed:
        if not self.strikes_client(client, round, random):
            return Slowed()
        key = (client,) if self.drawn == "once" else (client, round)
        factor = 1.0 if self.factor is None else self.factor.quantile(random.draw("factor", *key))
        return Slowed(factor, round_ns(self.pause_s or 0))
