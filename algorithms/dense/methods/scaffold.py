"""SCAFFOLD: control variates take out of a client's step what is its own.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, arXiv:1910.06378, Algorithm 1 with option II:

    server → client   θ and c
    client            K times: w ← w − η(g − c_i + c)
                      c_i⁺ = c_i − c + (θ − w_i)/(ηK);   reports w_i − θ and Δc_i = c_i⁺ − c_i;   c_i ← c_i⁺
    server            θ ← θ + η_g·mean of (w_i − θ),   c ← c + (|C|/N)·mean of Δc_i

Every client remembers c_i, and loses it with its state; N is how many members there are. Two vectors travel down and
two up: twice FedAvg's bytes. The correction comes after clipping, weight decay and momentum, so that c_i⁺ is the mean
of what these made of the gradients.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method, Server


class ControlVariates(Method):
    """c_i and c, whatever else a method does."""

    defaults: ClassVar = {"weighting": "uniform"}

    @property
    def variate(self) -> str:
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
        steps = np.float32(-1 / (local.plan.learning_rate * local.steps))
        change = steps * local.update - local.fields[self.variate]
        local.memory[self.variate] = local.remembered(self.variate) + change
        local.sent[self.variate] = change

    def learn(self, server: Server) -> None:
        server.shared[self.variate] += np.float32(server.reporters / server.members) * server.sent[self.variate]


class Scaffold(ControlVariates):
    """SCAFFOLD (arXiv:1910.06378): control variates of the clients and of the server, for twice the bytes."""

    name: Literal["scaffold"] = "scaffold"
