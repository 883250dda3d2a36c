"""A sentence encoder with its classifier, bound to data.

Attention is bidirectional, so padding is masked. If the encoder is frozen, the vector of each text is computed once and
alone, so that it does not depend on the other texts of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from seedbus.models.generators import generator
from seedbus.models.parameters.flat import initial_values
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partition import Partition
from seedbus.models.text.files import Sample
from seedbus.models.text.language_network import draw_lora, load, peft_model
from seedbus.models.text.problem import PretrainedProblem, explain_out_of_memory, identity
from seedbus.models.text.sentence_settings import SentenceEncoderSettings
from seedbus.models.text.tokens import chunks
from seedbus.models.text.training import Full, Lora
from seedbus.models.text.weights import inspect_pretrained
from seedbus.tensors import wide

EVALUATION_TOKENS = 8_192  # of one forward pass
SentenceBatch = tuple[list[tuple[str, int]], Tensor]


class SentenceProblem(PretrainedProblem[Sample, SentenceBatch]):
    """Implements `task.Problem`. Not thread-safe. A batch is (split, index) of each sample, and the labels [b]."""

    def __init__(self, task: SentenceEncoderSettings, *, seed: int, clients: int, partition: Partition) -> None:
        expected = task.dimension
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self.task = task
        self.module, self.tokenizer = _network(task, seed)
        self.set_trained(TrainedVector(self.module), expected)
        self._is_frozen = not any(p.requires_grad for p in self.module["encoder"].parameters())
        self._vectors: dict[str, Tensor] = {}
        self._tokens: dict[str, list[int]] = {}

    def load(self) -> TrainedVector:
        """See `problem.PretrainedProblem`. Raises `DataError`."""
        return TrainedVector(_network(self.task, self.seed)[0])

    def identity(self) -> bytes:
        """See `problem.identity`."""
        return identity(self, self.tokenizer, special=True)

    def measured(self, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return "loss" and "accuracy", means over samples."""
        samples, chosen = self.splits[split], indices.tolist()
        loss = 0.0
        correct = 0
        for group, logits in self._logits_of(split, chosen):
            labels = self.on_device(torch.tensor([samples[chosen[position]].label for position in group]))
            loss += float(wide(cross_entropy(logits, labels, reduction="none")).sum())
            correct += int((logits.argmax(dim=1) == labels).sum())
        return {"loss": loss / len(chosen), "accuracy": correct / len(chosen)}

    def _logits_of(self, split: str, chosen: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield groups of places in `chosen`, the indices of samples, and the logits of each, [group, classes]."""
        lengths = [max(len(text) for text in self._texts(split, index)) for index in chosen]
        for group in chunks(lengths, EVALUATION_TOKENS) if chosen else ():
            with torch.inference_mode():
                logits = self._logits([(split, chosen[position]) for position in group])
            yield group, logits

    def outputs(self, samples: Sequence[Sample]) -> NDArray[np.float64]:
        """Return the logits of samples, [n, classes], of the parameters that the network has."""
        self.splits["new"] = list(samples)
        outputs = np.zeros((len(samples), self.task.classes))
        for group, logits in self._logits_of("new", range(len(samples))):
            outputs[group] = logits.cpu().numpy()
        return outputs

    def lengths(self, indices: NDArray[np.int64]) -> list[int]:
        """See `problem.PretrainedProblem`."""
        return [max(len(self._tokenized(text)) for text in self._texts("train", int(index))) for index in indices]

    @property
    def number_of_classes(self) -> int:
        """The number of the data set's classes."""
        return self.task.classes

    def training_batch(
        self, indices: NDArray[np.int64], split: str = "train", new_classes: NDArray[np.int64] | None = None
    ) -> SentenceBatch:
        """Return the keys of samples, and their labels."""
        labels = self.labels(indices, split, new_classes)
        return [(split, int(index)) for index in indices], self.on_device(torch.tensor(labels))

    def mean_loss(self, batch: SentenceBatch) -> Tensor:
        """Return the mean cross-entropy over the samples of a batch."""
        keys, labels = batch
        return cross_entropy(self._logits(keys), labels)

    def _texts(self, split: str, index: int) -> list[str]:
        fields = self.splits[split][index].fields
        return [fields[name] for name in self.task.encoded]

    def _logits(self, keys: Sequence[tuple[str, int]]) -> Tensor:
        """Return the logits of the samples with these keys (split, index), [n, classes]."""
        columns = [self._encoded(texts) for texts in zip(*(self._texts(*key) for key in keys), strict=True)]
        if len(columns) == 2:
            columns.append((columns[0] - columns[1]).abs())
        logits: Tensor = self.module["head"](torch.cat(columns, dim=1))
        return logits

    def _encoded(self, texts: Sequence[str]) -> Tensor:
        """Return a unit vector for each text, [n, width]."""
        if not self._is_frozen:
            return self._forward(texts)
        for text in texts:
            if text not in self._vectors:
                with torch.no_grad():
                    self._vectors[text] = self._forward([text])[0]
        return torch.stack([self._vectors[text] for text in texts])

    def _forward(self, texts: Sequence[str]) -> Tensor:
        rows = [self._tokenized(text) for text in texts]
        width = max(map(len, rows))
        ids = self.on_device(torch.tensor([row + [0] * (width - len(row)) for row in rows]))
        mask = self.on_device(torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]))
        with explain_out_of_memory(ids.shape, len(texts)):
            states = self.module["encoder"](input_ids=ids, attention_mask=mask).last_hidden_state
            sums = (states * mask[..., None]).sum(dim=1)
            return normalize(sums / mask.sum(dim=1, keepdim=True))

    def _tokenized(self, text: str) -> list[int]:
        if text not in self._tokens:
            encoding = self.tokenizer(text, truncation=True, max_length=self.task.max_length)
            self._tokens[text] = encoding["input_ids"]
        return self._tokens[text]


def _network(task: SentenceEncoderSettings, seed: int) -> tuple[nn.ModuleDict, Any]:
    """Return the encoder with its head, and the tokenizer."""
    encoder, tokenizer = load(task.model, "float32", "AutoModel", add_pooling_layer=False)
    parts = {"encoder": _prepared(encoder, task, seed), "head": _head(encoder, task, seed)}
    return nn.ModuleDict(parts), tokenizer


def _prepared(encoder: Any, task: SentenceEncoderSettings, seed: int) -> Any:
    """Return the encoder with `requires_grad` set on its trained parameters."""
    encoder.requires_grad_(isinstance(task.train, Full))
    if isinstance(task.train, Lora):
        targets = list(task.train.layers(inspect_pretrained(task.model).shapes))
        encoder = peft_model(
            encoder, "LoraConfig", r=task.train.rank, lora_alpha=task.train.alpha, target_modules=targets
        )
        draw_lora(encoder, task.name, seed)
    return encoder


def _head(encoder: Any, task: SentenceEncoderSettings, seed: int) -> nn.Module:
    width = encoder.config.hidden_size * (1 if len(task.encoded) == 1 else 3)
    head = nn.Linear(width, task.classes)
    drawn = torch.from_numpy(initial_values(head, generator("x0", task.name, seed)))
    head.weight.data = drawn[: head.weight.numel()].view(head.weight.shape)
    head.bias.data = drawn[-task.classes :]
    return head
