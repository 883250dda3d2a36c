"""Clients on devices of different speeds."""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom, Slowed
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector
from seedbus.settings import Settings


class DeviceClass(Settings):
    """A class of devices: the fraction of clients that have such a device, and its slowness."""

    keyed_as = "DeviceClass share factor"

    share: float = Field(gt=0, le=1, description="fraction of the clients")
    factor: float = Field(ge=1e-6, le=10**6, description="factor on the time of local work")


class DeviceClasses(RoundSelector):
    """Give every selected client a device of one of several speeds, drawn once."""

    keyed_as = f"DeviceClasses {ROUND_KEY} classes"

    fault: Literal["device-classes"] = "device-classes"
    classes: list[DeviceClass] = Field(min_length=1, description="classes of devices; their shares add up to 1")

    @model_validator(mode="after")
    def _check_shares(self) -> DeviceClasses:
        total = math.fsum(each.share for each in self.classes)
        if not math.isclose(total, 1, abs_tol=1e-6):
            raise ValueError(f"the shares of classes add up to {total:g}; expected 1")
        return self

    @property
    def only_multiplies(self) -> bool:
        return True

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed:
        if not self.strikes_client(client, round, random):
            return Slowed()
        return Slowed(self.classes[self._number(client, random)].factor)

    def client_groups(self, clients: int, random: KeyedRandom) -> dict[str, list[int]]:
        groups: list[list[int]] = [[] for _ in self.classes]
        for client in self.chosen(clients, random):
            groups[self._number(client, random)].append(client)
        return {
            f"device class {number}, factor {each.factor:g}": groups[number] for number, each in enumerate(self.classes)
        }

    def _number(self, client: int, random: KeyedRandom) -> int:
        """Return the number of a client's class."""
        ends = list(accumulate(each.share for each in self.classes))
        # hi: the last end may be slightly below 1 because of rounding
        return bisect(ends, random.draw("class", client), hi=len(ends) - 1)
