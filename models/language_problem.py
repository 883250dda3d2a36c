"""A language model bound to its data: one module and one vector, which the objectives of all clients share.

A sample's score for an answer is the mean log-likelihood of the answer's tokens, as in MeZO's code; the answer that
scores highest is the prediction. A batch's loss is the mean over its samples (**ours** where answers differ in length:
MeZO's code takes the mean over all tokens of the batch, in which long answers weigh more).

The invariant: a client's loss is computed on its own batch alone, with float32 arithmetic, by the same operations
wherever the client is hosted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.models.answers import f1, is_exact
from seedbus.models.batches import batch
from seedbus.models.errors import DataError
from seedbus.models.language_model import LanguageModel
from seedbus.models.language_network import Network, is_out_of_memory
from seedbus.models.language_text import Batch, Encoder, Pair, chunks, collate
from seedbus.models.partitions import Partition
from seedbus.models.prompts import PROMPTS
from seedbus.models.task import Vector, check_split
from seedbus.models.text_files import Sample

EVALUATION_TOKENS = 8_192  # of one forward pass; more is no faster, and takes memory
_PROBE = "The quick brown fox isn't \u201c42\u201d years old; Yes, No, or Maybe?\n  It was great, naïve and terrible."


class LanguageProblem:
    """See `task.Problem`; for one thread."""

    def __init__(self, task: LanguageModel, *, seed: int, clients: int, partition: Partition) -> None:
        self.task, self.seed = task, seed
        expected = task.dimension  # first: what is wrong with a folder, its configuration says more plainly
        self.splits = task.splits(task.dataset, seed)
        self.parts = partition.split(np.array([each.label for each in self.splits["train"]]), clients, seed)
        self.network = Network(task, seed)
        self.trained = self.network.trained
        self._start = self.trained.point.copy()
        if self.dimension != expected:
            raise DataError(task.model, f"{self.dimension} trained weights", f"{expected}, as its header says")
        self.encoder = Encoder(self.network.tokenizer, PROMPTS[task.dataset], self.network.context)
        self._encoded: dict[tuple[str, int], list[Pair]] = {}

    @property
    def dimension(self) -> int:
        return int(self.trained.point.size)

    def x0(self) -> NDArray[np.float32]:
        """The pretrained weights, or what is added to them, float32 [d]."""
        return self._start.copy()

    def identity(self) -> bytes:
        """A digest of what x₀ does not show: frozen weights, what the tokenizer does, and the samples."""
        tokenizer = self.network.tokenizer
        words = sorted(tokenizer.get_vocab().items(), key=lambda word: word[1])
        does = [tokenizer(_PROBE)["input_ids"], tokenizer.bos_token_id, tokenizer.eos_token_id]
        samples = hashlib.blake2b()
        for split in self.splits.values():
            for sample in split:
                samples.update(json.dumps(sample).encode())
        return self.trained.frozen_digest(json.dumps([words, does]).encode(), samples.digest())

    def samples(self, client: int) -> int:
        """How many training samples the client holds."""
        return int(self.parts[client].size)

    def objective(self, client: int, round: int) -> LanguageObjective:
        """The client's loss in that round; it writes and reads this problem's one point."""
        return LanguageObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """{"loss", "accuracy"}, SQuAD {"loss", "accuracy", "f1"}: means over samples. Overwrites the point."""
        check_split(split)
        samples = self.splits[split]
        if not samples:
            raise DataError(f"task {self.task.name}", f"no samples in the {split} split", "a larger `validation`")
        self.trained.point[:] = x
        chosen = self.task.measured(self.task.dataset, len(samples))
        encoded = [self.encoded(split, int(index)) for index in chosen]
        labels = torch.tensor([samples[index].label for index in chosen])
        loss, correct = 0.0, 0
        for group in chunks([sum(pair.length for pair in pairs) for pairs in encoded], EVALUATION_TOKENS):
            given = collate([pair for index in group for pair in encoded[index]])
            with torch.inference_mode(), roomy(given, "task.max_length"):
                scores = self.scores(given).view(len(group), -1)
                loss += float(self.losses(scores, labels[group]).double().sum())
                correct += int((scores.argmax(dim=1) == labels[group]).sum())
        found = {"loss": loss / len(chosen), "accuracy": correct / len(chosen)}
        return found if PROMPTS[self.task.dataset].answers else found | self._generated([samples[i] for i in chosen])

    def _generated(self, samples: Sequence[Sample]) -> dict[str, float]:
        """{"accuracy", "f1"} of greedy answers, one sample at a time, as nothing then fills a row up."""
        exact, overlap, most = 0, 0.0, self.task.answer_tokens
        for sample in samples:
            asked = self.encoder.question(sample, most)
            answer = self.encoder.text(self.network.generate(asked, most, self.encoder.ends))
            exact += is_exact(answer, sample.answers)
            overlap += f1(answer, sample.answers)
        return {"accuracy": exact / len(samples), "f1": overlap / len(samples)}

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """x as the trained tensors, by the names that transformers and peft load them by. Overwrites the point."""
        self.trained.point[:] = x
        found = self.trained.tensors()
        return {name.replace(".default", "").removeprefix("_orig_mod."): tensor for name, tensor in found.items()}

    def encoded(self, split: str, index: int) -> list[Pair]:
        """The sample's pairs, made when they are first asked for and kept."""
        key = split, index
        if key not in self._encoded:
            self._encoded[key] = self.encoder.pairs(self.splits[split][index])
        return self._encoded[key]

    def scores(self, given: Batch) -> Tensor:
        """The mean log-likelihood of each pair's answer, float32 [pairs]."""
        logits = self.network.logits(given.ids, given.rows, given.columns)
        by_token = -cross_entropy(logits, given.targets, reduction="none")
        sums = torch.zeros(len(given.lengths)).index_add(0, given.owners, by_token)
        return sums / given.lengths

    def losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """scores [n, options], labels [n] → [n]; with one option, its own loss."""
        if self.task.loss == "options":
            return cross_entropy(scores, labels, reduction="none")
        return -scores.gather(1, labels[:, None] % scores.shape[1]).squeeze(1)


