"""The black-box attack bound to its images: the network is a perturbation before a classifier that nobody trains.

The invariant: the classifier's parameters are none of the problem's, so the vector is the perturbation alone.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from seedbus.models.images.problem import ImageProblem
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.partitions import Partition


class Perturbed(nn.Module):
    """w = tanh⁻¹(2z) [b, 1, 28, 28] → the logits of ½ tanh(w + x), and ‖½ tanh(w + x) − z‖²: [b, classes + 1]."""

    def __init__(self, classifier: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.perturbation = nn.Parameter(torch.zeros(1, 28, 28))
        self._classifier = (classifier,)  # in a tuple, so that its parameters are not this module's
        self._mean, self._deviation = mean, deviation

    def forward(self, inputs: Tensor) -> Tensor:
        images, originals = torch.tanh(inputs + self.perturbation) / 2, torch.tanh(inputs) / 2
        logits = self._classifier[0]((images + 0.5 - self._mean) / self._deviation)
        distortion = (images - originals).square().sum(dim=(1, 2, 3))
        return torch.cat([logits, distortion[:, None]], dim=1)


class AttackProblem(ImageProblem):
    """See `task.Problem`; for one thread. distortion: c of eq. 21, the weight of the squared distance."""

    def __init__(
        self, task: ClassifierSettings, *, distortion: float, seed: int, clients: int, partition: Partition
    ) -> None:
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self._weight = distortion

    def x0(self) -> NDArray[np.float32]:
        """Zeros, whatever the seed: the images as they are."""
        return np.zeros(self.dimension, dtype=np.float32)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean of ψ (eq. 21) over the batch."""
        return self._losses(outputs, labels).mean()

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """ψ, whether the image is taken for another, and the squared distance that it was moved."""
        return {
            "loss": self._losses(outputs, labels),
            "success": _leads(outputs, labels) < 0,
            "distortion": outputs[:, -1],
        }

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return _leads(outputs, labels).clamp(min=0) + self._weight * outputs[:, -1]


def _leads(outputs: Tensor, labels: Tensor) -> Tensor:
    """By how much the label's logit is above all others, [b]."""
    logits = outputs[:, :-1]
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.masked_fill(one_hot(labels, logits.shape[1]).bool(), -torch.inf)
    return own - others.amax(dim=1)
