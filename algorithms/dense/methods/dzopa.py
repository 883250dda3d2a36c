"""DZOPA: every client has a model of its own, and steps from the mean of all along an estimate taken at its own.

Yi, Zhang, Yang, Chai, Johansson. "Zeroth-Order Algorithms for Stochastic Distributed Nonconvex Optimization",
arXiv:2106.02958, the primal algorithm, as FedZO's authors compare it with theirs (arXiv:2201.09531, §V-A): in a fully
connected graph, with their estimator e (seedbus.algorithms.dense.methods.zeroth_order), one step between two exchanges:

    x_i ← x̄ − η·e_i(x_i),   x̄: the mean of all x_j as they were

They give η and μ alone. **Ours**: the graph's weights are 1/N each, so one exchange is complete consensus. The server
stands for the graph: it holds x̄ and adds the mean of x_i − x̄. x_i is client memory, and who has none begins at x̄. All
clients are meant to take part in every round; who does not stays at its x_i. With more local steps than one, those
after the first are FedZO's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local
from seedbus.algorithms.dense.methods.zeroth_order import ZerothOrder

OWN = "dzopa.x"


class Dzopa(ZerothOrder):
    """DZOPA (arXiv:2106.02958): consensus of the clients' models and a zeroth-order step of each; FedZO's baseline."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 5e-3, "local_steps": 1}

    name: Literal["dzopa"] = "dzopa"

    def place(self, local: Local) -> Vector:
        return local.memory.get(OWN, local.start) if local.step == 0 else local.x

    def finish(self, local: Local) -> None:
        local.memory[OWN] = local.x.copy()
