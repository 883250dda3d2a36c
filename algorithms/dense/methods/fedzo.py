"""FedZO: local steps along finite differences of the loss, in the client's private directions.

Fang, Yu, Jiang, Shi, Jones, Zhou. "Communication-Efficient Stochastic Zeroth-Order Optimization for Federated
Learning", IEEE TSP 2022, arXiv:2201.09531, Algorithm 1 (e: dense.methods.zeroth_order):

    w ← w − η·e(w),   H times (`local_steps`);   reports Δ_i = w − θ, and θ ← θ + mean of Δ_i
"""

from __future__ import annotations

from typing import ClassVar, Literal

from seedbus.algorithms.dense.methods.zeroth_order import ZerothOrder


class FedZO(ZerothOrder):
    """FedZO (arXiv:2201.09531): local steps without gradients, in private directions; whole models on both links."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 1e-3}

    name: Literal["fedzo"] = "fedzo"
