"""What the image classification tasks have in common: their fields, and how samples are held out for validation.

The invariant: which samples are held out depends on the task and the fraction and not on the seed, so a learning rate
tuned on the validation split with one seed was never tuned on samples that another seed trains on.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.partitions import Partition
from seedbus.models.streams import stream
from seedbus.models.task import Problem, Task

if TYPE_CHECKING:
    from torch import nn


class Images(NamedTuple):
    """Labelled images, all that are stored or some of them; none are copied until they are asked for."""

    stored: NDArray[np.uint8]  # [m, height, width, channels], often shared with other processes
    labels: NDArray[np.int64]  # [n]
    rows: NDArray[np.int64] | None = None  # [n], which of the stored images these are; None: all

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """[n, height, width, channels], copied where these are not all that are stored."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def pick(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The pixels of these images alone, a copy."""
        return self.stored[indices if self.rows is None else self.rows[indices]]

    def take(self, indices: NDArray[np.int64]) -> Images:
        return Images(self.stored, self.labels[indices], indices if self.rows is None else self.rows[indices])


class ImageTask(Task, frozen=True):
    """A network that classifies images; cross-entropy is its loss, accuracy its metric."""

    batch_size: int = Field(32, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    forward: Literal["eager", "compiled"] = Field(
        "eager", description="compiled: needs a C++ compiler, starts late, and has bits of its own"
    )
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")

    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    white: ClassVar[int] = 255
    """The brightest pixel, which becomes 1 before mean and deviation are taken off."""
    mean: ClassVar[float]
    deviation: ClassVar[float]

    @abstractmethod
    def load(self) -> tuple[Images, Images]:
        """The samples to train on (validation included) and those to test on. Raises `DataError`."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new module: images [b, channels, height, width] → logits [b, classes]."""

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load images and network, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.image_problem import ImageProblem

        return ImageProblem(self, seed=seed, clients=clients, partition=partition)

    def hold_out(self, samples: Images) -> tuple[Images, Images]:
        """(to train on, for validation), the same whatever the seed."""
        count = round(self.validation * samples.labels.size)
        order = stream("validation", self.name).permutation(samples.labels.size)
        return samples.take(np.sort(order[count:])), samples.take(np.sort(order[:count]))
