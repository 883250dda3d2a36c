"""FedAdagrad: Adagrad at the server.

Reddi et al. "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2 (its common part
is in dense.methods.adaptive):

    v ← v + Δ²

Like Adagrad, it has no momentum unless beta1 is given.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.adaptive import Adaptive


class FedAdagrad(Adaptive):
    """FedAdagrad (arXiv:2003.00295): the server's step is Adagrad's."""

    defaults: ClassVar = {"server_learning_rate": 0.1}

    name: Literal["fedadagrad"] = "fedadagrad"
    beta1: float = Field(default=0.0, ge=0, lt=1, description="β₁, decay of the mean of updates")

    def accumulate(self, v: Vector, square: Vector) -> None:
        v += square
