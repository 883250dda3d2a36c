"""FedAvgM: momentum at the server.

Hsu, Qi, Brown. "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
arXiv:1909.06335, section 4.3:

    m ← βm + Δ,   θ ← θ + η_g·m,   Δ = Σ ω_i Δ_i
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.dense.methods.method import Method, Server


class FedAvgM(Method):
    """FedAvgM (arXiv:1909.06335): averaging with server momentum."""

    name: Literal["fedavgm"] = "fedavgm"
    server_momentum: float = Field(default=0.4, ge=0, lt=1, description="β of the server's momentum")

    def move(self, server: Server) -> bool:
        advance(server, "fedavgm.m", self.server_momentum)
        return True


def advance(server: Server, name: str, momentum: float) -> None:
    """Update momentum and model in place: m ← βm + Δ, θ ← θ + η_g·m.

    Args:
        server: the server's part of the round.
        name: name of m among the server's own vectors.
        momentum: β.
    """
    m = server.vector(name)
    m *= np.float32(momentum)
    m += server.update
    server.x += m * np.float32(server.plan.server_learning_rate)
