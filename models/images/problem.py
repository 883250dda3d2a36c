"""A task that classifies images or other samples, bound to its data. All clients share one network and one vector.

The invariant: a client's loss is computed on its own batch alone. Batches of several clients are never joined into one
forward pass, because a matrix product's rounding depends on its number of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.models.data.batches import batch, batch_of_pass, batches_per_pass
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.parameters.compiled import Loss, compiled
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.parameters.gradients import Criterion, Outputs, backward, through
from seedbus.models.partition import Indices, Partition, digest, divide, division_identity
from seedbus.models.streams import private_key, stream
from seedbus.models.task import SPLITS, Fill, Note, Vector, check_split

PROBED = 16  # batches whose losses distinguish two compilations
EVALUATION_BATCH = 128  # samples; the fastest of 32 to 512 on one core, by a factor of two for the Fashion CNN


class ImageProblem:
    """Implements `task.Problem`. Not thread-safe. A subclass may override `loss` and `measures`."""

    def __init__(self, task: ClassifierSettings, *, seed: int, clients: int, partition: Partition) -> None:
        self.task = task
        self.seed = seed
        self.flat = FlatModule(task.network())
        self.splits = task.splits()
        self.parts = divide(partition, self.splits["train"].divisible, clients, seed)
        self._identity = division_identity(partition, self.parts)
        if task.is_proven:
            self._identity = samples_identity(self.splits, self.parts)
        self._compiled: Loss | None = None

    @property
    def dimension(self) -> int:
        return self.flat.dimension

    def x0(self) -> NDArray[np.float32]:
        """PyTorch's default initial distribution, float32 [d]."""
        return initial_values(self.flat.module, stream("x0", self.task.name, self.seed))

    def samples(self, client: int) -> int:
        """The number of the client's training samples."""
        return int(self.parts[client].size)

    def objective(self, client: int, round: int) -> ImageObjective:
        """Return the client's loss in a round. All objectives share the problem's point."""
        return ImageObjective(self, client, round)

    def prepare(self, note: Note) -> None:
        """Compile the loss of a full batch if the task asks for it. Raises `DataError`."""
        if self.task.forward == "compiled":
            note("compiling", what=f"the loss of task {self.task.name}")
            first = np.zeros(self.task.batch_size, np.int64)
            # the compiled code is specialised to the memory layout of the weights
            self.flat.point[:] = self.x0()
            self._compiled = compiled(self.mean_loss, *self.tensors(self.splits["train"], first))

    def identity(self) -> bytes:
        """Return a digest of what a process must prove, or b"": samples if they are the user's own, and their holders.

        The holders of published samples need a proof only if more than samples and seed decides them.
        """
        return self._identity

    def probe(self) -> bytes:
        """Return a digest of compiled losses at x₀ on the first training samples, or b"" if nothing is compiled.

        Another processor or compiler may add in another order, which changes the last bits of some losses.
        """
        if self._compiled is None:
            return b""
        self.flat.point[:] = self.x0()
        samples, size = self.splits["train"], self.task.batch_size
        with torch.inference_mode():
            batches = (np.arange(number * size, (number + 1) * size) % samples.labels.size for number in range(PROBED))
            losses = [float(self._compiled(*self.tensors(samples, indices))) for indices in batches]
        return hashlib.blake2b(np.array(losses, "<f4").tobytes(), digest_size=8).digest()

    def batch_loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a training batch at the point. Only full batches use the compiled loss."""
        is_full = labels.numel() == self.task.batch_size
        if self.task.forward == "eager" or not is_full:
            return self.mean_loss(inputs, labels)
        if self._compiled is None:
            found = "a training loss before the compilation"
            raise DataError("task.forward: compiled", found, "a call of the problem's `prepare` before its first loss")
        return self._compiled(inputs, labels)

    def mean_loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch at the point, not compiled."""
        return self.loss(self.flat.module(inputs), labels)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return the means of `measures` over the samples of a split, summed in float64. Raises `DataError`."""
        check_split(split)
        images = self.splits[split]
        count = images.labels.size
        if count == 0:
            raise DataError(f"task {self.task.name}", f"no samples in the {split} split", "a larger `validation`")
        sums = dict.fromkeys(self.task.metrics, 0.0)
        with torch.inference_mode(), self.flat.at(x):
            for start in range(0, count, EVALUATION_BATCH):
                inputs, labels = self.tensors(images, np.arange(start, min(start + EVALUATION_BATCH, count)))
                for name, values in self.measures(self.flat.module(inputs), labels).items():
                    sums[name] += float(values.double().sum())
        return {name: total / count for name, total in sums.items()}

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss that a step minimises, the mean over its batch: cross-entropy."""
        return cross_entropy(outputs, labels)

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the task's metrics of each sample, [b]. The mean of "loss" equals `loss`."""
        return {
            "loss": cross_entropy(outputs, labels, reduction="none"),
            "accuracy": outputs.argmax(dim=1) == labels,
        }

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """Return x as the network's named tensors: contiguous copies."""
        with self.flat.at(x):
            return self.flat.tensors()

    def tensors(self, images: Images, indices: NDArray[np.int64], **key: int) -> tuple[Tensor, Tensor]:
        """Return a batch as tensors.

        Args:
            images: the samples of a split.
            indices: which samples, [b].
            key: for a training step: seed, client, round and step, which key the augmentation.

        Returns:
            Inputs, and labels int64 [b]. Images are float32 [b, channels, height, width] in channels_last order, and
            texts int64 [b, length].
        """
        stored = images.pick(indices)
        inputs = torch.from_numpy(self.task.inputs(self.task.augmented(stored, **key) if key else stored))
        inputs = inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs
        return inputs, torch.from_numpy(images.labels[indices])