class LanguageObjective:
    """One client's loss in one round; keeps the batch of the step at hand, and nothing else."""

    def __init__(self, problem: LanguageProblem, client: int, round: int) -> None:
        self.point: Vector = problem.trained.point
        self._problem, self._client, self._round = problem, client, round
        self._at: int | None = None

    def loss(self, step: int) -> float:
        """The mean over the step's batch, as a Python float. Raises `DataError` where memory does not suffice."""
        with torch.inference_mode():
            return float(self._mean(step))

    def gradient(self, step: int, criterion: None = None) -> NDArray[np.float32]:
        """The gradient of that mean at `point`, float32 [d], in a buffer that the next call overwrites.

        criterion: another loss than the task's own; a language model has none. Raises `DataError`.
        """
        if criterion is not None:
            raise DataError("task language-model", "an algorithm with a loss of its own", "one that takes the task's")
        return self._problem.trained.gradient(self._mean(step))

    def batch(self, step: int) -> tuple[Batch, Tensor]:
        """The step's mini-batch, and the right option of every sample in it."""
        problem, client = self._problem, self._client
        key = {"seed": problem.seed, "client": client, "round": self._round, "step": step}
        indices = batch(problem.parts[client], problem.task.batch_size, **key)
        encoded = [problem.encoded("train", int(index)) for index in indices]
        labels = [problem.splits["train"][index].label for index in indices]
        if problem.task.loss == "answer":  # the other options are not looked at
            encoded = [[pairs[label % len(pairs)]] for pairs, label in zip(encoded, labels, strict=True)]
        return collate([pair for pairs in encoded for pair in pairs]), torch.tensor(labels)

    def _mean(self, step: int) -> Tensor:
        if step != self._at:
            self._given, self._labels = self.batch(step)
            self._at = step
        with roomy(self._given, "task.batch_size"):
            scores = self._problem.scores(self._given).view(len(self._labels), -1)
            return self._problem.losses(scores, self._labels).mean()


@contextmanager
def roomy(given: Batch, field: str) -> Iterator[None]:
    """Memory that does not suffice: one sentence that says what would take less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        rows, width = given.ids.shape
        expected = f"task.batch_size: {max(1, rows // 2)}, or a task.max_length below {width}"
        raise DataError(field, f"no memory for {rows} sequences of {width} tokens", expected) from error
