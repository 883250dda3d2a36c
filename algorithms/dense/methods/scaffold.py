"""SCAFFOLD: control variates correct the drift of each client's steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, arXiv:1910.06378, Algorithm 1 with option II:

    server → client   θ and c
    client            K times: w ← w − η(g − c_i + c)
                      c_i⁺ = c_i − c + (θ − w_i)/(ηK);   reports w_i − θ and Δc_i = c_i⁺ − c_i;   c_i ← c_i⁺
    server            θ ← θ + η_g·mean of (w_i − θ),   c ← c + (|C|/N)·mean of Δc_i

Each client remembers c_i, and loses it with its state; N is the number of members. Two vectors travel in each
direction: twice FedAvg's bytes. The correction is added after clipping, weight decay and momentum, so c_i⁺ is the mean
of the gradients as these have changed them.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method, Server


class ControlVariates(Method):
    """The control variates c_i and c, for methods that use them."""

    defaults: ClassVar = {"weighting": "uniform"}

    @property
    def variate(self) -> str:
        """The name of c, and of c_i in a client's memory."""
        return f"{self.name}.c"

    @property
    def companions(self) -> dict[str, float]:
        return {self.variate: 0.0}

    @property
    def sends(self) -> tuple[str, ...]:
        return (self.variate,)

    def direct(self, direction: Vector, local: Local) -> None:
        direction -= local.remembered(self.variate)
        direction += local.fields[self.variate]

    def finish(self, local: Local) -> None:
        scale = np.float32(-1 / (local.plan.learning_rate * local.steps))
        moved = local.x - local.start  # and not `update`, which another method, as FedNova, may have divided
        local.sent[self.variate] = scale * moved - local.fields[self.variate]

    def remember(self, local: Local) -> None:
        local.memory[self.variate] = local.remembered(self.variate) + local.sent[self.variate]

    def learn(self, server: Server) -> None:
        server.shared[self.variate] += np.float32(server.reporters / server.members) * server.sent[self.variate]


class Scaffold(ControlVariates):
    """SCAFFOLD (arXiv:1910.06378): control variates at clients and server, for twice the bytes."""

    name: Literal["scaffold"] = "scaffold"
