"""Clients on devices of different speed."""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus import KeyedRandom, Slowed
from seedbus.scenarios.faults.selector import Clients


class DeviceClass(BaseModel):
    """A kind of device: what share of the clients has one, and how slow it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: float = Field(gt=0, le=1, description="share of the clients")
    factor: float = Field(ge=1e-6, le=10**6, description="how many times as long its work takes")


class DeviceClasses(Clients):
    """Give every selected client a device, drawn once, that computes at its own speed."""

    fault: Literal["device-classes"] = "device-classes"
    classes: list[DeviceClass] = Field(min_length=1, description="the devices there are; their shares add up to 1")

    @model_validator(mode="after")
    def _is_whole(self) -> DeviceClasses:
        total = math.fsum(each.share for each in self.classes)
        if not math.isclose(total, 1, abs_tol=1e-6):
            raise ValueError(f"the shares of classes add up to {total:g}; expected 1")
        return self

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed:
        if not self.strikes_client(client, round, random):
            return Slowed()
        ends = list(accumulate(each.share for each in self.classes))
        number = bisect(ends, random.draw("class", client), hi=len(ends) - 1)  # the last ends at 1, but for rounding
        return Slowed(self.classes[number].factor)
