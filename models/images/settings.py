"""The settings of every task that classifies samples."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.samples import Images
from seedbus.models.streams import stream
from seedbus.models.task import Task

if TYPE_CHECKING:
    from torch import nn


class ClassifierSettings(Task, frozen=True):
    """What a scenario says of a network that classifies samples, and what a problem needs of its task."""

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

    def hold_out(self, samples: Images) -> tuple[Images, Images]:
        """(to train on, for validation), the same whatever the seed."""
        count = round(self.validation * samples.labels.size)
        order = stream("validation", self.name).permutation(samples.labels.size)
        return samples.take(np.sort(order[count:])), samples.take(np.sort(order[:count]))
