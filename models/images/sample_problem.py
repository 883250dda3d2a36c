"""A task with mini-batches of samples, bound to its data. All clients share one network and one vector.

The invariant: a client's loss is computed on its own batch alone. Batches of several clients are never joined into one
forward pass, because a matrix product's rounding depends on its number of rows.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from seedbus.models.client_samples import OfSamples, Relabelled, taken_for
from seedbus.models.data.batches import batch, batch_of_pass, parts
from seedbus.models.errors import DataError
from seedbus.models.images.settings import BatchSettings
from seedbus.models.own_code.own_metrics import Evaluated, functions_of
from seedbus.models.parameters import factored, slopes
from seedbus.models.parameters.compiled import Loss, compiled
from seedbus.models.parameters.derivatives import loss_derivatives
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.parameters.gradients import Criterion, Outputs, backward, only, outputs, through
from seedbus.models.parameters.losses import mean_of_parts, read, weights
from seedbus.models.parameters.recorded_losses import SMALL, RecordedLosses, capture_on
from seedbus.models.parameters.stacked import StackedLoss
from seedbus.models.partition import Divisible, Partition, client_names, divide, division_identity, owned
from seedbus.models.partitions.own import no_samples_of
from seedbus.models.task import Derivatives, Fill, Note, Vector, check_split

PROBED = 16  # batches whose losses distinguish two compilations, or two processors' stacked losses
CHECKED = 128  # test samples with which metrics are tried before the run
EVALUATION_BATCH = 128  # samples; the fastest of 32 to 512 on one core, by a factor of two for the Fashion CNN


class Samples(Protocol):
    """The samples of a split."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each sample, [n]."""
        ...

    @property
    def divisible(self) -> Divisible:
        """What the samples can be divided by."""
        ...


S = TypeVar("S", bound=Samples)


