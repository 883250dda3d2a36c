"""FedLC: logits calibrated by how many samples of each class a client holds.

Zhang, Li, Li, Xu, Wu, Ding, Wu. "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022,
arXiv:2209.00189, equation 7:

    L(y; f) = −log( e^{f_y − τ n_y^{−1/4}} / Σ_c e^{f_c − τ n_c^{−1/4}} )

The sum is over all classes, the label's too: a softmax, as in FedACG's code and in the library fluke. Whether the
paper's own sum leaves the label out was not checked against its text.

n_c: number of the client's samples of class c. For n_c = 0, n_c^{−1/4} = ∞ and the class drops out of the sum.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.dense.methods.method import Local, Method


class FedLC(Method):
    """FedLC (arXiv:2209.00189): a margin for each class in the local cross-entropy."""

    name: Literal["fedlc"] = "fedlc"
    margin: float = Field(default=1.0, gt=0, lt=1e37, description="τ, the scale of the margins n_c^{−1/4}")

    def logits(self, logits: Any, local: Local) -> Any:
        counts = local.objective.counts()
        per_class = np.zeros(logits.shape[1])
        per_class[: counts.size] = counts
        with np.errstate(divide="ignore"):
            margins = self.margin * per_class**-0.25  # ∞ for a class without samples
        return logits - logits.new_tensor(margins.tolist())
