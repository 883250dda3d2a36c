"""The settings that all tasks with a classifier share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.data.batches import MICRO_BATCH
from seedbus.models.data.samples import Images
from seedbus.models.generators import generator
from seedbus.models.images.augmentation import PixelsT
from seedbus.models.own_code.named import MODEL_FIELD, is_own
from seedbus.models.partition import Division, Partition, division_of
from seedbus.models.task import Task

if TYPE_CHECKING:
    from torch import nn


STACK = 16
"""Points of a stacked call, if the scenario does not say how many."""


class BatchSettings(Task, frozen=True):
    """The fields of a task with mini-batches of samples."""

    batch_size: int = Field(
        32, ge=1, description="samples of a local step; a client with fewer samples uses all of them"
    )
    batches: Literal["drawn", "passes"] = Field(
        "drawn",
        description="drawn: each batch is drawn at random; passes: a pass takes all samples of a client in a new order",
    )
    forward: Literal["eager", "compiled", "stacked"] = Field(
        "eager",
        description="compiled: needs a C++ compiler and starts later; stacked: losses at several points in one call, "
        "for small networks; both differ from eager in the last bits",
    )
    chunk: int | None = Field(
        None, ge=1, le=4096, description=f"most points of a call with forward: stacked; none: {STACK}"
    )
    micro_batch: int | None = Field(None, ge=1, description=MICRO_BATCH)
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")

    @model_validator(mode="after")
    def _check_forward(self) -> Self:
        if self.chunk is not None and self.forward != "stacked":
            raise ValueError(
                f"chunk is {self.chunk}, and forward is {self.forward}, which takes one point at a time; expected "
                "forward: stacked, or no chunk"
            )
        if self.micro_batch is not None and self.forward == "compiled":
            raise ValueError(
                f"micro_batch is {self.micro_batch}, and forward is compiled, for whole batches; expected forward: "
                "eager or stacked, or no micro_batch"
            )
        return self

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.forward != "eager":
            yield RulesOut(Fact.FACTORS, "computes them otherwise", "forward")

    @property
    def stacked_points(self) -> int:
        """See `task.Task`."""
        return (self.chunk or STACK) if self.forward == "stacked" else 0

    def held_out(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of `count` samples are for training and which for validation, sorted, whatever the seed."""
        order = generator("validation", self.name).permutation(count)
        held = round(self.validation * count)
        return np.sort(order[held:]), np.sort(order[:held])


class ClassifierSettings(BatchSettings, frozen=True):
    """A task that classifies samples, and what its problem needs."""

    has_outputs: ClassVar[bool] = True
    own_data: ClassVar[str] = ""
    """The field that names the user's own files. No digest pins these, so processes prove that samples are the same."""

    @property
    def own_network(self) -> Any | None:
        """The user's function in the field `model`, or its name; None: the network is one of ours."""
        model = getattr(self, "model", None)
        return model if is_own(model) else None

    @property
    def dimension(self) -> int:
        """d, known without torch unless the network is the user's. Raises `DataError`."""
        return self.our_dimension if self.own_network is None else self._own_dimension

    @cached_property
    def _own_dimension(self) -> int:
        from seedbus.models.own_code.network import built, trained_size

        return trained_size(built(self.own_network, 0, field=MODEL_FIELD))

    @property
    def declared_dimension(self) -> int | None:
        """See `Task.declared_dimension`."""
        return self.dimension if self.own_network is None else None

    @property
    @abstractmethod
    def our_dimension(self) -> int:
        """d of `network()`, known without torch. Raises `DataError`."""

    @abstractmethod
    def load(self) -> tuple[Images, Images]:
        """Return the training samples (validation included) and the test samples. Raises `DataError`."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Return a new module of ours.

        It takes images [b, channels, height, width], texts [b, length] or rows [b, inputs] to logits [b, classes].
        """

    @abstractmethod
    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Convert stored samples [b, …] to inputs of the network, of the same shape.

        If an input depends on its own byte and channel alone, batches can be made on a device (`resident_images`).
        """

    def augmented(self, stored: PixelsT, *, seed: int, client: int, round: int, step: int) -> PixelsT:
        """Return a training batch after random augmentation, if the task has one; the arguments key the draws.

        Args:
            stored: samples [b, …], as a NumPy array or as a tensor on the device where they lie.
            seed: the run's.
            client: the client's number.
            round: the round's number.
            step: the local step.
        """
        return stored

    def class_names(self) -> list[str]:
        """Return the names of classes 0, 1, …, or none if their numbers are their names. Raises `DataError`."""
        return []

    def splits(self) -> dict[str, Images]:
        """Return the samples of "train", "validation" and "test". Raises `DataError`."""
        samples, test = self.load()
        train, validation = self.hold_out(samples)
        return {"train": train, "validation": validation, "test": test}

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        return division_of(partition, self.splits()["train"].divisible, clients, seed, self.class_names())

    def hold_out(self, samples: Images) -> tuple[Images, Images]:
        """Split samples into training and validation, independently of the scenario's seed."""
        train, validation = self.held_out(samples.labels.size)
        return samples.take(train), samples.take(validation)