class SampleProblem(Relabelled, ABC, Generic[S]):
    """Implements `task.Problem`, but for what its samples are. Not thread-safe."""

    without_gradients: type[torch.no_grad | torch.inference_mode] = torch.inference_mode
    """The context in which losses are computed."""
    is_recordable = False
    """Whether losses are always the same operations on a batch's tensors and the points, for a GPU to record."""

    def __init__(
        self,
        settings: BatchSettings,
        flat: FlatModule,
        splits: Mapping[str, S],
        *,
        seed: int,
        clients: int,
        partition: Partition,
    ) -> None:
        """Divide the training samples.

        Args:
            settings: the task.
            flat: its network.
            splits: the samples of "train", "validation" and "test"; where processes have samples of their own, also
                "specimens", the same in all, with which they try and prove what they compute.
            seed: the run's seed.
            clients: number of clients.
            partition: how the training samples are divided.

        Raises:
            DataError: the samples cannot be divided so.
        """
        self.settings, self.batch_size = settings, settings.batch_size
        self.seed = seed
        self.flat = flat
        self.splits = splits
        self.specimens = splits.get("specimens", splits["train"])
        self.parts = divide(partition, splits["train"].divisible, clients, seed)
        self._own_functions = functions_of(settings)
        self._identity = division_identity(partition, self.parts)
        self._partition = partition
        self._compiled: Loss | None = None
        self._stacked: StackedLoss | None = None
        self._note: Note = lambda *_, **__: None
        self._recorded: RecordedLosses | None = None

    @abstractmethod
    def x0(self) -> NDArray[np.float32]:
        """Return the initial point, a new array, float32 [d]."""

    @abstractmethod
    def tensors(self, samples: S, indices: NDArray[np.int64], **key: int) -> tuple[Any, Tensor]:
        """Return a batch as tensors.

        Args:
            samples: the samples of a split.
            indices: which of them, [b].
            key: for a training step: seed, client, round and step, which key the augmentation.

        Returns:
            Inputs of the network, and labels [b, …].
        """

    @abstractmethod
    def loss(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the loss that a step minimises, the mean over its batch."""

    def counted(self, labels: Tensor) -> float:
        """Return the weight of a batch's mean loss in that of several batches: the number of its samples."""
        return len(labels)

    @abstractmethod
    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the task's metrics of the samples of a split with these indices. Raises `DataError`."""

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return the task's metrics of the samples of a split. Raises `DataError`."""
        return self.evaluate_part(x, split, self.evaluated(split))

    @property
    def averaged(self) -> Sequence[str]:
        """The metrics that are means over samples; see `Task.averaged`. A loss of the user's own may be none."""
        return self.settings.averaged

    def own_metrics(self, count: int) -> Evaluated:
        """Return what computes the user's functions for so many samples."""
        return Evaluated(self._own_functions, count, averaged=self.averaged)

    def check_metrics(self) -> None:
        """Compute the user's metrics of test samples at x₀, to find mistakes before the run.

        Raises:
            DataError: one fails, draws at random or keeps something between calls.
        """
        if not self._own_functions:
            return
        is_partial = self._partition.is_partial
        tested = np.arange(self.specimens.labels.size) if is_partial else self.evaluated("test")
        few = tested[np.linspace(0, tested.size - 1, min(CHECKED, tested.size)).astype(np.int64)]
        x0 = self.x0()
        try:
            self._check_metrics(x0, few)
        except DataError:  # some metrics fail if a class is missing, which all samples may have
            self._check_metrics(x0, tested)

    def _check_metrics(self, x0: Vector, indices: NDArray[np.int64]) -> None:
        own = self.own_metrics(indices.size)
        samples = self.specimens if self._partition.is_partial else self.splits["test"]
        with self.without_gradients(), self.flat.at(x0):
            for span in parts(indices.size, self.evaluation_batch):
                inputs, targets = self.tensors(samples, indices[span])
                outputs = self.forward(inputs)
                own.add(outputs, targets)
        own.values()
        own.check(outputs, targets)

    def evaluated(self, split: str) -> NDArray[np.int64]:
        """Return the indices of all samples of a split. Raises `DataError` if it has none."""
        check_split(split)
        if not (count := self.splits[split].labels.size):
            raise DataError(f"task {self.settings.name}", f"no samples in the {split} split", "a larger `validation`")
        return np.arange(count)

    def owned(self, split: str) -> list[NDArray[np.int64]] | None:
        """See `task.HasParts`."""
        return owned(self._partition, self.parts, self.splits["train"].divisible, self.splits[split].divisible)

    def client_names(self) -> list[str]:
        """See `task.HasNamedClients`."""
        return client_names(self._partition, self.splits["train"].divisible, self.parts)

    @property
    def evaluation_batch(self) -> int:
        """The number of samples of an evaluation's forward pass."""
        return min(EVALUATION_BATCH, self.settings.micro_batch or EVALUATION_BATCH)

    @property
    def dimension(self) -> int:
        return self.flat.dimension

    def classes(self, split: str = "train") -> NDArray[np.int64]:
        """Return the class of each sample of a split, [n]."""
        return self.splits[split].labels

    @property
    def number_of_classes(self) -> int:
        """The number of classes; 0: the samples have none."""
        return int(self.specimens.labels.max()) + 1

    def objective(self, client: int, round: int) -> SampleObjective:
        """Return the client's loss in a round. All objectives share the problem's point."""
        return SampleObjective(self, client, round)

    def prepare(self, note: Note) -> None:
        """Compile the loss of a full batch, or stack losses, if the task asks for it. Raises `DataError`."""
        self._note = note
        for sentence in self.splits["train"].divisible.notes:
            note("data", what=sentence)
        if self.settings.forward == "compiled":
            note("compiling", what=f"the loss of task {self.settings.name}")
            first = np.zeros(self.batch_size, np.int64)
            # the compiled code is specialised to the memory layout of the weights
            self.flat.point[:] = self.x0()
            self._compiled = compiled(self.mean_loss, *self.tensors(self.specimens, first))
        elif self.settings.forward == "stacked":
            self.stacked().check(self.x0(), *next(self._probes()))

    def stacked(self) -> StackedLoss:
        """Return what computes losses at several points together."""
        if self._stacked is None:
            self._stacked = StackedLoss(self.flat, self.mean_loss, self.settings.stacked_points)
        return self._stacked

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the parameters, in the order of their coordinates."""
        return self.flat.shapes

    def held_out_gradients(self) -> Iterator[Vector]:
        """Yield the gradient at x₀ of each batch of the validation split, float32 [d]; the next one overwrites it."""
        held_out, size = self.splits["validation"], self.settings.micro_batch or self.batch_size
        self.flat.point[:] = self.x0()
        for span in parts(held_out.labels.size, size) if held_out.labels.size else ():
            batch = self.tensors(held_out, np.arange(span.start, span.stop))
            yield backward(self.flat, [partial(self.mean_loss, *batch)])

    def identity(self) -> bytes:
        """Return a digest of what a process must prove, or b"": samples if they are the user's own, and their holders.

        The holders of published samples need a proof only if more than samples and seed decides them.
        """
        return self._identity

    def probe(self) -> bytes:
        """Return a digest of losses at x₀ on the first specimens if they are compiled or stacked, else b"".

        Another processor, compiler or torch may add in another order, which changes the last bits of some losses.
        """
        with self.without_gradients():
            if self._compiled is not None:
                self.flat.point[:] = self.x0()
                losses = [self._compiled(*each) for each in self._probes()]
            elif self._stacked is not None:
                self._stacked.write(self.x0())
                count = len(self._stacked.points)  # calls of many sizes: the last one of a step may be smaller
                losses = [self._stacked.losses(*each, count - row % count) for row, each in enumerate(self._probes())]
            else:
                return b""
        return hashlib.blake2b(np.array(read(losses), "<f4").tobytes(), digest_size=8).digest()

    def _probes(self) -> Iterator[tuple[Any, Tensor]]:
        """Yield the first training samples, as full batches."""
        samples, size = self.specimens, self.batch_size
        for number in range(PROBED):
            yield self.tensors(samples, np.arange(number * size, (number + 1) * size) % samples.labels.size)

    def batch_loss(self, inputs: Any, labels: Tensor) -> Tensor:
        """Return the mean loss of a training batch at the point. Only full batches use the compiled loss."""
        if self.settings.forward != "compiled" or len(labels) != self.batch_size:
            return self.mean_loss(inputs, labels)
        if self._compiled is None:
            found = "a training loss before the compilation"
            raise DataError("task.forward: compiled", found, "a call of the problem's `prepare` before its first loss")
        return self._compiled(inputs, labels)

    def losses(self, inputs: Any, labels: Tensor, count: int) -> Tensor:
        """Return the mean losses of a training batch at the first `count` points, on a GPU by recordings."""
        loss = self.batch_loss
        if self.settings.forward == "stacked":
            stacked = self.stacked()

            def loss(inputs: Any, labels: Tensor) -> Tensor:
                return stacked.losses(inputs, labels, count)

        if self._recorded is None:
            capture = capture_on(self.flat.device) if self._may_record else None
            if capture is None:
                return loss(inputs, labels)
            self._recorded = RecordedLosses(capture, self._note)
        return self._recorded.losses(loss, count, inputs, labels)

    @property
    def _may_record(self) -> bool:
        return self.is_recordable and self.settings.forward != "compiled" and self.dimension <= SMALL

    def mean_loss(self, inputs: Any, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch at the point, not compiled."""
        return self.loss(self.forward(inputs), labels)

    def forward(self, inputs: Any) -> Any:
        """Return the network's outputs for a batch of inputs, [b, …]."""
        return self.flat.module(inputs)

    @contextmanager
    def derivatives(self, x: Vector, count: int) -> Iterator[Derivatives]:
        """Yield the derivatives at x of the mean loss over samples of all clients; see `task.TwiceDifferentiable`."""
        held = np.sort(np.concatenate(self.parts))
        chosen = held[np.linspace(0, held.size - 1, min(count, held.size)).astype(np.int64)]
        spans = parts(chosen.size, self.evaluation_batch if "loss" in self.averaged else None)
        batches = [self.tensors(self.splits["train"], chosen[span]) for span in spans]
        losses = [
            lambda batch=batch, share=share: self.mean_loss(*batch) * share
            for batch, share in zip(batches, weights([self.counted(labels) for _, labels in batches]), strict=True)
        ]
        with loss_derivatives(self.flat, x, losses) as found:
            yield found

    def check_layers(self) -> None:
        """See `task.HasLayers`."""
        moved = self.flat.values()
        moved[:] = self.x0() + np.sin(np.arange(self.dimension)) / 64  # where no weight is still the initial one
        with self.without_gradients(), self.flat.at(moved):
            self.flat.check_layers(self._tried())

    def check_slopes(self) -> None:
        """See `task.HasSlopes`."""
        with self.flat.at(self.x0()):
            slopes.check(self.flat, self._tried())

    def check_factors(self) -> None:
        """See `task.HasFactors`."""
        with self.without_gradients(), self.flat.at(self.x0()):
            factored.check(self.flat, self._tried())

    def _tried(self) -> Callable[[], Tensor]:
        """Return a loss of a part of a batch, with which is tried what no run has computed."""
        first, *_ = parts(self.batch_size, self.settings.micro_batch)
        batch = tree_map(lambda each: each[first], next(self._probes()))
        return lambda: self.mean_loss(*batch)

    def loss_at(self, fill: Fill, inputs: Any, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch at the point that `fill` writes, one layer at a time."""
        with self.without_gradients():
            return self.flat.computed_at(fill, lambda: self.mean_loss(inputs, labels))

    def network_at(self, x: Vector) -> nn.Module:
        """See `task.HasNetwork`."""
        return self.flat.copy_at(x)

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """Return x as the network's named tensors: contiguous copies."""
        with self.flat.at(x):
            return self.flat.tensors()


class SampleObjective(OfSamples["SampleProblem[Any]"]):
    """The mean loss over the batch of a step."""

    @property
    def point(self) -> Vector:
        """The point at which losses are computed, float32 [d]; shared by all objectives of the problem."""
        return self._problem.flat.point

    def loss(self, step: int) -> float:
        """Return the float32 mean over the step's batch at `point`, as a Python float."""
        self._batch_of(step)
        with self._problem.without_gradients():
            return self.read([self._mean(step, self._problem.batch_loss)])[0]

    def points(self) -> Sequence[Vector]:
        """Return the points of one call of `measure`, float32 [d] each; shared by all objectives of the problem."""
        problem = self._problem
        return problem.stacked().points if problem.settings.forward == "stacked" else [self.point]

    def measure(self, step: int, count: int) -> Tensor:
        """Return the means over the step's batch at the first `count` points, which stay on their device."""
        problem = self._problem
        self._batch_of(step)  # outside of inference mode: its tensors cannot have gradients, and this batch is kept
        with problem.without_gradients():
            return self._mean(step, lambda inputs, labels: problem.losses(inputs, labels, count))

    def measure_factored(self, step: int, factors: Sequence[factored.Factor]) -> Tensor:
        """Return the means over the step's batch at points around `point`, [n]. Raises `DataError`."""
        problem = self._problem
        self._batch_of(step)  # see `measure`
        with problem.without_gradients():
            return self._mean(
                step, lambda *part: factored.losses(problem.flat, factors, lambda: problem.mean_loss(*part))
            )

    def measure_at(self, step: int, fill: Fill) -> Tensor:
        """Return the loss at the point that `fill` writes, layer by layer; it stays on its device.

        Raises:
            DataError: the task's losses are compiled or stacked.
        """
        forward = self._problem.settings.forward
        if forward != "eager":
            expected = "task.forward: eager, or algorithm.revert: copy"
            raise DataError("task.forward", f"{forward}, which takes all layers at once, with revert: light", expected)
        return self._mean(step, lambda inputs, labels: self._problem.loss_at(fill, inputs, labels))

    def gradient(self, step: int, criterion: Criterion | None = None) -> Vector:
        """Return the gradient of the mean loss over the step's batch, in a buffer that the next call overwrites.

        Args:
            step: the local step.
            criterion: a loss of the network's outputs that replaces the task's loss.

        Returns:
            float32 [d].
        """
        problem = self._problem
        if criterion is not None:
            inputs, labels = self._batch_of(step)
            return backward(problem.flat, [lambda: criterion(outputs(problem.flat, only(inputs), labels))])
        divided = self._parts_of(step)
        shares = weights(self._counted(divided))

        def weighted(part: tuple[Any, Tensor], share: float) -> Callable[[], Tensor]:
            return lambda: problem.mean_loss(*part) * share

        return backward(problem.flat, map(weighted, divided, shares))

    @property
    def tangent(self) -> Vector:
        """The direction of the next derivative, float32 [d]; shared by all objectives of the problem."""
        return self._problem.flat.tangent

    def slope(self, step: int) -> Tensor:
        """Return the derivative at `point` along `tangent` of the mean loss over the step's batch, on its device."""
        problem = self._problem
        return self._mean(step, lambda *part: slopes.slope(problem.flat, lambda: problem.mean_loss(*part)))

    def outputs(self, step: int, at: Vector) -> Outputs:
        """Return the outputs of the network at the point `at` [d], without gradients."""
        inputs, labels = self._batch_of(step)
        with torch.no_grad():
            *hidden, logits = through(self._problem.flat, only(inputs), -1, at)
        return Outputs(only(inputs), logits, tuple(hidden), labels)

    def through(self, hidden: Tensor, number: int, at: Vector) -> Tensor:
        """Return the logits of the later blocks, with the parameters of another point.

        Args:
            hidden: the output of a block, [b, …].
            number: the number of that block.
            at: the other point, [d].
        """
        return through(self._problem.flat, hidden, number, at)[-1]

    def counts(self) -> NDArray[np.int64]:
        """Return the number of the client's samples of each class, as it takes them."""
        problem = self._problem
        own = torch.from_numpy(problem.classes()[problem.parts[self._client]])
        taken = taken_for(own, problem.new_classes(self._client, self._round))
        return np.bincount(taken.numpy(), minlength=problem.number_of_classes)

    def _mean(self, step: int, loss: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """Return the mean over the step's batch of a loss of its parts."""
        divided = self._parts_of(step)
        return mean_of_parts([loss(*part) for part in divided], self._counted(divided))

    def _counted(self, divided: list[tuple[Any, Tensor]]) -> list[float]:
        """Return the weights of a batch's parts. Nothing is counted of a whole one: the host would wait for a GPU."""
        return [1.0] if len(divided) == 1 else [self._problem.counted(labels) for _, labels in divided]

    def _parts_of(self, step: int) -> list[tuple[Any, Tensor]]:
        """Return the parts of a step's batch."""
        whole, most = self._batch_of(step), self._problem.settings.micro_batch
        if most is None or len(spans := parts(len(whole[1]), most)) == 1:
            return [whole]
        return [tree_map(lambda each, span=span: each[span], whole) for span in spans]

    def _batch_of(self, step: int) -> tuple[Any, Tensor]:
        """Return the batch of a step, computed once per step."""
        if step != self._step:
            self._inputs, self._labels = self.batch(step)
            self._step = step
        return self._inputs, self._labels

    def batch(self, step: int) -> tuple[Any, Tensor]:
        """Return the inputs and labels of the step's mini-batch. Raises `DataError` if its samples are elsewhere."""
        problem = self._problem
        if not problem.parts[self._client].size:
            raise no_samples_of(self._client)
        key = {"seed": problem.seed, "client": self._client, "round": self._round, "step": step}
        draw = batch if problem.settings.batches == "drawn" else batch_of_pass
        indices = draw(problem.parts[self._client], problem.batch_size, **key)
        inputs, labels = problem.tensors(problem.splits["train"], indices, **key)
        return inputs, taken_for(labels, problem.new_classes(self._client, self._round))
