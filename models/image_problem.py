"""A task that classifies images, or other samples, bound to its data: one network and one vector for all.

The invariant: a client's loss is computed on its own batch alone. Batches of several clients are never joined into one
forward pass, because a matrix product's rounding depends on its number of rows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.models.batches import batch
from seedbus.models.errors import DataError
from seedbus.models.flat import FlatModule, initial_values
from seedbus.models.image_task import ClassifierTask, Images
from seedbus.models.partitions import Partition, divide
from seedbus.models.streams import stream
from seedbus.models.task import Vector, check_split

EVALUATION_BATCH = 128  # samples; of 32 to 512 the fastest on one core, by a factor of two for the Fashion CNN


class ImageProblem:
    """See `task.Problem`; for one thread. A subclass may have another `mean_loss` and other `measures`."""

    def __init__(self, task: ClassifierTask, *, seed: int, clients: int, partition: Partition) -> None:
        self.task, self.seed = task, seed
        self.flat = FlatModule(task.network())
        learned, tested = task.load()
        trained, validated = task.hold_out(learned)
        self.splits = {"train": trained, "validation": validated, "test": tested}
        self.parts = divide(partition, trained.labels, trained.owners, clients, seed)

    @property
    def dimension(self) -> int:
        return int(self.flat.point.size)

    def x0(self) -> NDArray[np.float32]:
        """PyTorch's default initial distribution, float32 [d]."""
        return initial_values(self.flat.module, stream("x0", self.task.name, self.seed))

    def samples(self, client: int) -> int:
        """How many training samples the client holds."""
        return int(self.parts[client].size)

    def objective(self, client: int, round: int) -> ImageObjective:
        """The client's loss in that round; it writes and reads this problem's one point."""
        return ImageObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """The means of `measures` over the split's samples, summed in float64. Overwrites the point."""
        check_split(split)
        images = self.splits[split]
        count = images.labels.size
        if count == 0:
            raise DataError(f"task {self.task.name}", f"no samples in the {split} split", "a larger `validation`")
        self.flat.point[:] = x
        sums = dict.fromkeys(self.task.metrics, 0.0)
        with torch.inference_mode():
            for start in range(0, count, EVALUATION_BATCH):
                inputs, labels = self.tensors(images, np.arange(start, min(start + EVALUATION_BATCH, count)))
                for name, values in self.measures(self.flat.module(inputs), labels).items():
                    sums[name] += float(values.double().sum())
        return {name: total / count for name, total in sums.items()}

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """What a step minimises, the mean over its batch: cross-entropy."""
        return cross_entropy(outputs, labels)

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The task's metrics for each sample [b]; the mean of "loss" is `mean_loss`."""
        return {
            "loss": cross_entropy(outputs, labels, reduction="none"),
            "accuracy": outputs.argmax(dim=1) == labels,
        }

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """x as the network's named tensors, contiguous copies. Overwrites the point."""
        self.flat.point[:] = x
        return self.flat.tensors()

    def tensors(self, images: Images, indices: NDArray[np.int64], **key: int) -> tuple[Tensor, Tensor]:
        """Inputs, and labels, int64 [b]. Those of a training step, which has a key, may be augmented.

        Images are float32 [b, channels, height, width] in channels_last order, and texts int64 [b, length].
        """
        stored = images.pick(indices)
        inputs = torch.from_numpy(self.task.inputs(self.task.augmented(stored, **key) if key else stored))
        ordered = inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs
        return ordered, torch.from_numpy(images.labels[indices])


class ImageObjective:
    """One client's mean loss in one round; keeps the batch of the step at hand, and nothing else."""

    def __init__(self, problem: ImageProblem, client: int, round: int) -> None:
        self.point: Vector = problem.flat.point
        self._problem, self._client, self._round = problem, client, round
        self._at: int | None = None

    def loss(self, step: int) -> float:
        """The float32 mean over the step's batch, as a Python float."""
        if step != self._at:
            self._inputs, self._labels = self.batch(step)
            self._at = step
        with torch.inference_mode():
            return float(self._problem.mean_loss(self._problem.flat.module(self._inputs), self._labels))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the step's mini-batch."""
        problem, client = self._problem, self._client
        key = {"seed": problem.seed, "client": client, "round": self._round, "step": step}
        indices = batch(problem.parts[client], problem.task.batch_size, **key)
        return problem.tensors(problem.splits["train"], indices, **key)
