"""HiSo: Hessian-informed scalar-only communication.

"Converge Faster, Talk Less: Hessian-Informed Federated Zeroth-Order Optimization", arXiv:2506.02370,
Algorithms 1, 2, 2a, 2b and equations 8–12.

    z(r,k,p) = u(r,k,p) / sqrt(H_r)                       one H_r for all k of a round
    Δ[k]     = (1/P) Σ_p ḡ[k,p] z(r,k,p),   x ← x − ηΔ[k]
    H        ← (1−ν)H + ν(Δ[k]² + ε)                      eq. 12, for k = 0 … K−1; H_{r+1} is H after the last

H is a field of the replica. Commits do not contain it: every follower rebuilds it from the same scalars. The mean over
P is taken first and then squared. Equation 113 has a factor 1/τ that the algorithms do not have; this file follows the
algorithms. There is no momentum (§4.2, footnote).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Hessian, UpdateRule
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.schedule import values
from seedbus.vector import Vector


class HiSo(ScalarOnly):
    """HiSo (arXiv:2506.02370): DeComFL with directions scaled by a diagonal Hessian that every follower rebuilds."""

    name: Literal["hiso"] = "hiso"
    nu: float = Field(default=0.05, ge=0, le=1, description="ν, weight of the newest Δ² in H; 0 is DeComFL to the bit")
    epsilon: Positive = Field(default=1e-8, description="ε added to Δ², so that H stays above 0")
    hessian_step: Literal["every", "last"] = Field(
        default="every",
        description="fold every local step into H (eq. 12) or only the last (Algorithm 2a, line 6)",
    )
    clip: tuple[Positive, Positive] | None = Field(
        default=None, description="lower and upper bound on every H_j (Assumption 4); none: off"
    )

    @model_validator(mode="after")
    def _sound(self) -> HiSo:
        if self.directions.is_signs and min(values(self.perturbations)) == 1:
            raise ValueError("rademacher directions have u² = 1 and tell H nothing at perturbations: 1; use gaussian")
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip: the lower bound {self.clip[0]} is above the upper bound {self.clip[1]}")
        return self

    def caveats(self) -> list[str]:
        if not self.directions.is_signs:
            return []
        return ["rademacher directions have u² = 1, so single perturbations tell HiSo's H nothing; gaussian ones do"]

    @property
    def takes_late(self) -> bool:
        return False  # directions are scaled by the H of their round, which the replica no longer has

    def companions(self) -> dict[str, float]:
        lowest, highest = self.clip or (1.0, 1.0)
        return {"hessian": min(max(1.0, lowest), highest)}

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        return np.sqrt(fields["hessian"], out=out)

    def learn(self, block: Block, is_last_step: bool) -> None:
        if self.hessian_step == "last" and not is_last_step:
            return
        hessian, real = block.fields["hessian"], block.delta.dtype.type
        squares = np.multiply(block.delta, block.delta, out=block.delta)
        np.add(squares, real(self.epsilon), out=squares)
        np.multiply(squares, real(self.nu), out=squares)
        np.multiply(hessian, real(1 - self.nu), out=hessian)
        np.add(hessian, squares, out=hessian)
        if self.clip is not None:
            np.clip(hessian, real(self.clip[0]), real(self.clip[1]), out=hessian)

    def update_rule(self) -> UpdateRule | None:
        lowest, highest = self.clip or (-math.inf, math.inf)
        return UpdateRule(
            hessian=Hessian(1 - self.nu, self.nu, self.epsilon, lowest, highest, self.hessian_step == "last")
        )

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return the mean and the spread of H, and the spread of an H without information: the noise of its average.

        Spreads are coefficients of variation. With equal scalars Δ_j² = s·u_j²/H_j. A plain average of u² has the
        variance 2ν/(2−ν). The factor 1/H_j pulls a large H_j back, which halves the variance (to first order in ν;
        scalars that vary from round to round add to it).
        """
        hessian = replica.fields["hessian"].astype(np.float64)
        mean = float(hessian.mean())
        return {
            "hessian_mean": mean,
            "hessian_cv": float(hessian.std()) / mean if mean else 0.0,
            "hessian_cv_null": math.sqrt(self.nu / (2 - self.nu)),
        }
