"""FedDC: each client tracks its drift from the global model, and corrects for it.

Gao, Fu, Li, Chen, Xu, Xu. "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction",
CVPR 2022, arXiv:2203.11751, equations 2–6 and Algorithm 1, in the form of the authors' code:

    server → client   θ and c
    client            min_w  F_i(w) + (α/2)‖h_i + w − θ‖² + ⟨w, c − c_i⟩;   h_i ← h_i + (w_i − θ),
                      c_i⁺ = c_i − c + (θ − w_i)/(ηK);   reports w_i − θ and Δc_i = c_i⁺ − c_i;   c_i ← c_i⁺
    server            θ ← mean of w_i + (1/N) Σ_j h_j,   c ← c + (|C|/N)·mean of Δc_i

Each client remembers h_i and c_i, and loses them with its state; N is the number of members. A client reports the
change of h_i, so the server knows the sum of all h_i. Two vectors travel in each direction: twice FedAvg's bytes.

The paper's equations differ from the code in two places. Their correction is (ĝ_i − ĝ)/(ηK) with ĝ_i = w_i − θ, the
client's last update: a deviation δ of ĝ_i from the mean becomes −δ after the client's next round, and never decays. And
they average w_i + h_i over the clients that report, which equals the code's mean if all clients report; otherwise the
drifts of a few count for all. The code weights α and the variates by a client's number of samples, and adds the
correction before gradients are clipped; here all clients count equally, and it is added after clipping and momentum.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.fedprox import pull
from seedbus.algorithms.dense.methods.method import Local, Server
from seedbus.algorithms.dense.methods.scaffold import ControlVariates


class FedDC(ControlVariates):
    """FedDC (arXiv:2203.11751): local drifts are tracked and corrected, for twice the bytes."""

    name: Literal["feddc"] = "feddc"
    proximal: float = Field(default=0.01, ge=0, lt=1e18, description="α of the proximal term around θ − h_i")

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.proximal)
        gradient += np.float32(self.proximal) * local.remembered("feddc.h")

    def remember(self, local: Local) -> None:
        super().remember(local)
        local.memory["feddc.h"] = local.remembered("feddc.h") + local.update

    def move(self, server: Server) -> bool:
        drift = server.vector("feddc.h")
        drift += np.float32(server.reporters / server.members) * server.moved
        server.x += np.float32(server.plan.server_learning_rate) * server.update
        server.x += drift
        return True
