"""FedYogi: Yogi at the server, whose v changes by at most (1 − β₂)Δ² a step.

Reddi et al. "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2 (its common part
is in dense.methods.adaptive):

    v ← v − (1 − β₂)Δ²·sign(v − Δ²)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.adaptive import Adaptive


class FedYogi(Adaptive):
    """FedYogi (arXiv:2003.00295): the server's step is Yogi's."""

    defaults: ClassVar = {"server_learning_rate": 0.01}

    name: Literal["fedyogi"] = "fedyogi"
    beta2: float = Field(default=0.99, ge=0, lt=1, description="β₂; v changes by (1 − β₂)Δ²")

    def accumulate(self, v: Vector, square: Vector) -> None:
        v -= np.float32(1 - self.beta2) * square * np.sign(v - square)
