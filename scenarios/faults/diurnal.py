"""Clients that are there by day and not by night."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.presence import IntermittentClients, Toggling


class Diurnal(IntermittentClients):
    """The share of clients that is there swings like a cosine between two bounds, highest at time 0.

    Every client has its own threshold, and is there while the share is above it; with `zones` its day begins later.
    """

    fault: Literal["diurnal"] = "diurnal"
    period_s: float = Field(default=86400.0, gt=0, le=10**6, description="simulated seconds of a day")
    low: float = Field(ge=0, le=1, description="share of clients that is there when fewest are")
    high: float = Field(default=1.0, ge=0, le=1, description="share of clients that is there when most are")
    zones: int = Field(default=1, ge=1, le=1000, description="time zones, evenly spread; clients are put in one by lot")

    @model_validator(mode="after")
    def _ordered(self) -> Diurnal:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    def schedule(self, clients: int, random: KeyedRandom) -> Toggling:
        absent, changes = set[int](), []
        for client in self.chosen(clients, random):
            threshold = random.draw("threshold", client)
            if threshold >= self.high:
                absent.add(client)
            elif threshold > self.low:
                noon_s = int(random.draw("zone", client) * self.zones) / self.zones * self.period_s
                # high + low + (high − low)·cos(2π(t − noon)/period) is above 2·threshold for so long around noon
                cosine = (2 * threshold - self.high - self.low) / (self.high - self.low)
                half_s = math.acos(max(-1.0, min(1.0, cosine))) / math.tau * self.period_s
                absent.add(client)
                changes.append((client, self._changes(noon_s, half_s)))
        return Toggling(absent, changes, by_rounds=False)

    def _changes(self, noon_s: float, half_s: float) -> Iterator[int]:
        """Nanoseconds at which a day begins, ends, begins, …, from the one before time 0 on."""
        for day in itertools.count(-1):
            for edge_s in (-half_s, half_s):
                yield round_ns(noon_s + day * self.period_s + edge_s)
