"""Clients whose availability follows a day-night cycle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.intermittent import INTERMITTENT_KEY, IntermittentClients, ToggleSchedule


class Diurnal(IntermittentClients):
    """The fraction of available clients follows a cosine between two bounds, with its maximum at time 0.

    Every client has its own threshold and is available while the fraction exceeds it. With `zones`, the maximum of a
    client's cycle comes later, depending on its time zone.
    """

    keyed_as = f"Diurnal {INTERMITTENT_KEY} period_s low high zones"

    fault: Literal["diurnal"] = "diurnal"
    period_s: float = Field(  # a shorter day would have too many changes to count them
        default=86400.0, ge=1e-3, le=10**6, description="length of a day in simulated seconds"
    )
    low: float = Field(ge=0, le=1, description="lowest fraction of available clients")
    high: float = Field(default=1.0, ge=0, le=1, description="highest fraction of available clients")
    zones: int = Field(
        default=1, ge=1, le=1000, description="number of time zones, evenly spread over the day; each client draws one"
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Diurnal:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        absent = set[int]()
        changes = []
        for client in self.chosen(clients, random):
            threshold = random.draw("threshold", client)
            if threshold >= self.high:
                absent.add(client)
            elif threshold > self.low:
                noon_s = int(random.draw("zone", client) * self.zones) / self.zones * self.period_s
                # within half_s of noon, high + low + (high − low)·cos(2π(t − noon)/period) exceeds 2·threshold
                cosine = (2 * threshold - self.high - self.low) / (self.high - self.low)
                half_s = math.acos(max(-1.0, min(1.0, cosine))) / math.tau * self.period_s
                absent.add(client)
                changes.append((client, self._changes(noon_s, half_s)))
        return ToggleSchedule(absent, changes, by_rounds=False)

    def _changes(self, noon_s: float, half_s: float) -> Iterator[int]:
        """Yield the nanoseconds at which the client arrives, leaves, arrives, …, from the day before time 0 on."""
        for day in itertools.count(-1):
            for edge_s in (-half_s, half_s):
                yield round_ns(noon_s + day * self.period_s + edge_s)
