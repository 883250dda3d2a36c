"""HiSo by equation 11 of its paper (`estimator: curvature`): H learns from measured curvature and not from Δ².

The paper names the equation and leaves it for equation 12, because it takes another evaluation a direction and more
scalars. A client reports central differences g and, after them, second ones:

    c[k,p] = (f(x+μz) + f(x−μz) − 2f(x)) / μ² ≈ zᵀ∇²f z              eq. 11; the printed 2μ² makes half of that
    H      ← (1−ν)H + ν((1/P) Σ_p |c̄[k,p]| H_r u(r,k,p)² + ε)        in the place of eq. 12, with the same k

The measurement and the moving average are the paper's. It does not say by which rule H would learn from c; this one
is that of HiZOO (arXiv:2402.15173; `hizoo`), with HiSo's order (H learns after the step, one H_r for all k), ν, ε and
clip. **Ours**: c is measured along z and not along u, so that g and c need the same directions; H_r undoes that. c is
averaged over clients before its magnitude is taken. For a constant diagonal Hessian A, H comes to rest at (d + 2)·A;
the ratios between its coordinates take some (d + 2)/2ν rounds to settle.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Directions, UpdateRule
from seedbus.algorithms.scalar_only.block import Block, coefficients_of
from seedbus.algorithms.scalar_only.curvature import spread, weighted_squares
from seedbus.algorithms.scalar_only.fields import Estimator
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars, Term
from seedbus.algorithms.schedule import Scheduled, values
from seedbus.vector import Vector


class HiSoCurvature(HiSo):
    """HiSo, whose H may learn from second differences."""

    estimator: Scheduled[Estimator | Literal["curvature"]] = Field(  # type: ignore[assignment]
        default="forward",
        description="as for DeComFL; or curvature, equation 11: central differences, and second ones from the loss at "
        "x, from which H learns in the place of Δ²: 2P + 1 evaluations a step, 2P scalars",
    )

    @model_validator(mode="after")
    def _always_or_never(self) -> Self:
        if not self.has_curvature and "curvature" in values(self.estimator):
            raise ValueError("estimator: curvature is for all rounds; a schedule of the others is accepted")
        return self

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

    def update_rule(self) -> UpdateRule | None:
        return None if self.has_curvature else super().update_rule()

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return the mean and the spread of H; for second differences there is no formula of a spread by chance."""
        return spread(replica.fields["hessian"]) if self.has_curvature else super().diagnostics(replica)
