"""Clients whose links are narrow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.selector import Clients


class Bandwidth(Clients):
    """Give the selected clients narrow links; of several limits, the network's own included, the lowest holds."""

    fault: Literal["bandwidth"] = "bandwidth"
    up_mbps: float | None = Field(default=None, ge=1e-6, description="at most so many Mbit/s to the server")
    down_mbps: float | None = Field(default=None, ge=1e-6, description="at most so many Mbit/s from the server")

    @model_validator(mode="after")
    def _limits_something(self) -> Bandwidth:
        if self.up_mbps is None and self.down_mbps is None:
            raise ValueError("give up_mbps or down_mbps, or both")
        return self

    def mbps(self, client: int, round: int, upward: bool, random: KeyedRandom) -> float | None:
        return (self.up_mbps if upward else self.down_mbps) if self.strikes_client(client, round, random) else None
