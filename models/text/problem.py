"""What problems on labelled text have in common: samples, one trained vector, and objectives that share its point.

The invariant: a client's loss is computed on its own batch alone, with float32 arithmetic, by the same operations
wherever the client is hosted.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.data.batches import batch, batches_per_pass
from seedbus.models.errors import DataError, NoRoom, is_out_of_memory
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partitions import Partition
from seedbus.models.streams import private_key
from seedbus.models.task import Fill, Vector, check_split
from seedbus.models.text.files import Sample
from seedbus.models.text.task import TextTask

_PROBE = "The quick brown fox isn't “42” years old; Yes, No, or Maybe?\n  It was great, naïve and terrible."
Given = TypeVar("Given")


class TextProblem(ABC, Generic[Given]):
    """See `task.Problem`; for one thread. Given: a mini-batch, ready for the network."""

    trained: TrainedVector

    def __init__(self, task: TextTask, *, seed: int, clients: int, partition: Partition) -> None:
        self.seed, self.batch_size, self._name = seed, task.batch_size, task.name
        self.splits = task.splits(seed)
        self.parts = partition.split(np.array([each.label for each in self.splits["train"]]), clients, seed)

    def hold(self, trained: TrainedVector, expected: int) -> None:
        """The vector of this problem, as long as the schema says. Raises `DataError`."""
        self.trained = trained
        if self.dimension != expected:
            raise DataError("task.model", f"{self.dimension} trained weights", f"{expected}, as its header says")
        # additions to frozen weights are few; all the weights can be had again from where they came
        self._start = None if trained.is_whole else trained.values()
        self._seal = b""

    @abstractmethod
    def load(self) -> TrainedVector:
        """The module as its task describes it, anew."""

    @abstractmethod
    def given(self, indices: NDArray[np.int64]) -> Given:
        """Training samples as a batch."""

    @abstractmethod
    def mean(self, given: Given) -> Tensor:
        """The mean loss over the samples of a batch, at the point."""

    @property
    def dimension(self) -> int:
        return self.trained.dimension

    def x0(self) -> NDArray[np.float32]:
        """The pretrained weights, or what is added to them, float32 [d]. Raises `DataError` if they are others now."""
        if self._start is not None:
            return self._start.copy()
        found = (self.trained if self.trained.has_initial_values else self.load()).values()
        seal = hashlib.blake2b(found.data, digest_size=16).digest()
        if seal != (self._seal or seal):
            raise DataError("task.model", "other weights than when this process began", "files that nobody changes")
        self._seal = seal
        return found

    @property
    def point(self) -> Vector:
        """Where the next loss is taken, float32 [d]. Who needs it has memory for x₀ too."""
        if self._start is None:
            self._start = self.x0()
        return self.trained.point

    def samples(self, client: int) -> int:
        """How many training samples the client holds."""
        return int(self.parts[client].size)

    def objective(self, client: int, round: int) -> TextObjective[Given]:
        """The client's loss in that round; it writes and reads this problem's one point."""
        return TextObjective(self, client, round)

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """x as the trained tensors, by the names that transformers and peft load them by."""
        with self.trained.at(x):
            return {name.replace(".default", ""): tensor for name, tensor in self.trained.tensors().items()}

    def taken(self, split: str) -> list[Sample]:
        """The samples of a split that there is. Raises `DataError`."""
        check_split(split)
        if not self.splits[split]:
            raise DataError(f"task {self._name}", f"no samples in the {split} split", "a larger `validation`")
        return self.splits[split]


class TextObjective(Generic[Given]):
    """One client's loss in one round; keeps the batch of the step at hand, and nothing else."""

    def __init__(self, problem: TextProblem[Given], client: int, round: int) -> None:
        self._problem, self._client, self._round = problem, client, round
        self._at: int | None = None

    @property
    def point(self) -> Vector:
        """The problem's one point."""
        return self._problem.point

    def loss(self, step: int) -> float:
        """The mean over the step's batch, as a Python float. Raises `DataError` where memory does not suffice."""
        given = self.batch(step)  # not within: tensors that are made there have no gradients, and this batch is kept
        with torch.inference_mode():
            return float(self._problem.mean(given))

    def loss_at(self, step: int, fill: Fill) -> float:
        """The same where `fill` says, with one layer's parameters in memory. Raises `DataError`."""
        given = self.batch(step)
        return self._problem.trained.loss_at(fill, lambda: self._problem.mean(given))

    def gradient(self, step: int, criterion: None = None) -> NDArray[np.float32]:
        """The gradient of that mean at `point`, float32 [d], in a buffer that the next call overwrites.

        criterion: another loss than the task's own; text has none. Raises `DataError`.
        """
        if criterion is not None:
            raise DataError("a task on text", "an algorithm with a loss of its own", "one that takes the task's")
        return self._problem.trained.gradient(self._problem.mean(self.batch(step)))

    @property
    def samples(self) -> int:
        """How many training samples the client holds."""
        return self._problem.samples(self._client)

    @property
    def key(self) -> int:
        """64 bits of this client and round."""
        return private_key(self._problem.seed, self._client, self._round)

    @property
    def steps_an_epoch(self) -> int:
        """How many mini-batches make one pass over the client's samples."""
        return batches_per_pass(self._problem.parts[self._client], self._problem.batch_size)

    def batch(self, step: int) -> Given:
        """The step's mini-batch, made when the step first asks for it."""
        problem, client = self._problem, self._client
        if step != self._at:
            key = {"seed": problem.seed, "client": client, "round": self._round, "step": step}
            self._given = problem.given(batch(problem.parts[client], problem.batch_size, **key))
            self._at = step
        return self._given


def identity(problem: TextProblem[Any], tokenizer: Any, *, special: bool) -> bytes:
    """A digest of what x₀ does not show: frozen weights, what the tokenizer does, and the samples.

    special: whether the tokens that it puts around a text by itself are used.
    """
    words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
    does = [tokenizer(_PROBE, add_special_tokens=special)["input_ids"], tokenizer.bos_token_id, tokenizer.eos_token_id]
    samples = hashlib.blake2b()
    for split in problem.splits.values():
        for sample in split:
            samples.update(json.dumps(sample).encode())
    return problem.trained.frozen_digest(json.dumps([words, does]).encode(), samples.digest())


@contextmanager
def roomy(shape: Sequence[int], field: str) -> Iterator[None]:
    """Memory that does not suffice for [rows, width] tokens: one sentence that says what would take less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        rows, width = shape
        fewer = f"task.batch_size: {max(1, rows // 2)}, or " if field == "task.batch_size" else ""
        expected = f"{fewer}a task.max_length below {width}"
        raise NoRoom(field, f"no memory for {rows} sequences of {width} tokens", expected) from error
