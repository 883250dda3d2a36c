"""A language model bound to its data: one module and one vector, which the objectives of all clients share.

A sample's score for an answer is the mean log-likelihood of the answer's tokens, as in MeZO's code; the answer that
scores highest is the prediction. A batch's loss is the mean over its samples (**ours** where answers differ in length:
MeZO's code takes the mean over all tokens of the batch, in which long answers weigh more).

The invariant: a client's loss is computed on its own batch alone, with float32 arithmetic, by the same operations
wherever the client is hosted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partitions import Partition
from seedbus.models.task import Vector
from seedbus.models.text.answers import f1, is_exact
from seedbus.models.text.files import Sample
from seedbus.models.text.language_network import Network
from seedbus.models.text.language_settings import LanguageModelSettings
from seedbus.models.text.problem import TextProblem, identity, roomy
from seedbus.models.text.prompts import PROMPTS
from seedbus.models.text.tokens import Batch, Encoder, Pair, chunks, collate

EVALUATION_TOKENS = 8_192  # of one forward pass; more is no faster, and takes memory


class LanguageProblem(TextProblem[tuple[Batch, Tensor]]):
    """See `task.Problem`; for one thread."""

    def __init__(self, task: LanguageModelSettings, *, seed: int, clients: int, partition: Partition) -> None:
        expected = task.dimension  # first: what is wrong with a folder, its configuration says more plainly
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self.task = task
        self.network = Network(task, seed)
        self.hold(self.network.trained, expected)
        self.encoder = Encoder(self.network.tokenizer, PROMPTS[task.dataset], self.network.context)
        self._encoded: dict[tuple[str, int], list[Pair]] = {}

    def load(self) -> TrainedVector:
        """See `text_problem.TextProblem`. Raises `DataError`."""
        return Network(self.task, self.seed).trained

    def identity(self) -> bytes:
        """See `text_problem.identity`."""
        return identity(self, self.network.tokenizer, special=False)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """{"loss", "accuracy"}, SQuAD {"loss", "accuracy", "f1"}: means over samples."""
        samples = self.taken(split)
        with self.trained.at(x):
            return self._measured(samples, split)

    def _measured(self, samples: Sequence[Sample], split: str) -> dict[str, float]:
        """With the parameters as they are."""
        chosen = self.task.measured(len(samples))
        encoded = [self.encoded(split, int(index)) for index in chosen]
        labels = torch.tensor([samples[index].label for index in chosen])
        loss, correct = 0.0, 0
        for group in chunks([sum(pair.length for pair in pairs) for pairs in encoded], EVALUATION_TOKENS):
            given = collate([pair for index in group for pair in encoded[index]])
            with torch.inference_mode(), roomy(given.ids.shape, "task.max_length"):
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

    def encoded(self, split: str, index: int) -> list[Pair]:
        """The sample's pairs, made when they are first asked for and kept."""
        key = split, index
        if key not in self._encoded:
            self._encoded[key] = self.encoder.pairs(self.splits[split][index])
        return self._encoded[key]

    def given(self, indices: NDArray[np.int64]) -> tuple[Batch, Tensor]:
        """Training samples as a batch, and the right option of each."""
        encoded = [self.encoded("train", int(index)) for index in indices]
        labels = [self.splits["train"][index].label for index in indices]
        if self.task.loss == "answer":  # the other options are not looked at
            encoded = [[pairs[label % len(pairs)]] for pairs, label in zip(encoded, labels, strict=True)]
        return collate([pair for pairs in encoded for pair in pairs]), torch.tensor(labels)

    def mean(self, given: tuple[Batch, Tensor]) -> Tensor:
        """The mean loss over the samples of a batch."""
        batch, labels = given
        with roomy(batch.ids.shape, "task.batch_size"):
            return self.losses(self.scores(batch).view(len(labels), -1), labels).mean()

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
