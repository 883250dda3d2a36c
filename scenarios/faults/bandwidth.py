"""Clients with low bandwidth."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector


class Bandwidth(RoundSelector):
    """Limit the bandwidth of the selected clients. Of several limits, also those of `network`, the lowest applies."""

    keyed_as = f"Bandwidth {ROUND_KEY} up_mbps down_mbps"

    fault: Literal["bandwidth"] = "bandwidth"
    up_mbps: float | None = Field(default=None, ge=1e-6, description="limit to the server in Mbit/s")
    down_mbps: float | None = Field(default=None, ge=1e-6, description="limit from the server in Mbit/s")

    @model_validator(mode="after")
    def _check_limits(self) -> Bandwidth:
        if self.up_mbps is None and self.down_mbps is None:
            raise ValueError("give up_mbps or down_mbps, or both")
        return self

    def mbps(self, client: int, round: int, upward: bool, random: KeyedRandom) -> float | None:
        return (self.up_mbps if upward else self.down_mbps) if self.strikes_client(client, round, random) else None
