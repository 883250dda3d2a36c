"""FedDecorr: a penalty that keeps features from collapsing into few dimensions.

Shi, Liang, Zhang, Tan, Bai. "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
Learning", ICLR 2023, arXiv:2210.00226, equation 4:

    L + (β/d²)‖K‖²_F,   K: the correlation matrix, [d, d], of the batch's features
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.objective import Outputs

EPSILON = 1e-8  # added to variances: a feature may be constant over a batch


class FedDecorr(Method):
    """FedDecorr (arXiv:2210.00226): a penalty on correlated features."""

    name: Literal["feddecorr"] = "feddecorr"
    decorrelation: float = Field(default=0.01, ge=0, lt=1e37, description="β of the penalty; the paper uses 0.1")

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        features = outputs.features
        samples, dimension = features.shape
        if samples < 2:  # one sample has no correlations
            return loss
        centred = features - features.mean(dim=0)
        scaled = centred / (centred.square().mean(dim=0) + EPSILON).sqrt()
        # ‖SᵀS‖ = ‖SSᵀ‖; the smaller of the two products is taken
        product = scaled @ scaled.T if samples < dimension else scaled.T @ scaled
        return loss + self.decorrelation * (product / samples).square().sum() / dimension**2
