"""FedDyn: dynamic regularisation that gives all local losses the global stationary point.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama. "Federated Learning Based on Dynamic Regularization",
ICLR 2021, arXiv:2111.04263, Algorithm 1:

    client   min_w  F_i(w) − ⟨h_i, w⟩ + (α/2)‖w − θ‖²;   h_i ← h_i − α(w_i − θ)
    server   h ← h − (α/N) Σ_{i∈C} (w_i − θ),   θ ← mean of w_i − h/α

Each client remembers h_i, and loses it with its state; the server keeps h. N is the number of members. The server
stores s = h/α, and computes s ← s − (1/N) Σ_{i∈C} Δ_i, θ ← θ + η_g Σ ω_i Δ_i − s. In s each report counts once,
whatever its weight and however late it is, since each changes an h_i once; with a rule other than the mean, the rule's
result times |C| is in the place of the sum.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.fedprox import pull
from seedbus.algorithms.dense.methods.method import Local, Method, Server


class FedDyn(Method):
    """FedDyn (arXiv:2111.04263): dynamic regularisation, with one vector of memory at each client."""

    defaults: ClassVar = {"weighting": "uniform"}

    name: Literal["feddyn"] = "feddyn"
    proximal: float = Field(default=0.1, gt=1e-18, lt=1e18, description="α of the proximal term, and of the memory")

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.proximal)
        gradient -= local.remembered("feddyn.h")

    def remember(self, local: Local) -> None:
        local.memory["feddyn.h"] = local.remembered("feddyn.h") - np.float32(self.proximal) * local.update

    def move(self, server: Server) -> bool:
        s = server.vector("feddyn.s")
        s -= np.float32(server.reporters / server.members) * server.moved
        server.x += np.float32(server.plan.server_learning_rate) * server.update
        server.x -= s
        return True
