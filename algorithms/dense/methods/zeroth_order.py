"""The common part of methods without gradients: FedZO's estimator, which uses losses only.

Fang et al. 2022, arXiv:2201.09531, equation 2 (seedbus.algorithms.dense.methods.fedzo):

    e(x) = (1/(b₁b₂)) Σ_m Σ_n (d/μ)(F(x + μv_n; ξ_m) − F(x; ξ_m))·v_n,   v_n uniform on the unit sphere

b₁ is the task's batch size. On a sphere of radius √d, as in DeComFL's Theorem 2 (arXiv:2405.15861), the factor is 1/μ:
E[vvᵀ] is the identity there, and 1/d of it on the unit sphere, so a μ that is √d times smaller gives the same e. The
estimator `central` has (F(x + μv) − F(x − μv))/2 instead of F(x + μv) − F(x).

v is a vector of the gaussian stream, keyed by client, round, step and n, divided by its norm, which is computed in
float64.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.aggregation.vectors import norms
from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.directions import Kind, directions_for


class ZerothOrder(Method):
    """Local steps along gradient estimates from losses, in the client's private directions."""

    directions: ClassVar[Kind] = "gaussian"

    perturbations: int = Field(default=20, ge=1, lt=2**16, description="b₂, directions a step")
    smoothing: float = Field(default=1e-3, gt=1e-37, lt=1e37, description="μ, step of the finite differences")
    estimator: Literal["forward", "central"] = Field(
        default="forward", description="F(x + μv) against F(x), or against F(x − μv)"
    )
    sphere: Literal["unit", "sqrt-d"] = Field(default="unit", description="radius of v's sphere: 1 or √d")

    @property
    def evaluations(self) -> int:
        return self.perturbations + 1 if self.estimator == "forward" else 2 * self.perturbations

    def estimation_point(self, local: Local) -> Vector:
        """Return the point at which the gradient is estimated, float32 [d]; read-only."""
        return local.x

    def estimate(self, local: Local) -> Vector:
        radius = 1.0 if self.sphere == "unit" else math.sqrt(local.x.size)
        factor = local.x.size / (radius * radius * self.smoothing * self.perturbations)
        x = self.estimation_point(local)
        total = np.zeros_like(local.x)
        z = np.empty_like(local.x)
        base_loss = _loss(local, x, z, 0.0) if self.estimator == "forward" else 0.0
        for n in range(self.perturbations):
            directions_for(self.directions, z).fill(z, seed=local.objective.key, step=local.step, perturbation=n)
            length = radius / norms([z])[0]  # v = length·z
            perturbed_loss = _loss(local, x, z, self.smoothing * length)
            if self.estimator == "forward":
                difference = perturbed_loss - base_loss
            else:
                difference = (perturbed_loss - _loss(local, x, z, -self.smoothing * length)) / 2
            z *= np.float32(factor * difference * length)
            total += z
        return total


def _loss(local: Local, x: Vector, z: Vector, scale: float) -> float:
    """Return F(x + scale·z) on the step's mini-batch."""
    point = local.objective.point
    if scale:
        np.multiply(z, np.float32(scale), out=point)
        point += x
    else:
        np.copyto(point, x)
    return local.objective.loss(local.step)
