"""HiSo: Hessian-informed scalar-only communication.

"Converge Faster, Talk Less: Hessian-Informed Federated Zeroth-Order Optimization", arXiv:2506.02370,
Algorithms 1, 2, 2a, 2b and equations 8–12.

    z(r,k,p) = u(r,k,p) / sqrt(H_r)                       one H_r for all k of a round
    Δ[k]     = (1/P) Σ_p ḡ[k,p] z(r,k,p),   x ← x − ηΔ[k]
    H        ← (1−ν)H + ν(Δ[k]² + ε)                      eq. 12, for k = 0 … K−1; H_{r+1} is H after the last

Variants, each off by default:

    momentum                  m ← βm + (1−β)Δ[k],  x ← x − ηm         as DeComFL's; H learns from Δ and not from m
    normalise: true           g ← g/‖z‖²                              eq. 7's (uᵀH⁻¹u)⁻¹, which eq. 8 leaves to η
    hessian: mean             z(r,k,p) = u(r,k,p) / sqrt(mean of H_r)    the control: all that H knows is one number

H is a field of the replica. Commits do not contain it: every follower rebuilds it from the same scalars. The mean over
P is taken first and then squared. Equation 113 has a factor 1/τ that the algorithms do not have; this file follows the
algorithms. Algorithm 2b prints the second loss at x_{i,r}, where the round began; equation 8 and this file have it at
x_{r,k}, like the first. The paper has no momentum (§4.2, footnote); the authors' optimiser has.

`estimator: curvature` is equation 11, which the paper names and leaves for equation 12, because it takes another
evaluation a direction and more scalars. A client reports central differences g and, after them, second ones:

    c[k,p] = (f(x+μz) + f(x−μz) − 2f(x)) / μ² ≈ zᵀ∇²f z              eq. 11; the printed 2μ² makes half of that
    H      ← (1−ν)H + ν((1/P) Σ_p |c̄[k,p]| H_r u(r,k,p)² + ε)        in the place of eq. 12, with the same k

The measurement and the moving average are the paper's. It does not say by which rule H would learn from c; this one
is that of HiZOO (arXiv:2402.15173; `hizoo`), with HiSo's order (H learns after the step, one H_r for all k), ν, ε and
clip. **Ours**: c is measured along z and not along u, so that g and c need the same directions; H_r undoes that. c is
averaged over clients before its magnitude is taken. For a constant diagonal Hessian A, H comes to rest at (d + 2)·A;
the ratios between its coordinates take some (d + 2)/2ν rounds to settle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Directions, Hessian, UpdateRule
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block, coefficients_of, total
from seedbus.algorithms.scalar_only.curvature import spread, weighted_squares
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars, Term
from seedbus.algorithms.schedule import Scheduled, values
from seedbus.vector import Vector


class HiSo(DeComFL):
    """HiSo (arXiv:2506.02370): DeComFL with directions scaled by a diagonal Hessian that every follower rebuilds."""

    name: Literal["hiso"] = "hiso"  # type: ignore[assignment]
    nu: float = Field(default=0.05, ge=0, le=1, description="ν, weight of the newest Δ² in H; 0 is DeComFL to the bit")
    epsilon: Positive = Field(default=1e-8, description="ε added to Δ², so that H stays above 0")
    estimator: Scheduled[Literal["forward", "central", "projection", "curvature"]] = Field(  # type: ignore[assignment]
        default="forward",
        description="as for DeComFL; or curvature, equation 11: central differences, and second ones from the loss at "
        "x, from which H learns in the place of Δ²: 2P + 1 evaluations a step, 2P scalars",
    )
    hessian_step: Literal["every", "last"] = Field(
        default="every",
        description="fold every local step into H (eq. 12) or only the last (Algorithm 2a, line 6)",
    )
    clip: tuple[Positive, Positive] | None = Field(
        default=None, description="lower and upper bound on every H_j (Assumption 4); none: off"
    )
    normalise: bool = Field(
        default=False,
        description="clients divide each scalar by ‖z‖² (equation 7), which is about d; the learning rate is then as "
        "many times larger",
    )
    hessian: Literal["diagonal", "mean"] = Field(
        default="diagonal",
        description="what divides directions: the root of each H_j, or, as a control, of the mean of H in every "
        "coordinate, with a second vector of d numbers",
    )

    @model_validator(mode="after")
    def _sound(self) -> HiSo:
        if self.directions.is_signs and min(values(self.perturbations)) == 1:
            raise ValueError("rademacher directions have u² = 1 and tell H nothing at perturbations: 1; use gaussian")
        if not self.has_curvature and "curvature" in values(self.estimator):
            raise ValueError("estimator: curvature is for all rounds; a schedule of the others is accepted")
        if self.normalise and self.has_curvature:
            raise ValueError(
                "normalise: true divides slopes and not curvatures; leave it out with estimator: curvature"
            )
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip: the lower bound {self.clip[0]} is above the upper bound {self.clip[1]}")
        return self

    def caveats(self) -> list[str]:
        found = []
        if self.directions.is_signs:
            found.append(
                "rademacher directions have u² = 1, so single perturbations tell HiSo's H nothing; gaussian do"
            )
        if self.normalise and self.nu and self.clip is None:
            found.append(
                "H learns from normalised Δ, which are about 1/d as large, so it falls towards ε; clip bounds it"
            )
        return found

    @property
    def takes_late(self) -> bool:
        return False  # directions are scaled by the H of their round, which the replica no longer has

    def companions(self) -> dict[str, float]:
        lowest, highest = self.clip or (1.0, 1.0)
        names = ("hessian",) if self.hessian == "diagonal" else ("hessian", "hessian_mean")
        return super().companions() | dict.fromkeys(names, min(max(1.0, lowest), highest))

    @property
    def is_normalised(self) -> bool:
        return self.normalise

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        return np.sqrt(fields["hessian" if self.hessian == "diagonal" else "hessian_mean"], out=out)

    def apply(self, replica: Replica, commits: Sequence[ScalarCommit]) -> None:
        if self.hessian == "diagonal":
            super().apply(replica, commits)
            return
        hessian = replica.fields["hessian"]
        for commit in self.pending(replica.version, commits):
            super().apply(replica, [commit])
            replica.fields["hessian_mean"].fill(total(hessian, lambda span: hessian[span]) / hessian.size)

    def move(
        self, block: Block, source: Any, divisor: Vector | None, plan: ScalarPlan, k: int, scalars: Scalars
    ) -> None:
        super().move(block, source, divisor, plan, k, scalars[: scalars.size // self._per_direction])

    def _fold(self, block: Block, backend: Directions, commit: ScalarCommit, term: Term) -> None:
        if not self.has_curvature or not term.weight:
            super()._fold(block, backend, commit, term)
            return
        _, weight, rate = commit.effect(term)
        divisor, real = self.divisor(block.fields, block.sqrt_hessian), block.delta.dtype.type
        for k, scalars in enumerate(term.scalars):
            slopes, halves = np.split(scalars, 2)
            where: dict[str, int] = {"seed": term.seed, "step": k}
            weights = coefficients_of(slopes, weight, real)
            backend.accumulate(block.delta, weights, start=block.start, divisor=divisor, **where)
            self._step(block, rate)
            if self._learns(k + 1 == len(term.scalars)):
                found = weighted_squares(block, backend, coefficients_of(np.abs(halves), 2.0, real), **where)
                np.multiply(found, block.sqrt_hessian, out=found)
                np.multiply(found, block.sqrt_hessian, out=found)
                self._average(block, found)

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
        if self.hessian == "mean" or self.has_curvature:
            return None  # a mean over all coordinates, which a block does not know; or second differences
        lowest, highest = self.clip or (-math.inf, math.inf)
        learning = Hessian(1 - self.nu, self.nu, self.epsilon, lowest, highest, self.hessian_step == "last")
        return UpdateRule(self.momentum_rule, learning)

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return the mean and the spread of H, and the spread of an H without information: the noise of its average.

        Spreads are coefficients of variation. Without information Δ_j² = (Σ_p g_p u_jp)²/(P²·H_j). For scalars of a
        normal distribution the square has the relative variance 2(1 + 2/P) over coordinates and rounds with gaussian
        u, and 2(1 − 1/P) with u = ±1; an average of such squares has it times ν/(2−ν). The factor 1/H_j, which
        `hessian: mean` does not have, pulls a large H_j back, and halves it. All to first order in ν. For second
        differences there is no such formula.
        """
        found = spread(replica.fields["hessian"])
        if self.has_curvature:
            return found
        of_law = 1 + (-1 if self.directions.is_signs else 2) / min(values(self.perturbations))
        pulled = 1 if self.hessian == "diagonal" else 2
        return found | {"hessian_cv_null": math.sqrt(pulled * of_law * self.nu / (2 - self.nu))}
