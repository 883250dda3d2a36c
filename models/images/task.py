"""The bases of the tasks that classify samples.

Most classify images. All store their samples as bytes, which `inputs` converts to the inputs of the network.

The invariant: which samples are held out depends on the task and the fraction, not on the seed. So a learning rate that
is tuned on the validation split with one seed was never tuned on training samples of another seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.models.own_code.named import MODEL_FIELD, name_of
from seedbus.models.partition import Partition
from seedbus.models.preprocessing import Image, Preprocessing
from seedbus.models.task import Problem


class ClassifierTask(OwnMetrics, ClassifierSettings, frozen=True):
    """A task that classifies samples, with cross-entropy as its loss, and accuracy or the user's own as its metrics."""

    if TYPE_CHECKING:  # a field of the subclasses, which define what they accept
        model: Any

    def named(self) -> Iterator[tuple[str, Any]]:
        """See `OwnMetrics.named`: its network, if it is the user's, and metrics."""
        if self.own_network is not None:
            yield MODEL_FIELD, self.own_network
        yield from super().named()

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load the samples and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.images.problem import ImageProblem

        return ImageProblem(self, seed=seed, clients=clients, partition=partition)


class ImageTask(ClassifierTask, frozen=True):
    """A task that classifies images. Pixels are normalised by the mean and deviation of the data set."""

    white: ClassVar[int] = 255
    """The value of the brightest pixel, which is scaled to 1 before the normalisation."""
    mean: ClassVar[float | tuple[float, ...]]
    """Of all channels together, or of each channel."""
    deviation: ClassVar[float | tuple[float, ...]]
    shape: ClassVar[tuple[int, int, int]]
    """Height, width and channels of an image."""
    published_names: ClassVar[Sequence[str]] = ()
    """The names of classes 0, 1, … of a published set, whose numbers stand for them everywhere else."""

    @property
    def known_classes(self) -> int | None:  # type: ignore[override]  # a class variable of Task
        """See `task.Task`."""
        return len(self.published_names) or None

    def preprocessing(self) -> Preprocessing:
        """See `task.Task`. Raises `DataError`."""
        height, width, channels = self.shape
        mean, deviation = (tuple(np.atleast_1d(each).tolist()) for each in (self.mean, self.deviation))
        image = Image(height=height, width=width, channels=channels, white=self.white, mean=mean, deviation=deviation)
        names = self.class_names() or self.published_names
        valid = (name.encode(errors="replace").decode() for name in names)  # those of folders need not be UTF-8
        return Preprocessing(task=self.name, model=name_of(self.model), classes=tuple(valid), image=image)

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return normalised pixels, float32 [b, height, width, channels], from stored pixels of the same shape."""
        return normalised(stored, self.white, self.mean, self.deviation)


def normalised(
    stored: NDArray[np.uint8], white: int, mean: float | tuple[float, ...], deviation: float | tuple[float, ...]
) -> NDArray[np.float32]:
    """Return pixels as inputs of a network, float32 [b, height, width, channels].

    Args:
        stored: pixels of the same shape.
        white: the value of the brightest pixel.
        mean: of brightness from 0 to 1, of all channels together, or of each.
        deviation: the standard deviation of the same.
    """
    levels = _levels(white, mean, deviation)
    channels = [stored] if len(levels) == 1 else [stored[..., [channel]] for channel in range(len(levels))]
    # bytes are always within range, and mode="clip" skips the check
    inputs = [level.take(channel, mode="clip") for level, channel in zip(levels, channels, strict=True)]
    return inputs[0] if len(inputs) == 1 else np.concatenate(inputs, axis=-1)


@cache
def _levels(white: int, mean: float | tuple[float, ...], deviation: float | tuple[float, ...]) -> NDArray[np.float32]:
    """Return the normalised value of each byte, float32 [1 or channels, 256]."""
    brightness = np.arange(256) / white
    means, deviations = (np.atleast_1d(np.asarray(given))[:, None] for given in (mean, deviation))
    return np.asarray((brightness - means) / deviations, dtype=np.float32)
