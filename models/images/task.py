"""What the tasks that classify samples have in common: their fields, and how samples are held out for validation.

Most classify images, and all store their samples as bytes: `inputs` makes of these what the network reads.

The invariant: which samples are held out depends on the task and the fraction and not on the seed, so a learning rate
tuned on the validation split with one seed was never tuned on samples that another seed trains on.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.partitions import Partition
from seedbus.models.task import Problem


class ClassifierTask(ClassifierSettings, frozen=True):
    """A network that classifies samples; cross-entropy is its loss, accuracy its metric."""

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load samples and network, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.images.problem import ImageProblem

        return ImageProblem(self, seed=seed, clients=clients, partition=partition)


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
