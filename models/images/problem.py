"""A task that classifies images, or other samples, bound to its data: one network and one vector for all.

The invariant: a client's loss is computed on its own batch alone. Batches of several clients are never joined into one
forward pass, because a matrix product's rounding depends on its number of rows.
"""

from __future__ import annotations

import hashlib

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
from seedbus.models.partitions import Partition, divide
from seedbus.models.streams import private_key, stream
from seedbus.models.task import Fill, Note, Vector, check_split

PROBED = 16  # batches whose losses tell two compilations apart
EVALUATION_BATCH = 128  # samples; of 32 to 512 the fastest on one core, by a factor of two for the Fashion CNN


class ImageProblem:
    """See `task.Problem`; for one thread. A subclass may have another `loss` and other `measures`."""

    def __init__(self, task: ClassifierSettings, *, seed: int, clients: int, partition: Partition) -> None:
        self.task, self.seed = task, seed
        self.flat = FlatModule(task.network())
        learned, tested = task.load()
        trained, validated = task.hold_out(learned)
        self.splits = {"train": trained, "validation": validated, "test": tested}
        self.parts = divide(partition, trained.labels, trained.owners, clients, seed)
        self._compiled: Loss | None = None

    @property
    def dimension(self) -> int:
        return self.flat.dimension

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
            self.flat.point[:] = self.x0()  # what is compiled is compiled for weights that lie as they do there
            self._compiled = compiled(self.mean_loss, *self.tensors(self.splits["train"], first))

    def probe(self) -> bytes:
        """A digest of compiled losses at x₀, of the first training samples; none where nothing was compiled.

        Another processor or compiler may sum in another order, which changes the last bits of some losses.
        """
        if self._compiled is None:
            return b""
        self.flat.point[:] = self.x0()
        samples, size = self.splits["train"], self.task.batch_size
        with torch.inference_mode():
            batches = (np.arange(number * size, (number + 1) * size) % samples.labels.size for number in range(PROBED))
            losses = [float(self._compiled(*self.tensors(samples, chosen))) for chosen in batches]
        return hashlib.blake2b(np.array(losses, "<f4").tobytes(), digest_size=8).digest()

    def batch_loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a training batch at the point; only what is a whole batch is compiled for."""
        is_whole = labels.numel() == self.task.batch_size
        if self.task.forward == "eager" or not is_whole:
            return self.mean_loss(inputs, labels)
        if self._compiled is None:
            what = "a training loss before anything was compiled"
            raise DataError("task.forward: compiled", what, "a call of the problem's `prepare` before its first loss")
        return self._compiled(inputs, labels)

    def mean_loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss at the point."""
        return self.loss(self.flat.module(inputs), labels)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """The means of `measures` over the split's samples, summed in float64."""
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
        """What a step minimises, the mean over its batch: cross-entropy."""
        return cross_entropy(outputs, labels)

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The task's metrics for each sample [b]; the mean of "loss" is `loss`."""
        return {
            "loss": cross_entropy(outputs, labels, reduction="none"),
            "accuracy": outputs.argmax(dim=1) == labels,
        }

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """x as the network's named tensors, contiguous copies."""
        with self.flat.at(x):
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
        self._problem, self._client, self._round = problem, client, round
        self._at: int | None = None

    @property
    def point(self) -> Vector:
        """The problem's one point."""
        return self._problem.flat.point

    def loss(self, step: int) -> float:
        """The float32 mean over the step's batch, as a Python float."""
        inputs, labels = self._at_step(step)
        with torch.inference_mode():
            return float(self._problem.batch_loss(inputs, labels))

    def loss_at(self, step: int, fill: Fill) -> float:
        """The same where `fill` says, with one layer's parameters in memory. Raises `DataError`."""
        if self._problem.task.forward == "compiled":
            expected = "task.forward: eager, or algorithm.revert: copy"
            raise DataError("task.forward", "compiled, which takes all layers at once, with revert: light", expected)
        inputs, labels = self._at_step(step)
        return self._problem.flat.loss_at(fill, lambda: self._problem.mean_loss(inputs, labels))

    def gradient(self, step: int, criterion: Criterion | None = None) -> Vector:
        """∇ of the mean cross-entropy over the step's batch, or of a criterion; float32 [d], the next call's too."""
        inputs, labels = self._at_step(step)
        return backward(self._problem.flat, inputs, labels, self._problem.loss, criterion)

    def outputs(self, step: int, at: Vector) -> Outputs:
        """What the network says at another point, without a graph."""
        inputs, labels = self._at_step(step)
        with torch.no_grad():
            *hidden, logits = through(self._problem.flat, inputs, -1, at)
        return Outputs(inputs, logits, tuple(hidden), labels)

    def through(self, hidden: Tensor, number: int, at: Vector) -> Tensor:
        """Logits of what came out of a block, sent through those after it with the parameters of another point."""
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
        """How many of the client's samples belong to each class."""
        labels = self._problem.splits["train"].labels
        return np.bincount(labels[self._problem.parts[self._client]], minlength=int(labels.max()) + 1)

    def _at_step(self, step: int) -> tuple[Tensor, Tensor]:
        if step != self._at:
            self._inputs, self._labels = self.batch(step)
            self._at = step
        return self._inputs, self._labels

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the step's mini-batch."""
        problem, client = self._problem, self._client
        key = {"seed": problem.seed, "client": client, "round": self._round, "step": step}
        choose = batch if problem.task.batches == "drawn" else batch_of_pass
        indices = choose(problem.parts[client], problem.task.batch_size, **key)
        return problem.tensors(problem.splits["train"], indices, **key)
