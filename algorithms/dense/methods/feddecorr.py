"""FedDecorr: a penalty that keeps features from collapsing into few dimensions.

Shi, Liang, Zhang, Tan, Bai. "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
Learning", ICLR 2023, arXiv:2210.00226, equation 4:

    L + (β/d²)‖K‖²_F,   K: the correlation matrix, [d, d], of the batch's features          normalisation: paper

The authors' code, and FedACG's after it, do not divide the matrix by the number n of samples, and its square by n once:

    L + β (n−1)²/(n d(d−1)) Σ_{i≠j} K_ij²                                                     normalisation: code

For the same β that is about n times as much: 18 times at n = 20, 48 at 50. Published results, and their β of 0.1 and
0.01, are of the code. The default is the equation, which means the same for every batch size.
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
    normalisation: Literal["paper", "code"] = Field(
        default="paper",
        description="equation 4, or the authors' code: about as many times larger as a batch has samples",
    )

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        features = outputs.features
        samples, dimension = features.shape
        is_code = self.normalisation == "code"
        if samples < 2 or (is_code and dimension < 2):  # one sample has no correlations, nor has one feature
            return loss
        centred = features - features.mean(dim=0)
        variances = centred.square().sum(dim=0) / (samples - 1 if is_code else samples)
        scaled = centred / (variances + EPSILON).sqrt()
        # ‖SᵀS‖ = ‖SSᵀ‖; the smaller of the two products is taken
        product = scaled @ scaled.T if samples < dimension else scaled.T @ scaled
        if not is_code:
            return loss + self.decorrelation * (product / samples).square().sum() / dimension**2
        diagonal = scaled.square().sum(dim=0).square().sum()
        mean = (product.square().sum() - diagonal) / (dimension * (dimension - 1))
        return loss + self.decorrelation * mean / samples
