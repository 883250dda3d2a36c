"""Problems whose clients have samples, and may take classes for others, as a fault says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.data.batches import batches_per_pass
from seedbus.models.generators import client_key
from seedbus.models.parameters.losses import Compared, read
from seedbus.models.partition import Partition
from seedbus.models.partitions.own import tells_sizes
from seedbus.models.task import Fill, Relabelling

ProblemT = TypeVar("ProblemT", bound=Any)


class Relabelled:
    """A problem with samples; implements `task.HasClasses`."""

    parts: list[NDArray[np.int64]]
    _partition: Partition
    _relabelling: Relabelling | None = None
    _classes = 0  # counted once, as many samples take longer than a batch

    @property
    @abstractmethod
    def number_of_classes(self) -> int:
        """The number of classes; 0: the samples have none."""

    def samples(self, client: int) -> int:
        """The number of the client's training samples."""
        return int(self.parts[client].size)

    def told_samples(self, client: int) -> int:
        """Return the number of its samples that a client's reports say: 1 if that is for its owner alone to know."""
        return self.samples(client) if tells_sizes(self._partition) else 1

    def relabel(self, relabelling: Relabelling | None) -> None:
        """See `task.HasClasses`."""
        self._relabelling = relabelling
        self._classes = 0 if relabelling is None else self.number_of_classes

    def new_classes(self, client: int, round: int) -> NDArray[np.int64] | None:
        """Return the class that a client takes each class for in a round; None: itself."""
        return None if self._relabelling is None else self._relabelling(client, round, self._classes)


class OfSamples(Compared, Generic[ProblemT]):
    """One client's loss in one round, by its samples. Keeps only the batch of the current step."""

    def __init__(self, problem: ProblemT, client: int, round: int) -> None:
        self._problem = problem
        self._client = client
        self._round = round
        self._step: int | None = None  # whose batch is kept

    @property
    def samples(self) -> int:
        """The number of samples that the client's reports say."""
        return int(self._problem.told_samples(self._client))

    @property
    def key(self) -> int:
        """A 64-bit key of this client and round."""
        return client_key(self._problem.seed, self._client, self._round)

    @property
    def steps_an_epoch(self) -> int:
        """The number of mini-batches of one pass over the client's samples."""
        return batches_per_pass(self._problem.parts[self._client], self._problem.batch_size)

    @abstractmethod
    def measure_at(self, step: int, fill: Fill) -> Tensor:
        """Return the loss at the point that `fill` writes, layer by layer; it stays on its device."""

    def loss_at(self, step: int, fill: Fill) -> float:
        """Return it as a number. Raises `DataError`: memory runs out, or the task's losses take all layers at once."""
        return self.read([self.measure_at(step, fill)])[0]

    def read(self, measured: Sequence[Tensor]) -> list[float]:
        """Return losses as numbers, by one transfer from their device."""
        return read(measured)


def taken_for(labels: Tensor, new_classes: NDArray[np.int64] | None) -> Tensor:
    """Return labels as a client takes them, on their device."""
    return labels if new_classes is None else torch.from_numpy(new_classes).to(labels.device)[labels]
