"""FedZO: local steps along finite differences of the loss, in directions that nobody else knows.

Fang, Yu, Jiang, Shi, Jones, Zhou. "Communication-Efficient Stochastic Zeroth-Order Optimization for Federated
Learning", IEEE TSP 2022, arXiv:2201.09531, Algorithm 1 (seedbus.algorithms.dense.methods.zeroth_order has e):

    w ← w − η·e(w),   H times (`local_steps`);   Δ_i = w − θ goes up, and θ ← θ + mean of Δ_i
"""

from __future__ import annotations

from typing import ClassVar, Literal

from seedbus.algorithms.dense.methods.zeroth_order import ZerothOrder


class FedZO(ZerothOrder):
    """FedZO (arXiv:2201.09531): local steps without gradients, in private directions; models up and down."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 1e-3}

    name: Literal["fedzo"] = "fedzo"