def samples_identity(splits: Mapping[str, Images], parts: Sequence[Indices]) -> bytes:
    """Return a digest of the samples of all splits and of who holds which, 16 bytes."""
    return hashlib.blake2b(
        b"".join([*(splits[name].digest() for name in SPLITS), digest(parts)]), digest_size=16
    ).digest()


class ImageObjective:
    """One client's mean loss in one round. Keeps only the batch of the current step."""

    def __init__(self, problem: ImageProblem, client: int, round: int) -> None:
        self._problem = problem
        self._client = client
        self._round = round
        self._step: int | None = None  # whose batch is kept

    @property
    def point(self) -> Vector:
        """The point at which losses are computed, float32 [d]; shared by all objectives of the problem."""
        return self._problem.flat.point

    def loss(self, step: int) -> float:
        """Return the float32 mean over the step's batch, as a Python float."""
        inputs, labels = self._batch_of(step)
        with torch.inference_mode():
            return float(self._problem.batch_loss(inputs, labels))

    def loss_at(self, step: int, fill: Fill) -> float:
        """Return the loss at the point that `fill` writes, with only one layer's parameters in memory.

        Raises:
            DataError: the task's loss is compiled.
        """
        if self._problem.task.forward == "compiled":
            expected = "task.forward: eager, or algorithm.revert: copy"
            raise DataError("task.forward", "compiled, which takes all layers at once, with revert: light", expected)
        inputs, labels = self._batch_of(step)
        return self._problem.flat.loss_at(fill, lambda: self._problem.mean_loss(inputs, labels))

    def gradient(self, step: int, criterion: Criterion | None = None) -> Vector:
        """Return the gradient of the mean loss over the step's batch, in a buffer that the next call overwrites.

        Args:
            step: the local step.
            criterion: a loss of the network's outputs that replaces the task's loss.

        Returns:
            float32 [d].
        """
        inputs, labels = self._batch_of(step)
        return backward(self._problem.flat, inputs, labels, self._problem.loss, criterion)

    def outputs(self, step: int, at: Vector) -> Outputs:
        """Return the outputs of the network at the point `at` [d], without gradients."""
        inputs, labels = self._batch_of(step)
        with torch.no_grad():
            *hidden, logits = through(self._problem.flat, inputs, -1, at)
        return Outputs(inputs, logits, tuple(hidden), labels)

    def through(self, hidden: Tensor, number: int, at: Vector) -> Tensor:
        """Return the logits of the later blocks, with the parameters of another point.

        Args:
            hidden: the output of a block, [b, …].
            number: the number of that block.
            at: the other point, [d].
        """
        return through(self._problem.flat, hidden, number, at)[-1]

    @property
    def samples(self) -> int:
        return self._problem.samples(self._client)

    @property
    def key(self) -> int:
        return private_key(self._problem.seed, self._client, self._round)

    @property
    def steps_an_epoch(self) -> int:
        return batches_per_pass(self._problem.parts[self._client], self._problem.task.batch_size)

    def counts(self) -> NDArray[np.int64]:
        """Return the number of the client's samples of each class."""
        labels = self._problem.splits["train"].labels
        return np.bincount(labels[self._problem.parts[self._client]], minlength=int(labels.max()) + 1)

    def _batch_of(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch of a step, computed once per step."""
        if step != self._step:
            self._inputs, self._labels = self.batch(step)
            self._step = step
        return self._inputs, self._labels

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of the step's mini-batch."""
        problem = self._problem
        key = {"seed": problem.seed, "client": self._client, "round": self._round, "step": step}
        draw = batch if problem.task.batches == "drawn" else batch_of_pass
        indices = draw(problem.parts[self._client], problem.task.batch_size, **key)
        return problem.tensors(problem.splits["train"], indices, **key)
