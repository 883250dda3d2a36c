"""Colluding clients: attackers that know each other's reports, or those of honest clients, and send one false report.

Unless z or by is large, their reports are no farther away than honest ones, so rules that drop what is far let them
pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.algorithms.aggregation import vectors
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector
from seedbus.vector import Vector

_NORMAL = NormalDist()
_ATTACK_OF_FIELD = {"z": "alie", "by": "ipm", "along": "min-max"}


class Colluding(RoundSelector):
    """The selected clients replace their reports in a commit by one that they make together, and compute honestly.

    `alie`, a little is enough: μ − z·σ, where μ and σ are the mean and the standard deviation of each value in the
    attackers' own honest reports (Baruch, Baruch, Goldberg 2019, arXiv:1902.06156). By default z is the
    paper's, for n reports of which m are attackers': the z at which Φ(z) = (n − m − s)/(n − m), s = ⌊n/2 + 1⌋ − m.
    Where the attackers have the majority there is no such z, and s is 1; with one honest report z is 0. To add z·σ
    instead, which shifts the mean by as much, give −z.

    `ipm`, inner product manipulation: −by times the mean of the honest reports (Xie, Koyejo, Gupta 2019,
    arXiv:1903.03936, where by is ε).

    `min-max`: μ − γ·p with μ of the honest reports, their σ, μ or the sign of μ as p, and the largest γ at which the
    distance to each honest report is at most the largest between two of these (Shejwalkar, Houmansadr, NDSS 2021).
    The authors look for γ by halving steps; here it is the root of a quadratic equation.
    """

    keyed_as = f"Colluding {ROUND_KEY} attack z by along"

    fault: Literal["colluding"] = "colluding"
    attack: Literal["alie", "ipm", "min-max"] = Field(
        description="a little is enough, inner product manipulation, or the largest shift within the honest spread"
    )
    z: float | None = Field(
        default=None, ge=-1e6, le=1e6, description="alie: how many standard deviations; default: the paper's"
    )
    by: float = Field(default=0.5, ge=-1e6, le=1e6, description="ipm: ε, the factor of the negative mean")

    along: Literal["std", "mean", "sign"] = Field(
        default="std", description="min-max: p, the standard deviation of each value, their mean or its sign"
    )

    @model_validator(mode="after")
    def _check_fields_of_attack(self) -> Colluding:
        for name in self.idle_fields:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to attack: {_ATTACK_OF_FIELD[name]}, and this is {self.attack}")
        return self

    @property
    def idle_fields(self) -> set[str]:
        return {name for name, attack in _ATTACK_OF_FIELD.items() if attack != self.attack}

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.strikes_client(client, round, random)

    def collude(self, own: Sequence[Vector], honest: Sequence[Vector]) -> NDArray[np.float64] | None:
        """Return the report of all attackers, float64 [values]; None: each sends its own.

        Args:
            own: what the attackers would have reported, float32 [values] each, at least one.
            honest: the other reports of the commit, in the same form; maybe none.
        """
        if not honest:
            return None
        if self.attack == "alie":
            mean = vectors.average(own)
            return mean - self._deviations(len(own), len(honest)) * vectors.deviations(own, mean)
        mean = vectors.average(honest)
        if self.attack == "ipm":
            return -self.by * mean
        match self.along:
            case "std":
                direction = vectors.deviations(honest, mean)
            case "mean":
                direction = mean
            case "sign":
                direction = np.sign(mean)
        return mean - _largest_shift(honest, mean, direction) * direction

    def _deviations(self, attackers: int, honest: int) -> float:
        """z."""
        if self.z is not None:
            return self.z
        supporters = max((attackers + honest) // 2 + 1 - attackers, 1)
        share = (honest - supporters) / honest
        return _NORMAL.inv_cdf(share) if share > 0 else 0.0


def _largest_shift(honest: Sequence[Vector], mean: NDArray[np.float64], direction: NDArray[np.float64]) -> float:
    """Return the largest γ ≥ 0 at which mean − γ·direction is as near to each report as two reports may be.

    With r = v − mean, ‖r + γp‖² = ‖r‖² + 2γ⟨r, p⟩ + γ²‖p‖² is at most D² up to the larger root in γ.
    """
    square = float(np.add.reduce(direction * direction))
    if square == 0:
        return 0.0
    farthest = max(map(max, vectors.squared_distances(honest)))
    shifts = []
    for distance, along in vectors.inner_products(honest, mean, direction):
        shifts.append((math.sqrt(max(along * along + square * (farthest - distance), 0.0)) - along) / square)
    return max(min(shifts), 0.0)
