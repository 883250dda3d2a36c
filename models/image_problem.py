"""An image task bound to its data: one network and one vector, which the objectives of all clients share.

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
from seedbus.models.compiled import Loss, compiled
from seedbus.models.errors import DataError
from seedbus.models.flat import FlatModule, initial_values
from seedbus.models.image_task import Images, ImageTask
from seedbus.models.partitions import Partition
from seedbus.models.streams import stream
from seedbus.models.task import Note, Vector, check_split

EVALUATION_BATCH = 128  # samples; of 32 to 512 the fastest on one core, by a factor of two for the Fashion CNN


class ImageProblem:
    """See `task.Problem`; for one thread."""

    def __init__(self, task: ImageTask, *, seed: int, clients: int, partition: Partition) -> None:
        self.task, self.seed = task, seed
        self.flat = FlatModule(task.network())
        learned, tested = task.load()
        trained, validated = task.hold_out(learned)
        self.splits = {"train": trained, "validation": validated, "test": tested}
        self.parts = partition.split(trained.labels, clients, seed)
        levels = (np.arange(256) / task.white - task.mean) / task.deviation
        self._levels = levels.astype(np.float32)
        self._compiled: Loss | None = None

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

    def prepare(self, note: Note) -> None:
        """Compile the loss of a whole batch, where the task has it so. Raises `DataError`."""
        if self.task.forward == "compiled":
            note("compiling", what=f"the loss of task {self.task.name}")
            first = np.zeros(self.task.batch_size, np.int64)
            self._compiled = compiled(self.loss, *self.tensors(self.splits["train"], first))

    def batch_loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of a training batch at the point; only what is a whole batch is compiled for."""
        is_whole = labels.numel() == self.task.batch_size
        if self.task.forward == "eager" or not is_whole:
            return self.loss(inputs, labels)
        assert self._compiled is not None, "`prepare` comes before the first loss"
        return self._compiled(inputs, labels)

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy at the point."""
        return cross_entropy(self.flat.module(inputs), labels)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """{"loss", "accuracy"}: means over the split's samples, losses summed in float64. Overwrites the point."""
        check_split(split)
        images = self.splits[split]
        count = images.labels.size
        if count == 0:
            raise DataError(f"task {self.task.name}", f"no samples in the {split} split", "a larger `validation`")
        self.flat.point[:] = x
        loss, correct = 0.0, 0
        with torch.inference_mode():
            for start in range(0, count, EVALUATION_BATCH):
                inputs, labels = self.tensors(images, np.arange(start, min(start + EVALUATION_BATCH, count)))
                logits = self.flat.module(inputs)
                loss += float(cross_entropy(logits, labels, reduction="none").double().sum())
                correct += int((logits.argmax(dim=1) == labels).sum())
        return {"loss": loss / count, "accuracy": correct / count}

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """x as the network's named tensors, contiguous copies. Overwrites the point."""
        self.flat.point[:] = x
        return self.flat.tensors()

    def tensors(self, images: Images, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Normalised inputs, float32 [b, channels, height, width] in channels_last order, and labels, int64 [b]."""
        levels = self._levels.take(images.pick(indices), mode="clip")  # a byte is always within: skips the check
        return torch.from_numpy(levels).permute(0, 3, 1, 2), torch.from_numpy(images.labels[indices])


class ImageObjective:
    """One client's mean cross-entropy in one round; keeps the batch of the step at hand, and nothing else."""

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
            return float(self._problem.batch_loss(self._inputs, self._labels))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the step's mini-batch."""
        problem, client = self._problem, self._client
        key = {"seed": problem.seed, "client": client, "round": self._round, "step": step}
        indices = batch(problem.parts[client], problem.task.batch_size, **key)
        return problem.tensors(problem.splits["train"], indices)
