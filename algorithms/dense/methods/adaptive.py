"""The common part of FedAdam, FedYogi and FedAdagrad: a server step divided by the root of a second moment.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan. "Adaptive Federated Optimization", ICLR 2021,
arXiv:2003.00295, Algorithm 2:

    m ← β₁m + (1 − β₁)Δ,   v ← one of three,   θ ← θ + η_g·m/(√v + τ),   Δ = Σ ω_i Δ_i

with m = 0 and v = τ² before the first commit. Neither m nor v is bias-corrected. In Algorithm 2 all ω_i are
1/|C|: give `weighting: uniform`.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Method, Server


class Adaptive(Method):
    """A method whose server divides its step by √v + τ, coordinate by coordinate."""

    beta1: float = Field(default=0.9, ge=0, lt=1, description="β₁, decay of the mean of updates")
    adaptivity: float = Field(
        default=1e-3, gt=1e-18, lt=1e18, description="τ, added to √v; a large one makes v matter less"
    )

    def move(self, server: Server) -> bool:
        m = server.vector(f"{self.name}.m")
        v = server.vector(f"{self.name}.v", self.adaptivity**2)
        m *= np.float32(self.beta1)
        m += np.float32(1 - self.beta1) * server.update
        self.accumulate(v, np.square(server.update))
        server.x += np.float32(server.plan.server_learning_rate) * m / (np.sqrt(v) + np.float32(self.adaptivity))
        return True

    @abstractmethod
    def accumulate(self, v: Vector, square: Vector) -> None:
        """Update v in place with square = Δ²; both float32 [d]."""
