"""The federated black-box attack of FedZO (Fang et al. 2022, §V-A, eq. 21): one perturbation that misleads a network.

All clients seek one x, added to their images in the space of tanh, such that the classifier takes them for others:

    z̃ = ½ tanh(tanh⁻¹(2z) + x)        ψ(x) = max(Φ_y(z̃) − max_{j≠y} Φ_j(z̃), 0) + c ‖z̃ − z‖²

z is an image with pixels from −½ to ½, y its class. The samples are the images that the classifier tells rightly, of
one class as in the paper or of all. **Ours**: Φ are the network's logits, as in Carlini & Wagner 2017, whose
differences are those of log-confidences; 2z is scaled by `reach`, for black and white would be at infinity (and the
distance is from the image that this leaves); x begins at zero; and the classifier is a small CNN for (Fashion-)MNIST
where the paper has one for CIFAR-10. It is trained when the task first needs it (see `classifier`); how it was trained
is no part of what clients know.

The paper's clients hold random numbers of samples: `partition: {kind: dirichlet, alpha: 1, balanced: false}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.images.mnist_task import MnistTask
from seedbus.models.images.task import ClassifierTask
from seedbus.models.partitions import Partition
from seedbus.models.task import Problem
from seedbus.models.tasks.mnist import FashionMnist, Mnist

if TYPE_CHECKING:
    from torch import nn

_PIXELS = 28 * 28
_SETS: dict[str, MnistTask] = {"fashion-mnist": FashionMnist(), "mnist": Mnist()}


class BlackboxAttack(ClassifierTask, frozen=True):
    """One perturbation of 784 pixels that misleads a trained classifier (FedZO, eq. 21)."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "success", "distortion")
    has_outputs: ClassVar[bool] = False

    name: Literal["blackbox-attack"] = "blackbox-attack"
    batch_size: int = Field(25, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    images: Literal["fashion-mnist", "mnist"] = Field("fashion-mnist", description="whose classifier is attacked")
    label: int | None = Field(4, ge=0, le=9, description="the class whose images are perturbed; null: all classes")
    distortion: float = Field(1.0, ge=0, le=1e6, description="c, the weight of the squared distance from the image")
    reach: float = Field(0.999999, gt=0, lt=1, description="what 2z is scaled by before tanh⁻¹")
    classifier_steps: int = Field(1000, ge=1, description="steps of gradient descent that train the classifier")

    @property
    def dimension(self) -> int:
        return _PIXELS

    @property
    def images_task(self) -> MnistTask:
        """The task that says where the images are, and how the classifier's inputs are normalised."""
        return _SETS[self.images]

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load the images, and train the classifier unless that was done before. Raises `DataError`."""
        from seedbus.models.images.attack_problem import AttackProblem

        return AttackProblem(self, distortion=self.distortion, seed=seed, clients=clients, partition=partition)

    def network(self) -> nn.Module:
        """Images in tanh's space [b, 1, 28, 28] → the classifier's logits, and the distortion [b, 10 + 1]."""
        from seedbus.models.images.attack_problem import Perturbed
        from seedbus.models.images.classifier import classifier

        images = self.images_task
        return Perturbed(classifier(images, self.classifier_steps).module, images.mean, images.deviation)

    def load(self) -> tuple[Images, Images]:
        """The images that the classifier tells rightly: of the training (validation included) and the test images."""
        from seedbus.models.images.classifier import classifier

        right = classifier(self.images_task, self.classifier_steps).right
        train, test = self.images_task.load()
        return self._attacked(train, right["train"]), self._attacked(test, right["test"])

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
        """tanh⁻¹(2z) of each pixel, [b, 28, 28, 1]."""
        brightness = np.arange(256) / 255 - 0.5
        levels = np.arctanh(self.reach * 2 * brightness).astype(np.float32)
        return levels.take(stored, mode="clip")

    def _attacked(self, images: Images, right: NDArray[np.bool_]) -> Images:
        chosen = right if self.label is None else right & (images.labels == self.label)
        if not chosen.any():
            wanted = "" if self.label is None else f" of class {self.label}"
            raise DataError(
                f"task {self.name}",
                f"no image{wanted} that a classifier of {self.classifier_steps} steps tells rightly",
                "more classifier_steps, or another label",
            )
        return images.take(np.flatnonzero(chosen))
