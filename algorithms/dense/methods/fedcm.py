"""FedCM: each local step mixes the gradient with the direction of the last global update.

Xu, Wang, Wang, Yao. "FedCM: Federated Learning with Client-level Momentum", arXiv:2106.10874, Algorithm 1:

    server → client   θ and Δ_t
    client            K times: w ← w − η(α·g + (1 − α)·Δ_t)
    server            Δ_{t+1} = −(1/(ηK))·Σ ω_i Δ_i/Σ ω_i,   θ ← θ + η_g Σ ω_i Δ_i

Δ_t is a mean, also where late reports make Σ ω_i another number than 1: clients add (1 − α)·Δ_t to each step, so a sum
with more weight than 1/(1 − α) would grow from round to round without end. Where late reports answer plans with another
η, it is −(1/K)·Σ ω_i Δ_i/Σ ω_i η_i: still a mean of gradients, with the weights ω_i η_i.
In the paper all ω_i are 1/|C|: give `weighting: uniform`. g is the gradient after clipping, weight decay and momentum,
of which Algorithm 1 has none, so α scales these too. Δ_t is a second vector on the downlink. It is sent without the
factor 1/K; each client divides by its own K, since with epochs only the client knows its number of steps. With α = 1 it
is FedAvg to the bit.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method, Server


class FedCM(Method):
    """FedCM (arXiv:2106.10874): momentum at the client, for a second vector on the downlink."""

    name: Literal["fedcm"] = "fedcm"
    gradient_share: float = Field(
        default=0.1, gt=0, le=1, description="α, weight of the gradient; 1 − α is the weight of the last direction"
    )

    @property
    def companions(self) -> dict[str, float]:
        return {"fedcm.direction": 0.0}

    def direct(self, direction: Vector, local: Local) -> None:
        if self.gradient_share < 1:
            direction *= np.float32(self.gradient_share)
            direction += np.float32((1 - self.gradient_share) / local.steps) * local.fields["fedcm.direction"]

    def learn(self, server: Server) -> None:
        mean = server.update / np.float32(server.weight)
        server.shared["fedcm.direction"] = mean * np.float32(-1 / server.rate)
