"""FedProx: local losses with a proximal term around the global model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated Optimization in Heterogeneous Networks", MLSys 2020,
arXiv:1812.06127, equation 2:

    h_i(w; θ) = F_i(w) + (β/2)‖w − θ‖²,   so   ∇h_i = ∇F_i(w) + β(w − θ)

The paper draws clients in proportion to their samples, and takes the plain mean of their models (Algorithm 2). Here
`participation` draws them, and the mean is weighted by samples unless `weighting` is uniform.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method


class FedProx(Method):
    """FedProx (arXiv:1812.06127): a proximal term in the local loss."""

    name: Literal["fedprox"] = "fedprox"
    proximal: float = Field(default=1e-3, ge=0, lt=1e37, description="β (the paper's μ) of the proximal term")

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, self.proximal)


def pull(gradient: Vector, local: Local, strength: float) -> None:
    """Add strength·(w − θ) to a gradient [d] in place; nothing for strength 0."""
    if strength:
        distance = local.x - local.start
        distance *= np.float32(strength)
        gradient += distance
