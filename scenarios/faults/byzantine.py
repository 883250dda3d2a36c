"""Byzantine clients: they send false values in their reports."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector

_NORMAL = NormalDist()
_HUGE = 1e30  # representable as float32, and larger than any gradient
_ATTACK_OF_FIELD = {"by": "scale", "sigma": "noise", "value": "constant"}


class Byzantine(RoundSelector):
    """Replace the values in the selected clients' reports. Their computation, digests and timing stay honest.

    With `replay` a client sends in every round what it would have reported in round 0. If several Byzantine faults
    select one report, only the first of them, ordered by repr, applies.
    """

    keyed_as = f"Byzantine {ROUND_KEY} attack by sigma value"

    fault: Literal["byzantine"] = "byzantine"
    attack: Literal["sign-flip", "scale", "noise", "constant", "nan", "huge", "replay"] = Field(
        description="what replaces each number: its negative, a multiple, the number plus noise, a constant, NaN, "
        "1e30, or the number of round 0"
    )
    by: float = Field(default=-10.0, ge=-1e30, le=1e30, description="scale: the factor")
    sigma: float = Field(
        default=1.0, ge=0, le=1e30, description="noise: standard deviation of a normal distribution of mean 0"
    )
    value: float = Field(default=0.0, ge=-1e30, le=1e30, description="constant: the number")

    @model_validator(mode="after")
    def _check_fields_of_attack(self) -> Byzantine:
        for name, attack in _ATTACK_OF_FIELD.items():
            if name in self.idle_fields and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to attack: {attack}, and this is {self.attack}")
        return self

    @property
    def follows_losses(self) -> bool:
        return self.attack == "scale" and self.probability > 0

    @property
    def idle_fields(self) -> set[str]:
        return {name for name, attack in _ATTACK_OF_FIELD.items() if attack != self.attack}

    def tamper(
        self,
        client: int,
        round: int,
        report: NDArray[Any],
        earlier: Callable[[], NDArray[Any]],
        random: KeyedRandom,
    ) -> NDArray[Any] | None:
        """Return the false report, or None if the client reports honestly in this round.

        Args:
            client: the client that reports.
            round: the round of the report.
            report: the honest values; not modified.
            earlier: computes what the client would have reported in round 0.
            random: the fault's own draws.

        Returns:
            An array of the report's shape and dtype.
        """
        if not self.lies(client, round, random):
            return None
        if self.attack == "replay":
            return earlier()
        with np.errstate(over="ignore"):  # a value beyond the dtype becomes infinite, and the server refuses it
            return self._falsified(report.astype(np.float64), client, round, random).astype(report.dtype)

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.strikes_client(client, round, random)

    def _falsified(
        self, honest: NDArray[np.float64], client: int, round: int, random: KeyedRandom
    ) -> NDArray[np.float64]:
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
