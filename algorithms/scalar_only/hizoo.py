"""HiZOO: directions are scaled by a diagonal Hessian that every follower learns from measured curvature.

Zhao, Dang, Ye, Dai, Qian, Tsang. "Second-Order Fine-Tuning without Pain for LLMs: A Hessian Informed Zeroth-Order
Optimizer", ICLR 2025, arXiv:2402.15173; the order of operations is that of the authors' code. H is the paper's Σ⁻¹.

    client      z = u / sqrt(H),   g[p] = (f(x+μz) − f(x−μz)) / 2μ,   c[p] = (f(x+μz) + f(x−μz) − 2f(x)) / 2μ²
    server      ḡ, c̄ = mean of g and of c over the cohort, or a robust rule instead
    follower    H ← (1−α)H + α (1/P) Σ_p |c̄[p]| H u[p]²
                x ← x − (η/P) Σ_p ḡ[p] u[p] / sqrt(H)                                 with the H that has just learned

c is half of zᵀ∇²f z, the quantity of HiSo's equation 11. A report and a commit hold P scalars g and then P scalars c,
so HiZOO sends twice as many scalars as DeComFL, and evaluates the loss 2P + 1 times. H is a field of the replica and
is never sent.

The authors' code divides by the root of H, as the paper does, since February 2025 (4f99055, trainer.py); its first
upload (large_models/trainer.py) multiplied by it, so that a larger curvature made larger steps.

H comes to rest where α no longer changes it: for a loss with a constant diagonal Hessian A at H = (d/2 + 1)·A. The
ratios between its coordinates take some (d + 2)/2α rounds to settle. Without curvature H shrinks by 1−α in each round;
**ours**: it stops at 2⁻¹²⁶, the smallest normal float32, and never divides by 0.

**Ours**: clients, of which the paper has one: c is averaged before its magnitude is taken, because that is the
curvature of the mean loss. For P > 1, which is the default, the mean over P is learned at once; the authors' code has
one direction a step. K is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Directions
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block, coefficients_of
from seedbus.algorithms.scalar_only.curvature import spread, weighted_squares
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Term
from seedbus.vector import Vector

LEAST = 2.0**-126
"""The least that H falls to."""


class HiZOO(ScalarOnly):
    """HiZOO (arXiv:2402.15173): directions scaled by a diagonal Hessian that is learned from three evaluations."""

    name: Literal["hizoo"] = "hizoo"
    alpha: float = Field(default=1e-6, gt=0, le=1, description="α, weight of the newest curvature in H")
    local_steps: Literal[1] = Field(default=1, description="K is 1")
    estimator: Literal["curvature"] = Field(  # type: ignore[assignment]
        default="curvature", description="central differences, and second ones from the loss at x: 2P + 1 evaluations"
    )

    @property
    def facts(self) -> Facts:
        # directions are scaled by the H of their round, which the replica no longer has
        return replace(super().facts, takes_late=False)

    def companions(self) -> dict[str, float]:
        return {"hessian": 1.0}

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        return np.sqrt(fields["hessian"], out=out)

    def trained(self, replica: Replica, memory: Any, plan: ScalarPlan, objective: Objective) -> Vector:
        scalars, _ = self.local(replica, memory, plan, objective)
        return self._committed(replica, plan, scalars, plan.learning_rate)  # H learns before x moves

    def _fold(self, block: Block, backend: Directions, commit: ScalarCommit, term: Term) -> None:
        if not term.weight:
            return
        _, weight, rate = commit.effect(term)
        slopes, curvatures = np.split(term.scalars[0], 2)
        real = block.delta.dtype.type
        magnitudes = coefficients_of(np.abs(curvatures), 1.0, real)
        factor = weighted_squares(block, backend, magnitudes, seed=term.seed, step=0)
        np.multiply(factor, real(self.alpha), out=factor)
        np.add(factor, real(1 - self.alpha), out=factor)
        hessian = np.multiply(block.fields["hessian"], factor, out=block.fields["hessian"])
        np.maximum(hessian, real(LEAST), out=hessian)
        sqrt_hessian = self.divisor(block.fields, block.sqrt_hessian)
        weights = coefficients_of(slopes, weight, real)
        backend.accumulate(block.delta, weights, seed=term.seed, step=0, start=block.start, divisor=sqrt_hessian)
        self._step(block, rate)

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        """Return the mean of H, and its spread as a coefficient of variation."""
        return spread(replica.fields["hessian"])
