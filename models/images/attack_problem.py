"""The black-box attack bound to its images: a trainable perturbation in front of a fixed classifier.

The invariant: the classifier's parameters are not parameters of the problem, so the vector x is the perturbation alone.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from seedbus.models.images.problem import ImageProblem
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.partition import Partition


class Perturbed(nn.Module):
    """The classifier applied to perturbed images.

    Maps w = tanh⁻¹(2z) [b, 1, 28, 28] to the logits of ½ tanh(w + x) and the distortion ‖½ tanh(w + x) − z‖²,
    [b, classes + 1].
    """

    def __init__(self, classifier: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.perturbation = nn.Parameter(torch.zeros(1, 28, 28))
        self._classifier = (classifier,)  # in a tuple, so that torch does not register its parameters
        self._mean = mean
        self._deviation = deviation

    def forward(self, inputs: Tensor) -> Tensor:
        images = torch.tanh(inputs + self.perturbation) / 2
        originals = torch.tanh(inputs) / 2
        logits = self._classifier[0]((images + 0.5 - self._mean) / self._deviation)
        distortion = (images - originals).square().sum(dim=(1, 2, 3))
        return torch.cat([logits, distortion[:, None]], dim=1)


class AttackProblem(ImageProblem):
    """Implements `task.Problem`. Not thread-safe.

    Args:
        distortion: c of eq. 21, the weight of the squared distance.
    """

    def __init__(
        self, task: ClassifierSettings, *, distortion: float, seed: int, clients: int, partition: Partition
    ) -> None:
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self._weight = distortion

    @property
    def number_of_classes(self) -> int:
        """0: which class an image has, the classifier says that is attacked."""
        return 0

    def x0(self) -> NDArray[np.float32]:
        """Zeros for every seed: the original images. float32 [d]."""
        return np.zeros(self.dimension, dtype=np.float32)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of ψ (eq. 21) over the batch."""
        return self._losses(outputs, labels).mean()

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return ψ (loss), whether the image is misclassified (success), and the squared distance (distortion), [b]."""
        return {
            "loss": self._losses(outputs, labels),
            "success": _margins(outputs, labels) < 0,
            "distortion": outputs[:, -1],
        }

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return _margins(outputs, labels).clamp(min=0) + self._weight * outputs[:, -1]


def _margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """The label's logit minus the largest other logit, [b]."""
    logits = outputs[:, :-1]
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.masked_fill(one_hot(labels, logits.shape[1]).bool(), -torch.inf)
    return own - others.amax(dim=1)
