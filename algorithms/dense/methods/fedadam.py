"""FedAdam: Adam at the server.

Reddi et al. "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2 (its common part
is in dense.methods.adaptive):

    v ← β₂v + (1 − β₂)Δ²
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.adaptive import Adaptive


class FedAdam(Adaptive):
    """FedAdam (arXiv:2003.00295): the server's step is Adam's."""

    defaults: ClassVar = {"server_learning_rate": 0.01}

    name: Literal["fedadam"] = "fedadam"
    beta2: float = Field(default=0.99, ge=0, lt=1, description="β₂, decay of the mean of squared updates")

    def accumulate(self, v: Vector, square: Vector) -> None:
        v *= np.float32(self.beta2)
        v += np.float32(1 - self.beta2) * square
