"""FedNTD: distillation of the global model's outputs for all classes but the true one.

Lee, Jeong, Shin, Bae, Yun. "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning",
NeurIPS 2022, arXiv:2106.03097, equations 2–4:

    L = CE(q, y) + β·KL(q̃_g ‖ q̃),    q̃_c = e^{f_c/τ} / Σ_{c' ≠ y} e^{f_c'/τ}   for c ≠ y

q̃_g: q̃ of the model as the client received it, without a gradient. The authors' code multiplies the divergence by τ²,
which the equations do not; at τ = 1, their setting and the default, it is the same.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from seedbus.algorithms.dense.methods.method import Local, Method
from seedbus.algorithms.objective import Outputs


class FedNTD(Method):
    """FedNTD (arXiv:2106.03097): distillation of the not-true classes."""

    extra_passes: ClassVar[int | None] = 1  # through the model as received

    name: Literal["fedntd"] = "fedntd"
    distillation: float = Field(default=1.0, ge=0, lt=1e37, description="β, weight of the distillation")
    temperature: float = Field(default=1.0, gt=0, lt=1e37, description="τ of both softmaxes")

    def loss(self, loss: Any, outputs: Outputs, local: Local) -> Any:
        received = local.outputs(local.start)
        student, teacher = (self._not_true(each.logits, outputs.labels) for each in (outputs, received))
        divergence = (teacher.exp() * (teacher - student)).sum(dim=1).mean()
        return loss + self.distillation * divergence

    def _not_true(self, logits: Any, labels: Any) -> Any:
        """Return log q̃ of logits [b, classes], for all classes but the label's; [b, classes − 1]."""
        count = logits.shape[1]
        others = (labels[:, None] + 1 + labels.new_tensor(range(count - 1))[None, :]) % count
        return (logits.gather(1, others) / self.temperature).log_softmax(dim=1)
