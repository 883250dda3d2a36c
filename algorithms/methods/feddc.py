"""FedDC: clients know how far they have drifted, and say so.

Gao, Fu, Li, Chen, Xu, Xu. "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction",
CVPR 2022, arXiv:2203.11751, equations 2–6 and Algorithm 1:

    server → client   θ and ĝ
    client            min_w  F_i(w) + (α/2)‖h_i + w − θ‖² + ⟨w, ĝ_i − ĝ⟩/(ηK)
                      ĝ_i ← w_i − θ,   h_i ← h_i + ĝ_i;   reports w_i + h_i and ĝ_i
    server            θ ← Σ ω_i (w_i + h_i),   ĝ ← mean of ĝ_i

Every client remembers h_i and ĝ_i, and loses them with its state. Two vectors travel down and two up: twice FedAvg's
bytes. The authors' code averages the drifts of all clients, of those who were not asked too; the paper, and this, of
those who report.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.methods.fedprox import pull
from seedbus.algorithms.methods.method import Local, Method, Server


class FedDC(Method):
    """FedDC (arXiv:2203.11751): local drifts that are tracked and corrected, for twice the bytes."""

    name: Literal["feddc"] = "feddc"
    drift_penalty: float = Field(default=0.01, ge=0, lt=1e18, description="α of the penalty on drift")

    @property
    def companions(self) -> dict[str, float]:
        return {"feddc.update": 0.0}

    @property
    def sends(self) -> tuple[str, ...]:
        return ("feddc.update",)

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.drift_penalty)
        gradient += np.float32(self.drift_penalty) * local.remembered("feddc.drift")
        apart = local.remembered("feddc.update") - local.fields["feddc.update"]
        gradient += np.float32(1 / (local.plan.learning_rate * local.steps)) * apart

    def finish(self, local: Local) -> None:
        drift = local.remembered("feddc.drift") + local.update
        local.memory |= {"feddc.update": local.update, "feddc.drift": drift}
        local.sent["feddc.update"] = local.update
        local.update = local.update + drift

    def learn(self, server: Server) -> None:
        server.shared["feddc.update"] = server.sent["feddc.update"]
