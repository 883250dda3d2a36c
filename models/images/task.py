"""What the tasks that classify samples have in common: their fields, and how samples are held out for validation.

Most classify images, and all store their samples as bytes: `inputs` makes of these what the network reads.

The invariant: which samples are held out depends on the task and the fraction and not on the seed, so a learning rate
tuned on the validation split with one seed was never tuned on samples that another seed trains on.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
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
    """Labelled images, all that are stored or some of them; none are copied until they are asked for.

    Texts are kept in the same way, as symbols [m, length].
    """

    stored: NDArray[np.uint8]  # [m, height, width, channels], often shared with other processes
    labels: NDArray[np.int64]  # [n]
    rows: NDArray[np.int64] | None = None  # [n], which of the stored images these are; None: all
    owners: NDArray[np.int64] | None = None  # [n], the number of the person whose each is; None: nobody's

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """[n, height, width, channels], copied where these are not all that are stored."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def pick(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The pixels of these images alone, a copy."""
        return self.stored[indices if self.rows is None else self.rows[indices]]

    def take(self, indices: NDArray[np.int64]) -> Images:
        rows = indices if self.rows is None else self.rows[indices]
        return Images(self.stored, self.labels[indices], rows, None if self.owners is None else self.owners[indices])


class ClassifierTask(Task, frozen=True):
    """A network that classifies samples; cross-entropy is its loss, accuracy its metric."""

    batch_size: int = Field(32, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    batches: Literal["drawn", "passes"] = Field(
        "drawn",
        description="drawn: each step's batch anew; passes: all of a client's samples, in a new order each pass",
    )
    forward: Literal["eager", "compiled"] = Field(
        "eager", description="compiled: needs a C++ compiler, starts late, and has bits of its own"
    )
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")

    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    has_outputs: ClassVar[bool] = True

    @abstractmethod
    def load(self) -> tuple[Images, Images]:
        """The samples to train on (validation included) and those to test on. Raises `DataError`."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new module: images [b, channels, height, width], or texts [b, length] → logits [b, classes]."""

    @abstractmethod
    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Stored samples [b, …] as the network reads them, in the same shape."""

    def augmented(
        self, stored: NDArray[np.uint8], *, seed: int, client: int, round: int, step: int
    ) -> NDArray[np.uint8]:
        """A training batch, changed at random by that key where the task says so; it is never evaluated on."""
        return stored

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load samples and network, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.images.problem import ImageProblem

        return ImageProblem(self, seed=seed, clients=clients, partition=partition)

    def hold_out(self, samples: Images) -> tuple[Images, Images]:
        """(to train on, for validation), the same whatever the seed."""
        count = round(self.validation * samples.labels.size)
        order = stream("validation", self.name).permutation(samples.labels.size)
        return samples.take(np.sort(order[count:])), samples.take(np.sort(order[:count]))


class ImageTask(ClassifierTask, frozen=True):
    """A network that classifies images, whose pixels are normalised by the mean and deviation of the data set."""

    white: ClassVar[int] = 255
    """The brightest pixel, which becomes 1 before mean and deviation are taken off."""
    mean: ClassVar[float | tuple[float, ...]]
    """Of all channels, or of each."""
    deviation: ClassVar[float | tuple[float, ...]]

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Normalised pixels, [b, height, width, channels] as they are stored."""
        levels = _levels(self.white, self.mean, self.deviation)
        channels = [stored] if len(levels) == 1 else [stored[..., [channel]] for channel in range(len(levels))]
        # a byte is always within: clipping skips the check
        taken = [level.take(channel, mode="clip") for level, channel in zip(levels, channels, strict=True)]
        return taken[0] if len(taken) == 1 else np.concatenate(taken, axis=-1)


@cache
def _levels(white: int, mean: float | tuple[float, ...], deviation: float | tuple[float, ...]) -> NDArray[np.float32]:
    """What each value of a byte becomes, float32 [1 or channels, 256]."""
    brightness = np.arange(256) / white
    means, deviations = (np.atleast_1d(np.asarray(given))[:, None] for given in (mean, deviation))
    return np.asarray((brightness - means) / deviations, dtype=np.float32)
