"""FedACG: clients start from a lookahead point, the model moved along the server's momentum.

Kim, Kim, Han. "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR 2024,
arXiv:2201.03172, Algorithm 1:

    server → client   θ + λm
    client            min_w  F_i(w) + (β/2)‖w − (θ + λm)‖²;   Δ_i = w_K − (θ + λm)
    server            m ← λm + Σ ω_i Δ_i,   θ ← θ + m

θ is the model that is evaluated. With λ = β = 0 it is FedAvg to the bit. The authors' code has no ½ in the proximal
term: its 1e-3 is β = 2e-3 here. A server's rate η_g, which is 1 in the paper, scales θ's steps: θ ← θ + η_g·m, and
clients are sent θ + λη_g·m, so that the new θ is still the lookahead point moved by the scaled update, as in §3.3.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.fedavgm import advance
from seedbus.algorithms.dense.methods.fedprox import pull
from seedbus.algorithms.dense.methods.method import Local, Method, Server


class FedACG(Method):
    """FedACG (arXiv:2201.03172): the server sends a lookahead point, so momentum costs no extra bytes."""

    name: Literal["fedacg"] = "fedacg"
    lookahead: float = Field(default=0.85, ge=0, lt=1, description="λ, the momentum and the length of the lookahead")
    proximal: float = Field(
        default=0.01, ge=0, lt=1e37, description="β of the proximal term around the lookahead point"
    )

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.proximal)

    def move(self, server: Server) -> bool:
        advance(server, "fedacg.m", self.lookahead)
        return True

    def ahead(self, x: Vector, server: Server) -> Vector:
        length = np.float32(self.lookahead * server.plan.server_learning_rate)
        return x + length * server.vector("fedacg.m")
