"""HiSo: Hessian-informed scalar-only communication.

"Converge Faster, Talk Less: Hessian-Informed Federated Zeroth-Order Optimization", arXiv:2506.02370,
Algorithms 1, 2, 2a, 2b and equations 8–12.

    z(r,k,p) = u(r,k,p) / sqrt(H_r)                       one H_r for all k of a round
    Δ[k]     = (1/P) Σ_p ḡ[k,p] z(r,k,p),   x ← x − ηΔ[k]
    H        ← (1−ν)H + ν(Δ[k]² + ε)                      eq. 12, for k = 0 … K−1; H_{r+1} is H after the last

H is a field of the replica. Commits do not contain it: every follower rebuilds it from the same scalars. The mean over
P is taken first and then squared. Equation 113 has a factor 1/τ that the algorithms do not have; this file follows the
algorithms. Algorithm 2b prints the second loss at x_{i,r}, where the round began; equation 8 and this file have it at
x_{r,k}, like the first. The paper has no momentum (§4.2, footnote); the authors' optimiser has. Where it is on, it is
DeComFL's, and H learns from Δ and not from m.

Equations 7 and 11, and the control that asks what H knows, are in `hiso_variants` and `hiso_curvature`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Hessian, UpdateRule
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.curvature import spread
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.schedule import values
from seedbus.vector import Vector


class HiSo(DeComFL):
    """HiSo (arXiv:2506.02370): DeComFL with directions scaled by a diagonal Hessian that every follower rebuilds."""

    name: Literal["hiso"] = "hiso"  # type: ignore[assignment]
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
    def _sound(self) -> Self:
        if self.directions.is_signs and min(values(self.perturbations)) == 1:
            raise ValueError("rademacher directions have u² = 1 and tell H nothing at perturbations: 1; use gaussian")
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip: the lower bound {self.clip[0]} is above the upper bound {self.clip[1]}")
        return self

    @property
    def facts(self) -> Facts:
        # directions are scaled by the H of their round, which the replica no longer has
        signs = "rademacher directions have u² = 1, so single perturbations tell HiSo's H nothing; gaussian do"
        return replace(super().facts, takes_late=False, caveats=[signs] * self.directions.is_signs)

    def companions(self) -> dict[str, float]:
        lowest, highest = self.clip or (1.0, 1.0)
        return super().companions() | {"hessian": min(max(1.0, lowest), highest)}

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        return np.sqrt(fields["hessian"], out=out)

    def learn(self, block: Block, is_last_step: bool) -> None:
        if self._learns(is_last_step):
            self._average(block, np.multiply(block.delta, block.delta, out=block.delta))

    def _learns(self, is_last_step: bool) -> bool:
        return self.hessian_step == "every" or is_last_step

    def _average(self, block: Block, squares: Vector) -> None:
        """Compute H ← (1−ν)H + ν(squares + ε), within its bounds; squares, [n], are written to."""
        hessian, real = block.fields["hessian"], squares.dtype.type
        np.add(squares, real(self.epsilon), out=squares)
        np.multiply(squares, real(self.nu), out=squares)
        np.multiply(hessian, real(1 - self.nu), out=hessian)
        np.add(hessian, squares, out=hessian)
        if self.clip is not None:
            np.clip(hessian, real(self.clip[0]), real(self.clip[1]), out=hessian)

    def update_rule(self) -> UpdateRule | None:
        lowest, highest = self.clip or (-math.inf, math.inf)
        learning = Hessian(1 - self.nu, self.nu, self.epsilon, lowest, highest, self.hessian_step == "last")
        return UpdateRule(self.momentum_rule, learning)

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return the mean and the spread of H, and the spread of an H without information: the noise of its average.

        Spreads are coefficients of variation.
        """
        return spread(replica.fields["hessian"]) | {"hessian_cv_null": math.sqrt(self._null_variance())}

    def _null_variance(self) -> float:
        """Return the relative variance of an H without information, to first order in ν.

        Without information Δ_j² = (Σ_p g_p u_jp)²/(P²·H_j). For scalars of a normal distribution the square has the
        relative variance 2(1 + 2/P) over coordinates and rounds with gaussian u, and 2(1 − 1/P) with u = ±1; an average
        of such squares has it times ν/(2−ν). The factor 1/H_j pulls a large H_j back, and halves it.
        """
        of_law = 1 + (-1 if self.directions.is_signs else 2) / min(values(self.perturbations))
        return of_law * self.nu / (2 - self.nu)
