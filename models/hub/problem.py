"""A model of `transformers`, bound to a data set of `datasets`. All clients share one model and one vector.

The invariant: a client's loss is computed on its own batch alone, by the same operations wherever the client is hosted.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.data.batches import parts
from seedbus.models.device import moved
from seedbus.models.hub.networks import NETWORKS, ImageClassifier, image_bytes
from seedbus.models.hub.rows import Row, contents
from seedbus.models.hub.settings import HuggingFaceSettings
from seedbus.models.parameters.losses import resolution_of
from seedbus.models.parameters.trained_vector import TrainedVector
from seedbus.models.partition import Partition
from seedbus.models.resident import fits
from seedbus.models.task import Vector
from seedbus.models.text.problem import PretrainedProblem
from seedbus.models.text.tokens import chunks
from seedbus.models.text.weights import inspect_pretrained
from seedbus.tensors import wide

EVALUATION_TOKENS = 8_192  # of one forward pass
EVALUATION_IMAGES = 128
KEPT_PIXELS = 2**26  # numbers of 4 bytes: 446 images of 3×224×224, and all of a small set
Batch = tuple[list[Any], Tensor]


class HubProblem(PretrainedProblem[Row, Batch]):
    """Implements `task.Problem`. Not thread-safe. A batch is the encoded rows, and their classes [b]."""

    def __init__(self, task: HuggingFaceSettings, *, seed: int, clients: int, partition: Partition) -> None:
        expected = task.dimension  # read first, because its errors about a wrong folder are clearer
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self.task = task
        self.resolution = resolution_of(task.compute_dtype)
        self.network = NETWORKS[task.head](task, seed)
        self.set_trained(self.network.trained, expected)
        self._encoded: dict[tuple[str, int], Any] = {}
        self._kept_pixels = 0
        self._are_resident: bool | None = None

    def load(self) -> TrainedVector:
        """See `text.problem`. Raises `DataError`."""
        return NETWORKS[self.task.head](self.task, self.seed).trained

    def identity(self) -> bytes:
        """Return a digest of everything that decides a loss and is not part of x₀.

        That is frozen weights, buffers, the model's configuration, what tokenizer or image processor do, the samples,
        and their division if a file gives it; of owners' samples nothing.
        """
        config = json.dumps(inspect_pretrained(self.task.model).config, sort_keys=True).encode()
        samples = hashlib.blake2b()
        for split in self.proven():
            for row, content in zip(split, contents(split), strict=True):
                samples.update(b"%d %d:" % (row.label, row.owner))
                for name in (self.task.columns.text, self.task.columns.text_pair):
                    samples.update(b"" if name is None else json.dumps(content[name]).encode())
                if self.task.columns.image is not None:
                    samples.update(hashlib.blake2b(image_bytes(self.task, row.number, content)).digest())
        samples.update(self.division_identity)
        facts = self.network.facts(self.splits.get("specimens", self.splits["train"])[0])
        return self.trained.frozen_digest(config, facts, samples.digest())

    def measured(self, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the task's metrics, means over samples; the perplexity is that of all tokens. Raises `DataError`."""
        rows, chosen = self.splits[split], indices.tolist()
        sums: defaultdict[str, float] = defaultdict(float)
        for group in self._groups(split, chosen):
            items = [self._item(split, index) for index in group]
            labels = self.on_device(torch.tensor([rows[index].label for index in group]))
            with torch.inference_mode():
                measures = self.network.measures(items, labels)
            for name, values in measures.items():
                sums[name] += float(wide(values).sum())
        return self.network.metrics(sums, len(chosen))

    def _groups(self, split: str, chosen: list[int]) -> list[list[int]]:
        """Return the indices of an evaluation's forward passes."""
        if isinstance(self.network, ImageClassifier):
            most = min(EVALUATION_IMAGES, self.micro_batch or EVALUATION_IMAGES)
            return [chosen[span] for span in parts(len(chosen), most)]
        lengths = [self.network.length(self._item(split, index)) for index in chosen]
        return [[chosen[position] for position in group] for group in chunks(lengths, EVALUATION_TOKENS)]

    def lengths(self, indices: NDArray[np.int64]) -> list[int]:
        """See `text.problem`."""
        network = self.network
        if isinstance(network, ImageClassifier):
            return super().lengths(indices)
        return [network.length(self._item("train", int(index))) for index in indices]

    @property
    def number_of_classes(self) -> int:
        """The number of the model's classes; 0 for a causal model."""
        return self.task.classes

    def training_batch(
        self, indices: NDArray[np.int64], split: str = "train", new_classes: NDArray[np.int64] | None = None
    ) -> Batch:
        """Return samples as encoded rows, and their classes."""
        labels = self.on_device(torch.tensor(self.labels(indices, split, new_classes)))
        return [self._item(split, int(i)) for i in indices], labels

    def mean_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over the samples of a batch."""
        return self.network.loss(*batch)

    def state_dict(self, x: Vector) -> dict[str, NDArray[np.float32]]:
        """Return x as tensors, by the names under which transformers and peft load them."""
        with self.trained.at(x):
            return {self.network.training.name(name): tensor for name, tensor in self.trained.tensors().items()}

    def _item(self, split: str, index: int) -> Any:
        """Return a sample, encoded: tokens are kept, and pixels as long as they are less than `KEPT_PIXELS`.

        Kept pixels lie on the device if all that may be kept fit there.
        """
        key = split, index
        if key in self._encoded:
            return self._encoded[key]
        item = self.network.encode(self.splits[split][index])
        size = item.numel() if isinstance(item, Tensor) else 0
        if self._kept_pixels + size <= KEPT_PIXELS:
            self._kept_pixels += size
            self._encoded[key] = item = self._placed(item)
        return item

    def _placed(self, item: Any) -> Any:
        """Return an encoded sample where it is kept: pixels on the device, or in host memory."""
        if not isinstance(item, Tensor) or self.device is None:
            return item
        if self._are_resident is None:
            images = min(KEPT_PIXELS // max(1, item.numel()), sum(map(len, self.splits.values())))
            self._are_resident = fits(images * item.nbytes, self.device)
        return moved(item, self.device) if self._are_resident else item
