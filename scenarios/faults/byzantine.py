"""Clients that lie in their reports."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.selector import Clients

_NORMAL = NormalDist()
_HUGE = 1e30  # a float32 holds it, and no gradient has it
_OWN = {"by": "scale", "sigma": "noise", "value": "constant"}


class Byzantine(Clients):
    """Let the selected clients lie in their reports; the computation, the digests and the timing stay honest.

    replay: what the client would have reported in round 0, sent again in every round. Of several such faults that
    strike one report the first by what they say applies, and not all.
    """

    fault: Literal["byzantine"] = "byzantine"
    attack: Literal["sign-flip", "scale", "noise", "constant", "nan", "huge", "replay"] = Field(
        description="what becomes of each number: its negative, a multiple, with noise, always the same, NaN, 1e30, "
        "round 0's"
    )
    by: float = Field(default=-10.0, ge=-1e30, le=1e30, description="scale: the factor")
    sigma: float = Field(default=1.0, ge=0, le=1e30, description="noise: its standard deviation; normal, mean 0")
    value: float = Field(default=0.0, ge=-1e30, le=1e30, description="constant: the number")

    @model_validator(mode="after")
    def _own_fields(self) -> Byzantine:
        for name, attack in _OWN.items():
            if self.attack != attack and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to attack: {attack}, and this is {self.attack}")
        return self

    def tamper(
        self,
        client: int,
        round: int,
        report: NDArray[Any],
        earlier: Callable[[], NDArray[Any]],
        random: KeyedRandom,
    ) -> NDArray[Any] | None:
        """The lie, of the report's own type; None if this does not strike."""
        if not self.lies(client, round, random):
            return None
        if self.attack == "replay":
            return earlier()
        with np.errstate(over="ignore"):  # a lie beyond the format is an infinity, and refused like one
            return self._lie(report.astype(np.float64), client, round, random).astype(report.dtype)

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.strikes_client(client, round, random)

    def _lie(self, honest: NDArray[np.float64], client: int, round: int, random: KeyedRandom) -> NDArray[np.float64]:
        match self.attack:
            case "sign-flip":
                return -honest
            case "scale":
                return honest * self.by
            case "noise":
                draws = [_NORMAL.inv_cdf(random.draw("noise", client, round, number)) for number in range(honest.size)]
                return honest + self.sigma * np.array(draws).reshape(honest.shape)
            case "nan":
                return np.full_like(honest, np.nan)
            case "huge":
                return np.full_like(honest, _HUGE)
            case _:
                return np.full_like(honest, self.value)
