"""The base of problems with pretrained weights: samples, one trained vector, objectives that share its point.

The invariant: a client's loss is computed on its own batch alone, with float32 arithmetic, by the same operations
wherever the client is hosted.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.client_samples import OfSamples, Relabelled
from seedbus.models.data.batches import batch, parts
from seedbus.models.device import HOST, moved, on_device
from seedbus.models.errors import DataError, OutOfMemory, is_out_of_memory
from seedbus.models.parameters import factored, slopes
from seedbus.models.parameters.coordinates import aligned_zeros
from seedbus.models.parameters.losses import FLOAT32, mean_of_parts, weights
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partition import Divisible, Partition, client_names, divide, division_identity, owned
from seedbus.models.partitions.own import Own, no_samples_of
from seedbus.models.task import Fill, Vector, check_split
from seedbus.models.text.files import Sample
from seedbus.models.text.task import PretrainedTask
from seedbus.models.text.weights import configuration

_PROBE = "The quick brown fox isn't “42” years old; Yes, No, or Maybe?\n  It was great, naïve and terrible."
SampleT = TypeVar("SampleT")
BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")


class PretrainedProblem(Relabelled, ABC, Generic[SampleT, BatchT]):
    """Implements `task.Problem`. Not thread-safe. BatchT is the type of a mini-batch, ready for the network.

    Attributes:
        resolution: of its losses, relative to them.
        splits: the samples of "train", "validation" and "test".
    """

    resolution = FLOAT32
    trained: TrainedVector
    splits: dict[str, list[SampleT]]

    def __init__(self, task: PretrainedTask, *, seed: int, clients: int, partition: Partition) -> None:
        self.seed = seed
        self.batch_size = task.batch_size
        self.micro_batch = task.micro_batch
        self._name = task.name
        self._evaluated_of = task.evaluated_indices
        if isinstance(partition, Own):
            own = partition.lists(task, task.content)
            self.splits = {split: each.samples for split, each in own.items()}
            self._owners: Callable[[str], NDArray[np.int64] | None] = lambda split: own[split].owners
            labels = np.array([task.class_of(each) for each in self.splits["train"]], dtype=np.int64)
            self._divisible = Divisible(labels, np.arange(labels.size), own["train"].owners)
        else:
            self.splits, self._divisible = task.load(partition.key(seed))
            self._owners = lambda split: task.owners(self.splits[split])
        self._partition = partition
        self.parts = divide(partition, self._divisible, clients, seed)
        self.division_identity = division_identity(partition, self.parts)

    def set_trained(self, trained: TrainedVector, expected: int) -> None:
        """Set the trained parameters.

        Args:
            trained: the parameters.
            expected: their number, as the task has computed it from the model's header.

        Raises:
            DataError: the number differs.
        """
        self.trained = trained
        if self.dimension != expected:
            raise DataError("task.model", f"{self.dimension} trained weights", f"{expected}, as its header says")
        # weights that are added to frozen ones are few and kept; the full weights can be loaded again from their files
        self._x0 = None if trained.is_whole else trained.values()
        self._x0_digest = b""

    @abstractmethod
    def load(self) -> TrainedVector:
        """Load the module of the task again and return its trained parameters."""

    @abstractmethod
    def training_batch(
        self, indices: NDArray[np.int64], split: str = "train", new_classes: NDArray[np.int64] | None = None
    ) -> BatchT:
        """Return samples as a batch of training.

        Args:
            indices: which samples, [b].
            split: of this split.
            new_classes: the class that each class is taken for; None: itself.
        """

    def lengths(self, indices: NDArray[np.int64]) -> list[int]:
        """Return how long training samples are, as far as padding depends on it, [n]."""
        return [0] * len(indices)

    def labels(
        self, indices: NDArray[np.int64], split: str = "train", new_classes: NDArray[np.int64] | None = None
    ) -> list[int]:
        """Return the classes of samples as they are taken; see `training_batch`."""
        own = [self.splits[split][index].label for index in indices]
        return own if new_classes is None else new_classes[own].tolist()

    def client_names(self) -> list[str]:
        """See `task.HasNamedClients`."""
        return client_names(self._partition, self._divisible, self.parts)

    def classes(self, split: str = "train") -> NDArray[np.int64]:
        """Return the class of each sample of a split, [n]."""
        return np.array(self.labels(np.arange(len(self.splits[split])), split), np.int64)

    def divided(
        self, indices: NDArray[np.int64], new_classes: NDArray[np.int64] | None = None
    ) -> list[tuple[int, BatchT]]:
        """Return the parts of a batch of training samples, each with the number of its samples.

        The samples of a batch with several parts are sorted by length, so that a part needs little padding.
        """
        spans = parts(len(indices), self.micro_batch)
        if len(spans) > 1:
            indices = indices[np.argsort(self.lengths(indices), kind="stable")]
        return [(span.stop - span.start, self.training_batch(indices[span], new_classes=new_classes)) for span in spans]

    def check_layers(self) -> None:
        """See `task.HasLayers`. No second vector is needed for it, which a large model may have no memory for."""
        if self.trained.has_initial_values:
            batch = self._tried()
            with torch.inference_mode():
                self.trained.check_layers(lambda: self.mean_loss(batch))

    def check_slopes(self) -> None:
        """See `task.HasSlopes`; at x₀, as `check_layers`."""
        if self.trained.has_initial_values:
            batch = self._tried()
            slopes.check(self.trained, lambda: self.mean_loss(batch))

    def check_factors(self) -> None:
        """See `task.HasFactors`; at x₀, as `check_layers`."""
        if self.trained.has_initial_values:
            batch = self._tried()
            with torch.inference_mode():
                factored.check(self.trained, lambda: self.mean_loss(batch))

    def _tried(self) -> BatchT:
        """Return a part of a batch, with which is tried what no run has computed; of owners' samples none is in it."""
        split = "specimens" if "specimens" in self.splits else "train"
        indices = np.arange(self.batch_size) % len(self.splits[split])
        if split == "train":
            *_, (_, batch) = self.divided(indices)
            return batch
        return self.training_batch(indices[parts(indices.size, self.micro_batch)[-1]], split)

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the trained parameters, in the order of their coordinates."""
        return self.trained.shapes

    def held_out_gradients(self) -> Iterator[Vector]:
        """Yield the gradient at x₀ of each batch of the validation split, float32 [d]; the next one overwrites it."""
        count = len(self.splits["validation"])
        self.point[:] = self.x0()
        for span in parts(count, self.micro_batch or self.batch_size) if count else ():
            batch = self.training_batch(np.arange(span.start, span.stop), "validation")
            yield self.trained.gradient([partial(self.mean_loss, batch)])

    @abstractmethod
    def mean_loss(self, batch: BatchT) -> Tensor:
        """Return the mean loss over the samples of a batch, at the point."""

    @property
    def dimension(self) -> int:
        return self.trained.dimension

    @property
    def device(self) -> torch.device | None:
        """The torch device of the network; None: vectors are NumPy arrays."""
        return self.trained.device

    def x0(self) -> NDArray[np.float32]:
        """Return the pretrained weights, or the initial weights that are added to frozen ones, float32 [d].

        Raises:
            DataError: the files of the model have changed since the first call.
        """
        if self._x0 is not None:
            return self._x0.copy()
        with on_device(HOST):  # on the device of this process there may be no room for a second network
            x0 = (self.trained if self.trained.has_initial_values else self.load()).values()
        digest = hashlib.blake2b(x0.data, digest_size=16).digest()  # each time: weights may lie in a mapped file
        if digest != (self._x0_digest or digest):
            raise DataError("task.model", "other weights than when this process began", "files that do not change")
        self._x0_digest = digest
        return x0

    def on_device(self, value: ValueT) -> ValueT:
        """Return tensors beside the network."""
        return moved(value, self.trained.device)

    @property
    def point(self) -> Vector:
        """The point at which losses are computed, float32 [d]. The first access also stores x₀ in memory."""
        if self._x0 is None:
            self._x0 = self.x0()
        return self.trained.point

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return the means of the task's metrics over the samples of a split. Raises `DataError`."""
        return self.evaluate_part(x, split, self.evaluated(split))

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """See `task.HasParts`. Raises `DataError`."""
        with self.trained.at(x):
            return self.measured(split, indices)

    def evaluate_at(self, fill: Fill, split: str) -> dict[str, float]:
        """Return what `evaluate` returns at the point that `fill` writes, with one layer's parameters in memory."""
        chosen = self.evaluated(split)
        with torch.inference_mode():
            return self.trained.computed_at(fill, lambda: self.measured(split, chosen))

    def evaluated(self, split: str) -> NDArray[np.int64]:
        """Return the indices of the samples that are evaluated, ascending. Raises `DataError` if there are none."""
        check_split(split)
        if not (count := len(self.splits[split])):
            raise DataError(f"task {self._name}", f"no samples in the {split} split", "a larger `validation`")
        return self._evaluated_of(count)

    def owned(self, split: str) -> list[NDArray[np.int64]] | None:
        """See `task.HasParts`."""
        others = self._divisible._replace(owners=self._owners(split))
        return owned(self._partition, self.parts, self._divisible, others)

    @abstractmethod
    def measured(self, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the metrics of the parameters that the network has, as `evaluate_part` does."""

    def proven(self) -> list[list[SampleT]]:
        """Return the samples that a process must prove, by splits; of owners' samples none."""
        return [] if self._partition.is_partial else [*self.splits.values()]

    def objective(self, client: int, round: int) -> PretrainedObjective[BatchT]:
        """Return the client's loss in a round. All objectives share the problem's point."""
        return PretrainedObjective(self, client, round)

    def network_at(self, x: Vector) -> nn.Module:
        """See `task.HasNetwork`."""
        return self.trained.copy_at(x)

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """Return x as tensors, by the names under which transformers and peft load them."""
        with self.trained.at(x):
            return {name.replace(".default", ""): tensor for name, tensor in self.trained.tensors().items()}

    def vector_of(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float32]:
        """Return the x of which `state_dict` makes these tensors, float32 [d]. Raises `DataError`: they are others."""
        x = aligned_zeros(self.dimension)
        for name, view in zip(self.trained.names, self.trained.views(torch.from_numpy(x)), strict=True):
            tensor = tensors.get(name.replace(".default", ""))
            if tensor is None or tensor.shape != view.shape:
                raise DataError(
                    f"task {self._name}", f"no tensor {name} of its shape", "the tensors of the task's train"
                )
            view.copy_(tensor)
        return x


class PretrainedObjective(OfSamples["PretrainedProblem[Any, BatchT]"], Generic[BatchT]):
    """The mean loss over the batch of a step, whose products may be in bfloat16."""

    def __init__(self, problem: PretrainedProblem[Any, BatchT], client: int, round: int) -> None:
        super().__init__(problem, client, round)
        self.resolution = problem.resolution

    @property
    def point(self) -> Vector:
        """The point at which losses are computed, float32 [d]; shared by all objectives of the problem."""
        return self._problem.point

    def loss(self, step: int) -> float:
        """Return the mean loss over the step's batch, as a Python float. Raises `DataError` if memory runs out."""
        return self.read([self.measure(step, 1)])[0]

    def points(self) -> Sequence[Vector]:
        """Return the point, as what `measure` measures at."""
        return [self.point]

    def measure(self, step: int, count: int) -> Tensor:
        """Return the mean loss over the step's batch, which stays on its device. Raises `DataError`."""
        # outside of inference mode: its tensors cannot have gradients, and this batch is kept for `gradient`
        self.parts(step)
        with torch.inference_mode():
            return self._mean(step, self._problem.mean_loss)

    def measure_at(self, step: int, fill: Fill) -> Tensor:
        """Return the loss at the point that `fill` writes, layer by layer; it stays on its device."""
        problem = self._problem
        self.parts(step)  # see `measure`
        with torch.inference_mode():
            return self._mean(step, lambda part: problem.trained.computed_at(fill, lambda: problem.mean_loss(part)))

    def measure_factored(self, step: int, factors: Sequence[factored.Factor]) -> Tensor:
        """Return the mean losses over the step's batch at points around `point`, [n]. Raises `DataError`."""
        problem = self._problem
        self.parts(step)  # see `measure`
        with torch.inference_mode():
            return self._mean(
                step, lambda part: factored.losses(problem.trained, factors, lambda: problem.mean_loss(part))
            )

    def gradient(self, step: int, criterion: None = None) -> Vector:
        """Return the gradient of the mean loss over the step's batch, in a buffer that the next call overwrites.

        Args:
            step: the local step.
            criterion: a loss that replaces the task's loss; pretrained models accept none.

        Returns:
            float32 [d].

        Raises:
            DataError: a criterion is given, or memory runs out.
        """
        if criterion is not None:
            raise DataError("a pretrained model", "an algorithm with a loss of its own", "one that takes the task's")
        shares = weights([size for size, _ in self.parts(step)])

        def weighted(part: tuple[int, BatchT], share: float) -> Callable[[], Tensor]:
            return lambda: self._problem.mean_loss(part[1]) * share

        return self._problem.trained.gradient(map(weighted, self.parts(step), shares))

    @property
    def tangent(self) -> Vector:
        """The direction of the next derivative, float32 [d]; shared by all objectives of the problem."""
        return self._problem.trained.tangent

    def slope(self, step: int) -> Tensor:
        """Return the derivative at `point` along `tangent` of the mean loss over the step's batch, on its device."""
        problem = self._problem
        return self._mean(step, lambda part: slopes.slope(problem.trained, lambda: problem.mean_loss(part)))

    def _mean(self, step: int, loss: Callable[[BatchT], Tensor]) -> Tensor:
        divided = self.parts(step)
        return mean_of_parts([loss(part) for _, part in divided], [size for size, _ in divided])

    def parts(self, step: int) -> list[tuple[int, BatchT]]:
        """Return the parts of the step's mini-batch and how many samples each has, computed once per step."""
        problem = self._problem
        if step != self._step:
            key = {"seed": problem.seed, "client": self._client, "round": self._round, "step": step}
            indices = batch(problem.parts[self._client], problem.batch_size, **key)
            if not indices.size:
                raise no_samples_of(self._client)
            self._parts = problem.divided(indices, problem.new_classes(self._client, self._round))
            self._step = step
        return self._parts


def identity(problem: PretrainedProblem[Sample, Any], tokenizer: Any, *, special: bool) -> bytes:
    """Return a digest of everything that decides a loss and is not part of x₀.

    That is frozen weights, the model's configuration, tokenizer and samples, and their division if a file gives it; of
    owners' samples nothing.

    Args:
        problem: the problem whose weights and samples are digested.
        tokenizer: its tokenizer.
        special: whether the problem uses the special tokens that the tokenizer adds around a text.
    """
    samples = hashlib.blake2b()
    for split in problem.proven():
        for sample in split:
            samples.update(json.dumps(sample).encode())
    samples.update(problem.division_identity)
    facts = (tokenizer_facts(tokenizer, special=special), configuration(problem.trained.module))
    return problem.trained.frozen_digest(*facts, samples.digest())


def tokenizer_facts(tokenizer: Any, *, special: bool) -> bytes:
    """Return what a tokenizer does, as text: its vocabulary, and the tokens of a sentence."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    probe = [tokenizer(_PROBE, add_special_tokens=special)["input_ids"], tokenizer.bos_token_id, tokenizer.eos_token_id]
    return json.dumps([vocabulary, probe]).encode()


@contextmanager
def explain_out_of_memory(shape: Sequence[int], samples: int = 1) -> Iterator[None]:
    """Turn an out-of-memory error into one sentence that says which settings need less memory.

    Args:
        shape: rows and width of the batch of tokens.
        samples: the samples of the part of a batch that these are; 1: no smaller part would need less.

    Raises:
        OutOfMemory: memory ran out.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        rows, width = shape
        field = "task.batch_size" if samples > 1 else "task.max_length"
        fewer = f"task.micro_batch or task.batch_size: {samples // 2}, or " if samples > 1 else ""
        expected = f"{fewer}a task.max_length below {width}"
        raise OutOfMemory(field, f"no memory for {rows} sequences of {width} tokens", expected) from error
