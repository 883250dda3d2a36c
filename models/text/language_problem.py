"""A language model bound to its data. The objectives of all clients share one module and one vector.

The score of an answer is the mean log-likelihood of its tokens, as in MeZO's code; the answer with the highest score is
the prediction. The loss of a batch is the mean over its samples. **Ours**, if answers differ in length: MeZO's code
takes the mean over all tokens of the batch, so that long answers weigh more.

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
from torch.utils._pytree import tree_leaves

from seedbus.models.device import vector_on
from seedbus.models.parameters.coordinates import aligned_zeros
from seedbus.models.parameters.losses import resolution_of
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partition import Partition
from seedbus.models.partitions.own import Own
from seedbus.models.resident import fits
from seedbus.models.task import Fill
from seedbus.models.text.answers import f1, is_exact
from seedbus.models.text.files import Sample
from seedbus.models.text.language_network import Network
from seedbus.models.text.language_settings import LanguageModelSettings
from seedbus.models.text.problem import PretrainedProblem, explain_out_of_memory, identity
from seedbus.models.text.tokens import Batch, Encoder, Pair, chunks, collate
from seedbus.tensors import wide

EVALUATION_TOKENS = 8_192  # of one forward pass; more are not faster and need more memory


class LanguageProblem(PretrainedProblem[Sample, tuple[Batch, Tensor]]):
    """Implements `task.Problem`. Not thread-safe."""

    def __init__(self, task: LanguageModelSettings, *, seed: int, clients: int, partition: Partition) -> None:
        expected = task.dimension  # read first, because its errors about a wrong folder are clearer
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self.task = task
        self.resolution = resolution_of(task.compute_dtype)
        self.network = self._network()
        self.set_trained(self.network.trained, expected)
        self.encoder = Encoder(self.network.tokenizer, task.prompt, self.network.context)
        self._encoded: dict[tuple[str, int], list[Pair]] = {}
        self._evaluated: dict[str, list[tuple[Batch, Tensor]]] = {}

    def load(self) -> TrainedVector:
        """See `problem.PretrainedProblem`. Raises `DataError`."""
        return self._network().trained

    def _network(self) -> Network:
        is_packed = self.task.batching == "packed"
        return Network(self.task, self.seed, is_packed=is_packed, is_private=isinstance(self._partition, Own))

    def identity(self) -> bytes:
        """See `problem.identity`."""
        return identity(self, self.network.tokenizer, special=False)

    def evaluate_at(self, fill: Fill, split: str) -> dict[str, float]:
        """See `problem.PretrainedProblem`. Where answers are generated, each token would take every layer anew."""
        if self.task.classes:
            return super().evaluate_at(fill, split)
        x = vector_on(aligned_zeros(self.dimension), self.device)
        fill(slice(0, self.dimension), x)
        return self.evaluate(x, split)

    def measured(self, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return means over samples: "loss" and "accuracy", for SQuAD also "f1"."""
        samples = [self.splits[split][index] for index in indices]
        loss = 0.0
        correct = 0
        for batch, labels in self._evaluation_batches(split, indices):
            batch, labels = self.on_device((self._prepared(batch), labels))
            with torch.inference_mode(), explain_out_of_memory(batch.ids.shape):
                scores = self.scores(batch).view(len(labels), -1)
                loss += float(wide(self.losses(scores, labels)).sum())
                correct += int((scores.argmax(dim=1) == labels).sum())
        metrics = {"loss": loss / len(samples), "accuracy": correct / len(samples)}
        return metrics if self.task.classes else metrics | self._generated(samples)

    def outputs(self, samples: Sequence[Sample]) -> NDArray[np.float64]:
        """Return the score of each answer of samples, [n, classes], of the parameters that the network has."""
        encoded = [self.encoder.pairs(sample) for sample in samples]
        outputs = np.zeros((len(samples), self.task.classes))
        for group in chunks([sum(pair.length for pair in pairs) for pairs in encoded], EVALUATION_TOKENS):
            if group:
                batch = self.on_device(self._prepared(collate([pair for place in group for pair in encoded[place]])))
                with torch.inference_mode(), explain_out_of_memory(batch.ids.shape):
                    outputs[group] = self.scores(batch).view(len(group), -1).cpu().numpy()
        return outputs

    def _evaluation_batches(self, split: str, indices: NDArray[np.int64]) -> list[tuple[Batch, Tensor]]:
        """Return the batches of an evaluation, and the labels of each.

        Those of all evaluated samples are made once, and lie on the device if they fit; those of a part are not kept,
        as the parts of many clients would fill the memory.
        """
        if not np.array_equal(indices, self.evaluated(split)):
            return self._collated(split, indices)
        if split not in self._evaluated:
            batches = self._collated(split, indices)
            size = sum(each.nbytes for pair in batches for each in tree_leaves(pair) if isinstance(each, Tensor))
            are_resident = self.device is not None and fits(size, self.device)
            self._evaluated[split] = self.on_device(batches) if are_resident else batches
        return self._evaluated[split]

    def _collated(self, split: str, indices: NDArray[np.int64]) -> list[tuple[Batch, Tensor]]:
        encoded = [self.encoded(split, int(index)) for index in indices]
        return [
            (
                collate([pair for place in group for pair in encoded[place]]),
                torch.tensor(self.labels(indices[group], split)),
            )
            for group in chunks([sum(pair.length for pair in pairs) for pairs in encoded], EVALUATION_TOKENS)
        ]

    def _generated(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Return "accuracy" and "f1" of greedy answers. Samples are generated one by one, so there is no padding."""
        exact = 0
        f1_sum = 0.0
        length = self.task.answer_tokens
        for sample in samples:
            prompt = self.encoder.question(sample, length)
            answer = self.encoder.text(self.network.generate(prompt, length, self.encoder.ends))
            exact += is_exact(answer, sample.answers)
            f1_sum += f1(answer, sample.answers)
        return {"accuracy": exact / len(samples), "f1": f1_sum / len(samples)}

    def encoded(self, split: str, index: int) -> list[Pair]:
        """Return the pairs of a sample, encoded once."""
        key = split, index
        if key not in self._encoded:
            self._encoded[key] = self.encoder.pairs(self.splits[split][index])
        return self._encoded[key]

    def lengths(self, indices: NDArray[np.int64]) -> list[int]:
        """See `problem.PretrainedProblem`."""
        return [max(pair.length for pair in self.encoded("train", int(index))) for index in indices]

    @property
    def number_of_classes(self) -> int:
        """The number of answers; 0: answers are text of the samples."""
        return self.task.classes

    def training_batch(
        self, indices: NDArray[np.int64], split: str = "train", new_classes: NDArray[np.int64] | None = None
    ) -> tuple[Batch, Tensor]:
        """Return samples as a batch of training, and the label of each."""
        encoded = [self.encoded(split, int(index)) for index in indices]
        labels = self.labels(indices, split, new_classes)
        if self.task.loss == "answer":  # the other answers are not needed
            encoded = [[pairs[label % len(pairs)]] for pairs, label in zip(encoded, labels, strict=True)]
        batch = collate([pair for pairs in encoded for pair in pairs]), torch.tensor(labels)
        return self.on_device((self._prepared(batch[0]), batch[1]))

    def _prepared(self, batch: Batch) -> Batch:
        return self.network.prepared(batch, self.number_of_classes if self.task.loss == "options" else 0)

    def mean_loss(self, batch: tuple[Batch, Tensor]) -> Tensor:
        """Return the mean loss over the samples of a batch."""
        pairs, labels = batch
        with explain_out_of_memory(pairs.ids.shape, len(labels)):
            return self.losses(self.scores(pairs).view(len(labels), -1), labels).mean()

    def scores(self, batch: Batch) -> Tensor:
        """Return the mean log-likelihood of each pair's answer, float32 [pairs]."""
        return self.network.scores(batch)

    def losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, [n].

        Args:
            scores: of each answer, [n, answers], or of the right answer only, [n, 1].
            labels: the right answer, [n].
        """
        if self.task.loss == "options":
            return cross_entropy(scores, labels, reduction="none")
        return -scores.gather(1, labels[:, None] % scores.shape[1]).squeeze(1)
