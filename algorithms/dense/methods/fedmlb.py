"""FedMLB: features of the local early blocks must suit the later blocks of the global model.

Kim, Kim, Han. "Multi-Level Branched Regularization for Federated Learning", ICML 2022, arXiv:2207.06936, equations 3–7.
A hybrid path leaves the local network after block n, and continues through the later blocks of the model as it was
received, which are frozen. With the mean over all n but the last block:

    L = CE(q, y) + λ₁·mean_n CE(q_n, y) + λ₂·mean_n KL(q_n ‖ q)

The gradient passes through the frozen blocks to the local ones before them. What these passes cost depends on the
network's blocks, which the method does not know: simulated time is without them, and forward passes are not counted.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.objective import Outputs


class FedMLB(Method):
    """FedMLB (arXiv:2207.06936): hybrid paths of local early and global later blocks."""

    extra_passes: ClassVar[int | None] = None

    name: Literal["fedmlb"] = "fedmlb"
    hybrid: float = Field(default=1.0, ge=0, lt=1e37, description="λ₁, weight of the hybrid paths' cross-entropy")
    likeness: float = Field(
        default=1.0, ge=0, lt=1e37, description="λ₂, weight of the divergence from the hybrid paths"
    )

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        from torch.nn.functional import nll_loss

        own = outputs.logits.log_softmax(dim=1)
        paths = [
            local.objective.through(hidden, number, local.start).log_softmax(dim=1)
            for number, hidden in enumerate(outputs.hidden)
        ]
        for path in paths:
            divergence = (path.exp() * (path - own)).sum(dim=1).mean()
            loss = loss + (self.hybrid * nll_loss(path, outputs.labels) + self.likeness * divergence) / len(paths)
        return loss
