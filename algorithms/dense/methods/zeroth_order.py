"""What methods without gradients share: FedZO's estimator, out of losses alone.

Fang et al. 2022, arXiv:2201.09531, equation 4 (seedbus.algorithms.dense.methods.fedzo):

    e(x) = (1/(b₁b₂)) Σ_m Σ_n (d/μ)(F(x + μv_n; ξ_m) − F(x; ξ_m))·v_n,   v_n uniform on the unit sphere

b₁ is the task's batch size. On a sphere of radius √d, as in DeComFL's Theorem 2 (arXiv:2405.15861), the factor is 1/μ:
E[vvᵀ] is 1 there, and 1/d on the unit sphere, so the same e comes out of a μ that is √d times as small. `central` takes
(F(x + μv) − F(x − μv))/2 in the place of F(x + μv) − F(x).

v is a vector of the gaussian stream, keyed by client, round, step and n, over its norm, which is taken in float64.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.aggregation.vectors import lengths
from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.directions import directions


class ZerothOrder(Method):
    """Steps along estimates that are made of losses, in directions that are the client's own."""

    perturbations: int = Field(default=20, ge=1, lt=2**16, description="b₂, directions of a step")
    smoothing: float = Field(default=1e-3, gt=1e-37, lt=1e37, description="μ, step of the finite differences")
    estimator: Literal["forward", "central"] = Field(
        default="forward", description="F(x + μv) against F(x), or against F(x − μv)"
    )
    sphere: Literal["unit", "sqrt-d"] = Field(default="unit", description="radius of the sphere that v is on: 1 or √d")

    @property
    def evaluations(self) -> int:
        return self.perturbations + 1 if self.estimator == "forward" else 2 * self.perturbations

    def place(self, local: Local) -> Vector:
        """Where the estimate is taken, [d]; not to be written to."""
        return local.x

    def estimate(self, local: Local) -> Vector:
        radius = 1.0 if self.sphere == "unit" else math.sqrt(local.x.size)
        factor = local.x.size / (radius * radius * self.smoothing * self.perturbations)
        x, found, z = self.place(local), np.zeros_like(local.x), np.empty_like(local.x)
        here = _loss(local, x, z, 0.0) if self.estimator == "forward" else 0.0
        for n in range(self.perturbations):
            directions("gaussian").fill(z, seed=local.objective.key, step=local.step, perturbation=n)
            length = radius / lengths([z])[0]  # v = length·z
            there = _loss(local, x, z, self.smoothing * length)
            if self.estimator == "forward":
                difference = there - here
            else:
                difference = (there - _loss(local, x, z, -self.smoothing * length)) / 2
            z *= np.float32(factor * difference * length)
            found += z
        return found


def _loss(local: Local, x: Vector, z: Vector, scale: float) -> float:
    """F(x + scale·z) on the step's mini-batch."""
    point = local.objective.point
    if scale:
        np.multiply(z, np.float32(scale), out=point)
        point += x
    else:
        np.copyto(point, x)
    return local.objective.loss(local.step)
