"""FedDC: clients know how far they have drifted, and say so.

Gao, Fu, Li, Chen, Xu, Xu. "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction",
CVPR 2022, arXiv:2203.11751, equations 2–6 and Algorithm 1, as the authors' code has them:

    server → client   θ and c
    client            min_w  F_i(w) + (α/2)‖h_i + w − θ‖² + ⟨w, c − c_i⟩;   h_i ← h_i + (w_i − θ),
                      c_i⁺ = c_i − c + (θ − w_i)/(ηK);   reports w_i − θ and Δc_i = c_i⁺ − c_i;   c_i ← c_i⁺
    server            θ ← mean of w_i + (1/N) Σ_j h_j,   c ← c + (|C|/N)·mean of Δc_i

Every client remembers h_i and c_i, and loses them with its state; N is how many members there are. What a client
reports is what h_i grew by, so the server knows the sum of all. Two vectors travel either way: twice FedAvg's bytes.

The paper's equations differ in two places. Their correction is (ĝ_i − ĝ)/(ηK) with ĝ_i = w_i − θ, the client's last
update as it was: a deviation δ of ĝ_i from the mean is a − δ after the client's next round, which never dies away. And
they average w_i + h_i over those who report, which is the code's mean when everybody does and counts a few drifts for
all of them otherwise. The code weighs α and the variates by how many samples a client has, and adds the correction
before gradients are clipped; here all clients count alike, and it comes after clipping and momentum.
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
    """FedDC (arXiv:2203.11751): local drifts that are tracked and corrected, for twice the bytes."""

    name: Literal["feddc"] = "feddc"
    drift_penalty: float = Field(default=0.01, ge=0, lt=1e18, description="α of the penalty on drift")

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.drift_penalty)
        gradient += np.float32(self.drift_penalty) * local.remembered("feddc.h")

    def finish(self, local: Local) -> None:
        super().finish(local)
        local.memory["feddc.h"] = local.remembered("feddc.h") + local.update

    def move(self, server: Server) -> bool:
        drift = server.vector("feddc.h")
        drift += np.float32(server.reporters / server.members) * server.update
        server.x += np.float32(server.plan.server_learning_rate) * server.update
        server.x += drift
        return True
