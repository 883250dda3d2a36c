"""A task that classifies images or other samples that are stored as bytes, bound to its data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from seedbus.models.data.batches import parts
from seedbus.models.data.samples import Images
from seedbus.models.device import moved
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.images.resident_images import ResidentImages, resident_images
from seedbus.models.images.sample_problem import SampleProblem
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.own_code.named import MODEL_FIELD
from seedbus.models.own_code.own_metrics import words_of
from seedbus.models.own_code.own_network import OwnNetwork, shapes_of
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.partition import Indices, Partition, digest
from seedbus.models.partitions.own import Own
from seedbus.models.task import SPLITS, Vector
from seedbus.tensors import wide


class ImageProblem(SampleProblem[Images]):
    """Implements `task.Problem`. Not thread-safe. A subclass may override `loss` and `measures`."""

    is_recordable = True

    def __init__(self, task: ClassifierSettings, *, seed: int, clients: int, partition: Partition) -> None:
        own = task.own_network
        self._own = None if own is None else OwnNetwork(own, seed, field=MODEL_FIELD)
        flat = FlatModule(task.network()) if self._own is None else self._own.flat
        splits = partition.splits(task) if isinstance(partition, Own) else task.splits()
        super().__init__(task, flat, splits, seed=seed, clients=clients, partition=partition)
        self.task = task
        self._measures = words_of(task)
        self._on_device: dict[int, ResidentImages | None] = {}
        if task.own_data and not partition.is_partial:
            self._identity = samples_identity(self.splits, self.parts)
        if self._own is not None:
            self._identity = self._own.identity(self._identity)
            self.without_gradients = torch.no_grad  # a module may keep a tensor of one pass for a later gradient
            self.is_recordable = False
            self._try(self._own)
        self.check_metrics()

    def x0(self) -> NDArray[np.float32]:
        """PyTorch's default initial distribution, or the weights of the user's network, float32 [d]."""
        if self._own is not None:
            return self._own.x0.copy()
        return initial_values(self.flat.module, generator("x0", self.task.name, self.seed))

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the means of `measures` over samples, summed in float64, and the metrics of the user."""
        images, sums, own = self.splits[split], dict.fromkeys(self._measures, 0.0), self.own_metrics(indices.size)
        with self.without_gradients(), self.flat.at(x):
            for span in parts(indices.size, self.evaluation_batch):
                inputs, labels = self.tensors(images, indices[span])
                outputs = self.forward(inputs)
                measured = self.measures(outputs, labels)
                for name, measure in self._measures.items():
                    sums[name] += float(wide(measured[measure]).sum())
                own.add(outputs, labels)
        found = {name: total / indices.size for name, total in sums.items()} | own.values()
        return {name: found[name] for name in self.task.metrics}

    def forward(self, inputs: Any) -> Any:
        """Return the network's outputs for a batch of inputs, [b, …]. Raises `DataError` if a user's network fails."""
        if self._own is None or self.task.forward != "eager":  # then errors are those of torch's compiler, or of vmap
            return self.flat.module(inputs)
        return self._own.passed(self.flat.module, inputs)

    @property
    def number_of_outputs(self) -> int:
        """The number of outputs that a network needs for each sample: one for a class, and more do no harm."""
        classes = self.task.class_names()
        return len(classes) or int(max(split.labels.max(initial=0) for split in self.splits.values())) + 1

    def _try(self, own: OwnNetwork) -> None:
        """Compute the outputs of the first batch, to find mistakes before the run. Raises `DataError`."""
        samples = self.specimens
        first = np.arange(min(self.task.batch_size, samples.labels.size))
        outputs = own.check_passes(lambda inputs: self.flat.module(inputs), lambda: self.tensors(samples, first)[0])
        needed = self.number_of_outputs
        is_batch = isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == first.size
        more = outputs.shape[1] - needed if is_batch and outputs.dtype == torch.float32 else -1
        if more < 0 or (more and not self.number_of_classes):
            inputs = shapes_of(self.tensors(samples, first)[0])
            kind = "" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__} of "
            found = f"{own.name}, whose outputs are {kind}{shapes_of(outputs)} for inputs {inputs}"
            raise DataError(MODEL_FIELD, found, f"float32[{first.size}, {needed}]")

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss that a step minimises, the mean over its batch: cross-entropy."""
        return cross_entropy(outputs, labels)

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the task's metrics of each sample, [b]. The mean of "loss" equals `loss`."""
        return {
            "loss": cross_entropy(outputs, labels, reduction="none"),
            "accuracy": outputs.argmax(dim=1) == labels,
        }

    def tensors(self, samples: Images, indices: NDArray[np.int64], **key: int) -> tuple[Tensor, Tensor]:
        """Return a batch as tensors.

        Args:
            samples: those of a split.
            indices: which samples, [b].
            key: for a training step: seed, client, round and step, which key the augmentation.

        Returns:
            Inputs, and labels int64 [b]. Images are float32 [b, channels, height, width] in channels_last order, and
            texts int64 [b, length].
        """
        labels = torch.from_numpy(samples.labels[indices])
        resident = self._resident(samples.stored)
        if resident is None:
            stored = samples.pick(indices)
            inputs = torch.from_numpy(self.task.inputs(self.task.augmented(stored, **key) if key else stored))
        else:
            pixels = resident.at(samples.places(indices))
            inputs = resident.inputs(self.task.augmented(pixels, **key) if key else pixels)
        inputs = inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs
        return moved((inputs, labels), self.flat.device)

    def _resident(self, stored: NDArray[Any]) -> ResidentImages | None:
        """Return stored samples on the device; None: batches are made in host memory."""
        if self.flat.device is None:
            return None
        if id(stored) not in self._on_device:  # the splits keep `stored`, so no other array gets its number
            self._on_device[id(stored)] = resident_images(stored, self.task, self.flat.device)
        return self._on_device[id(stored)]


def samples_identity(splits: Mapping[str, Images], parts: Sequence[Indices]) -> bytes:
    """Return a digest of the samples of all splits and of their division, 16 bytes."""
    return hashlib.blake2b(
        b"".join([*(splits[name].digest() for name in SPLITS), digest(parts)]), digest_size=16
    ).digest()
