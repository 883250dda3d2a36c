"""The federated black-box attack of FedZO (Fang et al. 2022, §V-A, eq. 21): one perturbation that fools a classifier.

All clients look for one x that is added to their images in tanh space, so that the classifier gets their class wrong:

    z̃ = ½ tanh(tanh⁻¹(2z) + x)        ψ(x) = max(Φ_y(z̃) − max_{j≠y} Φ_j(z̃), 0) + c ‖z̃ − z‖²

z is an image with pixels from −½ to ½, y its class. The samples are the images that the classifier gets right, of one
class as in the paper or of all. **Ours**: Φ are the network's logits, as in Carlini & Wagner 2017; their differences
are those of log-confidences. 2z is scaled by `REACH`, because black and white would be at infinity, and the distance is
measured from the scaled image. x starts at zero. The classifier is a small CNN for (Fashion-)MNIST; the paper has one
for CIFAR-10. It is trained when the task first needs it (see `classifier`); clients know nothing of its training.

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
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.partition import Partition
from seedbus.models.task import Problem
from seedbus.models.tasks.mnist import FashionMnist, Mnist

if TYPE_CHECKING:
    from torch import nn

_PIXELS = 28 * 28
REACH = 0.999999
"""Factor of 2z before tanh⁻¹."""
_SETS: dict[str, MnistTask] = {"fashion-mnist": FashionMnist(), "mnist": Mnist()}


class BlackboxAttack(ClassifierSettings, frozen=True):
    """One perturbation of 784 pixels that fools a trained classifier (FedZO, eq. 21)."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "success", "distortion")
    has_outputs: ClassVar[bool] = False
    known_classes: ClassVar[int | None] = 0

    name: Literal["blackbox-attack"] = "blackbox-attack"
    batch_size: int = Field(25, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    images: Literal["fashion-mnist", "mnist"] = Field(
        "fashion-mnist", description="the set whose classifier is attacked"
    )
    label: int | None = Field(4, ge=0, le=9, description="the class whose images are perturbed; null: all classes")
    distortion: float = Field(1.0, ge=0, le=1e6, description="c, the weight of the squared distance from the image")
    classifier_steps: int = Field(1000, ge=1, description="steps of gradient descent that train the classifier")

    @property
    def our_dimension(self) -> int:
        return _PIXELS

    @property
    def images_task(self) -> MnistTask:
        """The task of the images, which also defines how the classifier's inputs are normalised."""
        return _SETS[self.images]

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load the images, and train the classifier if it is not in the cache. Raises `DataError`."""
        from seedbus.models.images.attack_problem import AttackProblem

        return AttackProblem(self, distortion=self.distortion, seed=seed, clients=clients, partition=partition)

    def network(self) -> nn.Module:
        """Return a network from images in tanh space [b, 1, 28, 28] to logits and the distortion, [b, 10 + 1]."""
        from seedbus.models.images.attack_problem import Perturbed
        from seedbus.models.images.classifier import classifier

        images = self.images_task
        return Perturbed(classifier(images, self.classifier_steps).module, images.mean, images.deviation)

    def load(self) -> tuple[Images, Images]:
        """Return the training (validation included) and test images that the classifier gets right."""
        from seedbus.models.images.classifier import classifier

        correct = classifier(self.images_task, self.classifier_steps).right
        train, test = self.images_task.load()
        return self._attacked(train, correct["train"]), self._attacked(test, correct["test"])

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return tanh⁻¹(2z), scaled by `REACH`, of each pixel, [b, 28, 28, 1]."""
        brightness = np.arange(256) / 255 - 0.5
        levels = np.arctanh(REACH * 2 * brightness).astype(np.float32)
        return levels.take(stored, mode="clip")

    def _attacked(self, images: Images, correct: NDArray[np.bool_]) -> Images:
        chosen = correct if self.label is None else correct & (images.labels == self.label)
        if not chosen.any():
            of_class = "" if self.label is None else f" of class {self.label}"
            raise DataError(
                f"task {self.name}",
                f"no image{of_class} that a classifier of {self.classifier_steps} steps gets right",
                "more classifier_steps, or another label",
            )
        return images.take(np.flatnonzero(chosen))
