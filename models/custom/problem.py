"""The user's own network and data, bound: x₀ from the module's own weights, losses and metrics by functions.

The invariant: a loss is a function of x, the batch and constants. Constants (frozen parameters, buffers, the data) are
digested in `identity`; a forward pass that changes its weights or buffers, or draws at random, is refused.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from seedbus.models.custom.samples import IGNORED, Selection, check_divisible
from seedbus.models.custom.settings import TorchSettings
from seedbus.models.data.batches import parts
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.images.sample_problem import SampleProblem
from seedbus.models.own_code.named import found, name_of
from seedbus.models.own_code.network import TORCH_FIELD, reason
from seedbus.models.own_code.own_metrics import value_of
from seedbus.models.own_code.own_network import OwnNetwork, shapes_of, ways_out
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.partition import Partition
from seedbus.models.streams import stream
from seedbus.models.task import Vector
from seedbus.tensors import wide

_LOSSES: dict[str, Any] = {"cross-entropy": cross_entropy, "mse": mse_loss}


class TorchProblem(SampleProblem[Selection]):
    """Implements `task.Problem`. Not thread-safe."""

    without_gradients = torch.no_grad  # a module may keep a tensor of one pass, such as a mask, for a later gradient

    def __init__(self, task: TorchSettings, *, seed: int, clients: int, partition: Partition) -> None:
        own = OwnNetwork(task.network, seed, field=TORCH_FIELD, batch_norm=task.batch_norm)
        self._own = own
        if task.initial == "drawn":
            own.x0 = _drawn(own.flat, seed)
        splits = task.splits()
        check_divisible(partition, splits["train"])
        super().__init__(task, own.flat, splits, seed=seed, clients=clients, partition=partition)
        self.task = task
        named = isinstance(task.loss, str) and task.loss in _LOSSES
        self._loss = _LOSSES[task.loss] if named else found(task.loss, "task.loss")
        self._accuracies = [name for name, metric in task.functions.items() if metric == "accuracy"]
        self._is_eager = task.forward == "eager"
        self._constants = self._digest()
        self._check_classes()
        self._try()

    def x0(self) -> NDArray[np.float32]:
        """Return the weights that the user's function gave the network, or drawn ones, float32 [d]."""
        return self._own.x0.copy()

    def identity(self) -> bytes:
        """Return a digest of what decides losses beside x: frozen parameters, buffers, all samples, their division."""
        return self._constants

    def classes(self, split: str = "train") -> NDArray[np.int64]:
        """Return the target of each sample of a split, [n]; `task.labels` are for partitions. Raises `DataError`."""
        samples = self.splits[split]
        if samples.reading.classes is None:
            expected = "a class for each sample, or a method that does not count a client's samples of each class"
            which = "training" if split == "train" else split
            raise DataError(f"task.data: the {which} set", "targets that are no classes", expected)
        return samples.reading.classes[samples.rows]

    @property
    def number_of_classes(self) -> int:
        """The number of classes; 0: targets are no single whole numbers from 0 on."""
        targets = self.splits["train"].reading.classes
        return 0 if targets is None or targets.min() < 0 else super().number_of_classes

    def tensors(self, samples: Selection, indices: NDArray[np.int64], **key: int) -> tuple[Any, Tensor]:
        """Return inputs in the structure of the data set's items, and targets. See `SampleProblem.tensors`."""
        return samples.batch(indices, self.flat.device)

    def forward(self, inputs: Any) -> Any:
        """Return the network's outputs: inputs that are a list or mapping are its arguments."""
        if isinstance(inputs, dict):
            return self.flat.module(**inputs)
        return self.flat.module(*inputs) if isinstance(inputs, list | tuple) else self.flat.module(inputs)

    def loss(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        loss: Tensor = self._loss(outputs, labels)
        return loss

    def mean_loss(self, inputs: Any, labels: Tensor) -> Tensor:
        """See `SampleProblem.mean_loss`. Raises `DataError` if the network or the loss fails."""
        if not self._is_eager:  # errors are those of torch's compiler, or of vmap
            return super().mean_loss(inputs, labels)
        return self._passed(inputs, labels)[1]

    def _passed(self, inputs: Any, targets: Tensor) -> tuple[Any, Tensor]:
        """Return the outputs and the loss of a batch. Raises `DataError`."""
        try:
            outputs = self.forward(inputs)
            return outputs, self.loss(outputs, targets)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            where = f"an error on inputs {shapes_of(inputs)} and targets {shapes_of(targets)} ({reason(error)})"
            expected = ways_out(error) or "a network and a loss for all items of the data set"
            raise DataError(TORCH_FIELD, where, expected) from error

    def counted(self, labels: Tensor) -> float:
        """Return the weight of a batch's mean: its samples, by the share of targets that cross-entropy counts."""
        if self._loss is not cross_entropy or labels.ndim == 1:  # no sample is left out completely
            return len(labels)
        return len(labels) * float(wide(labels != IGNORED).mean())

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the means of loss and accuracy over samples, and the metrics of the user. Raises `DataError`."""
        samples, sums, total = self.splits[split], dict.fromkeys(("loss", *self._accuracies), 0.0), 0.0
        own = self.own_metrics(indices.size)
        with torch.no_grad(), self.flat.at(x):
            for span in parts(indices.size, self.evaluation_batch):
                inputs, targets = self.tensors(samples, indices[span])
                outputs, loss = self._passed(inputs, targets)
                weight = self.counted(targets)
                total += weight
                sums["loss"] += float(loss) * weight
                for name in self._accuracies:
                    sums[name] += value_of(self._accuracy, name, outputs, targets) * weight
                own.add(outputs, targets)
        measured = {name: each / total for name, each in sums.items()} | own.values()
        return {name: measured[name] for name in self.task.metrics}

    def _accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point() and targets.shape == outputs.shape:  # probabilities, and no classes as floats
            targets = targets.argmax(dim=1)
        is_right = outputs.argmax(dim=1) == targets
        return wide(is_right[targets != IGNORED] if self._loss is cross_entropy else is_right).mean()

    def _digest(self) -> bytes:
        state = hashlib.blake2b(self._own.identity(self._identity), digest_size=16)
        for split in self.splits.values():
            state.update(split.reading.digest + hashlib.blake2b(split.labels.tobytes()).digest())
        return state.digest()

    def _check_classes(self) -> None:
        """Check that every target of cross-entropy is a class or left out, and that each sample has one."""
        if self._loss is not cross_entropy:
            return
        outputs = self._outputs(self._first()[0])
        for split in ("train", "test"):
            reading, where = self.splits[split].reading, f"task.data: the {split} set"
            if not isinstance(outputs, Tensor) or outputs.ndim < 2:
                continue
            last = outputs.shape[1] - 1
            outside = [value for value in reading.extremes if not 0 <= value <= last]
            if outside:
                raise DataError(
                    where,
                    f"the class {outside[0]}, and {outputs.shape[1]} outputs of the network",
                    f"classes from 0 to {last}, or a network with more outputs",
                )
            if reading.ignored is not None:
                found = f"no target of item {reading.ignored} but {IGNORED}, which cross-entropy leaves out"
                raise DataError(where, found, f"a class from 0 to {last} at least in every item")

    def _first(self) -> tuple[Any, Tensor]:
        samples = self.splits["train"]
        return self.tensors(samples, np.arange(min(self.task.batch_size, samples.rows.size)))

    def _try(self) -> None:
        """Compute losses and metrics of the first batch, to find mistakes before the run. Raises `DataError`."""
        _, targets = self._first()
        outputs = self._own.check_passes(self.forward, lambda: self._first()[0])
        shapes = f"outputs {shapes_of(outputs)} and targets {shapes_of(targets)}"
        self._check_shapes(outputs, targets, shapes)
        try:
            with torch.no_grad():
                loss = self.loss(outputs, targets)
                is_number = isinstance(loss, Tensor) and loss.numel() == 1
        except Exception as error:
            if is_out_of_memory(error):
                raise
            expected = "a network and a loss for these targets"
            raise DataError(
                "task.loss", f"{shapes}, which {name_of(self.task.loss)} refuses ({reason(error)})", expected
            ) from error
        if not is_number:
            what = f"{shapes_of(loss)} from {name_of(self.task.loss)}"
            raise DataError("task.loss", what, "the mean over the batch, a tensor of one number")
        for name in self._accuracies:
            value_of(self._accuracy, name, outputs, targets)
        for split in ("validation", "test"):
            self._try_split(split)
        self.check_metrics()

    def _try_split(self, split: str) -> None:
        """Compute the loss of the first samples of a split that nobody trains on. Raises `DataError`."""
        samples = self.splits[split]
        if not samples.rows.size:
            return
        inputs, targets = self.tensors(samples, np.arange(min(self.task.batch_size, samples.rows.size)))
        try:
            with torch.no_grad():
                self.loss(self.forward(inputs), targets)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            where = f"inputs {shapes_of(inputs)} and targets {shapes_of(targets)}, which fail ({reason(error)})"
            first = " and targets ".join(map(shapes_of, self._first()))
            expected = f"samples like those of the training set, whose first have inputs {first}"
            raise DataError(f"task.data: the {split} set", where, expected) from error

    def _outputs(self, inputs: Any) -> Any:
        with torch.no_grad():
            return self._own.passed(self.forward, inputs)

    def _check_shapes(self, outputs: Any, targets: Tensor, shapes: str) -> None:
        if self._loss is mse_loss and not (isinstance(outputs, Tensor) and outputs.shape == targets.shape):
            raise DataError("task.loss", f"mse with {shapes}", "outputs in the shape of the targets")
        if self._loss is mse_loss and not targets.is_floating_point():
            raise DataError("task.loss", f"mse with {shapes}", "targets with a fraction, or loss: cross-entropy")
        is_whole = not targets.is_floating_point() and targets.dtype != torch.bool
        if self._loss is cross_entropy and not is_whole and shapes_of(outputs) != shapes_of(targets):
            expected = "loss: mse, or whole numbers as targets, of an integer type: 1 and neither 1.0 nor True"
            raise DataError("task.loss", f"cross-entropy with {shapes}", expected)


def _drawn(flat: FlatModule, seed: int) -> NDArray[np.float32]:
    try:
        return flat.drawn(stream("x0", "torch", seed))
    except TypeError as error:
        layer = str(error).partition(" ")[0]
        raise DataError("task.initial", f"drawn, which is not defined for {layer}", "own") from None
