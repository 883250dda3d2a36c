"""MOON: a contrastive loss draws features to the global model's, and away from those of the client's previous model.

Li, He, Song. "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257, equations 3–4:

    L + μ·( −log( e^{s(q, q_glob)/T} / (e^{s(q, q_glob)/T} + e^{s(q, q_prev)/T}) ) ),   s: cosine

q: features of a sample under the local model; q_glob: under the model as received; q_prev: under the client's own model
at the end of its previous round. In a client's first round there is no q_prev, and the term is left out: for
q_prev = q_glob its gradient would be 0. Features are the input of the network's last layer. The paper's networks have a
projection head of two layers before it; those of the tasks here have none.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.objective import Outputs

PREVIOUS = "moon.previous"


class Moon(Method):
    """MOON (arXiv:2103.16257): contrastive learning between models; clients remember their previous one."""

    extra_passes: ClassVar[int | None] = 2  # through the model as received and the previous one, from round 1 on

    name: Literal["moon"] = "moon"
    contrast: float = Field(default=1.0, ge=0, lt=1e37, description="μ, weight of the contrastive term")
    temperature: float = Field(default=0.5, gt=0, lt=1e37, description="T of the contrastive term")

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        own = outputs.features  # read in the first round too: a network without any is refused at once
        if PREVIOUS not in local.memory:
            return loss
        from torch.nn.functional import cosine_similarity, softplus

        near, far = (
            cosine_similarity(own, local.outputs(at).features, dim=1) / self.temperature
            for at in (local.start, local.memory[PREVIOUS])
        )
        return loss + self.contrast * softplus(far - near).mean()  # −log(eᵃ/(eᵃ + eᵇ)) = log(1 + e^{b−a})

    def finish(self, local: Local) -> None:
        local.memory[PREVIOUS] = local.x.copy()
