"""DZOPA: each client keeps a model of its own, takes an estimate there, and steps along it from the mean of all models.

Yi, Zhang, Yang, Chai, Johansson. "Zeroth-Order Algorithms for Stochastic Distributed Nonconvex Optimization",
arXiv:2106.02958, the primal algorithm, as FedZO's authors use it as a baseline (arXiv:2201.09531, §V-A): on a
fully connected graph, with their estimator e (dense.methods.zeroth_order), one step between two exchanges:

    x_i ← x̄ − η·e_i(x_i),   x̄: the mean of all x_j before the step

They state η and μ only. **Ours**: the graph's weights are 1/N each, so one exchange reaches full consensus. The server
replaces the graph: it holds x̄ and adds the mean of x_i − x̄. x_i is client memory, and a client without one starts at
x̄. All clients should take part in every round: one that does not keeps its x_i, and x̄ becomes the mean over those that
did, and not over all. If there are several local steps, those after the first are FedZO's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local
from seedbus.algorithms.dense.methods.zeroth_order import ZerothOrder

OWN_MODEL = "dzopa.x"


class Dzopa(ZerothOrder):
    """DZOPA (arXiv:2106.02958): consensus of the clients' models, and a zeroth-order step of each; FedZO's baseline."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 5e-3, "local_steps": 1}

    name: Literal["dzopa"] = "dzopa"

    def estimation_point(self, local: Local) -> Vector:
        return local.memory.get(OWN_MODEL, local.start) if local.step == 0 else local.x

    def finish(self, local: Local) -> None:
        local.memory[OWN_MODEL] = local.x.copy()
