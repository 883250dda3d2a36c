"""The user's own network and data, bound: x₀ from the module's own weights, losses and metrics by functions.

The invariant: a loss is a function of x, the batch and constants. Constants (frozen parameters, buffers, the data) are
digested in `identity`; a forward pass that changes its weights or buffers, or draws at random, is refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from seedbus.models.custom import accuracy, own_loss
from seedbus.models.custom.samples import IGNORED, Selection, check_divisible, own_splits
from seedbus.models.custom.settings import TorchSettings
from seedbus.models.data.batches import parts
from seedbus.models.device import moved
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.images.sample_problem import SampleProblem
from seedbus.models.own_code.named import METRICS_FIELD, found, name_of
from seedbus.models.own_code.network import TORCH_FIELD, reason
from seedbus.models.own_code.own_metrics import LOSS_FIELD, Joined, check_alone, value_of
from seedbus.models.own_code.own_network import OwnNetwork, shapes_of, ways_out
from seedbus.models.own_code.repeated import generators_kept
from seedbus.models.partition import Partition
from seedbus.models.partitions.own import Own
from seedbus.models.task import Vector

_LOSSES: dict[str, Any] = {"cross-entropy": cross_entropy, "mse": mse_loss}


class TorchProblem(SampleProblem[Selection]):
    """Implements `task.Problem`. Not thread-safe."""

    without_gradients = torch.no_grad  # a module may keep a tensor of one pass, such as a mask, for a later gradient

    def __init__(self, task: TorchSettings, *, seed: int, clients: int, partition: Partition) -> None:
        own = OwnNetwork(task.network, seed, field=TORCH_FIELD, batch_norm=task.batch_norm)
        self._own = own
        splits = own_splits(task, partition) if isinstance(partition, Own) else task.splits()
        check_divisible(partition, splits["train"])
        super().__init__(task, own.flat, splits, seed=seed, clients=clients, partition=partition)
        self.task = task
        named = isinstance(task.loss, str) and task.loss in _LOSSES
        self._loss = _LOSSES[task.loss] if named else found(task.loss, "task.loss")
        self._is_eager = task.forward == "eager"
        self._weigh: own_loss.Weigh | None = own_loss.by_samples  # None: the loss is no mean over samples
        if self._loss is cross_entropy:
            self._weigh = own_loss.by_targets
        self._losses_found: list[float] = []
        self._accuracies: dict[str, accuracy.Right] = {}
        self._unsaid = ""
        self._check_classes()
        with generators_kept():  # of the user's program, from which functions of the user may draw without effect
            self._try()
        self._constants = self._digest()

    def x0(self) -> NDArray[np.float32]:
        """Return the weights that the user's function gave the network, float32 [d]."""
        return self._own.x0.copy()

    def identity(self) -> bytes:
        """Return a digest of what decides losses beside x: frozen parameters, buffers, all samples, their division.

        Of owners' samples there is nothing in it.
        """
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
        targets = self.specimens.reading.classes
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
        with self._naming(inputs, labels):
            return super().mean_loss(inputs, labels)

    @contextmanager
    def _naming(self, inputs: Any, targets: Tensor) -> Iterator[None]:
        """Turn an error of the network or the loss on a batch into one sentence. Raises `DataError`."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            where = f"an error on inputs {shapes_of(inputs)} and targets {shapes_of(targets)} ({reason(error)})"
            expected = ways_out(error) or "a network and a loss for all items of the data set"
            raise DataError(TORCH_FIELD, where, expected) from error

    def counted(self, labels: Tensor) -> float:
        """Return the weight of a batch's mean: its samples, by the share of targets that the loss counts."""
        if labels.ndim == 1 or self._weigh is None:  # no sample is left out completely
            return len(labels)
        return self._weigh(labels)

    @property
    def averaged(self) -> Sequence[str]:
        """See `SampleProblem.averaged`."""
        return [name for name in super().averaged if name != "loss" or self._weigh is not None]

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return the means of loss and accuracy over samples, and the functions of all of them. Raises `DataError`."""
        if self._unsaid:
            self._note("no-mean", what=self._unsaid)
            self._unsaid = ""
        samples, own = self.splits[split], self.own_metrics(indices.size)
        names = [*self._accuracies, *(["loss"] if "loss" not in self._own_functions else [])]
        sums, totals = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        with torch.no_grad(), self.flat.at(x):
            for span in parts(indices.size, self.evaluation_batch):
                inputs, targets = self.tensors(samples, indices[span])
                with self._naming(inputs, targets):
                    outputs = self.forward(inputs)
                    own.add(outputs, targets)
                    for name, right in self._accuracies.items():
                        if weight := own_loss.by_targets(targets):
                            share = partial(accuracy.share, right)
                            sums[name] += value_of(share, name, outputs, targets) * weight
                            totals[name] += weight
                    if "loss" in sums:  # last, as it may write to the outputs
                        weight = self.counted(targets)
                        sums["loss"] += float(self.loss(outputs, targets)) * weight
                        totals["loss"] += weight
        means = {name: each / totals[name] if totals[name] else math.nan for name, each in sums.items()}
        measured = means | own.values()
        return {name: measured[name] for name in self.task.metrics}

    @property
    def _common(self) -> Mapping[str, Selection]:
        """The samples that all processes have, by split."""
        return {"specimens": self.specimens} if self._partition.is_partial else self.splits

    def _digest(self) -> bytes:
        state = hashlib.blake2b(self._own.identity(self._identity), digest_size=16)
        for split in self._common.values():
            state.update(split.reading.digest + hashlib.blake2b(split.labels.tobytes()).digest())
        # three digits of the user's own loss at x₀: other processors have them too, and other functions have not
        state.update(" ".join(f"{found:.2e}" for found in self._losses_found).encode())
        return state.digest()

    def _check_classes(self) -> None:
        """Check that every target of cross-entropy is a class or left out, and that each sample has one."""
        if self._loss is not cross_entropy:
            return
        outputs = self._outputs(self._first()[0])
        for split in [name for name in self.splits if name != "validation"]:
            reading, where = self.splits[split].reading, f"task.data: the {split} set"
            if not isinstance(outputs, Tensor) or outputs.ndim < 2:
                continue
            last = outputs.shape[1] - 1
            outside = [value for value in reading.targets.extremes if not 0 <= value <= last]
            if outside and reading.targets.are_whole and not reading.targets.are_shares:
                raise DataError(
                    where,
                    f"the class {outside[0]}, and {outputs.shape[1]} outputs of the network",
                    f"classes from 0 to {last}, or a network with more outputs",
                )
            if reading.targets.ignored is not None:
                found = f"no target of item {reading.targets.ignored} but {IGNORED}, which cross-entropy leaves out"
                raise DataError(where, found, f"a class from 0 to {last} at least in every item")

    def _first(self) -> tuple[Any, Tensor]:
        samples = self.specimens
        return self.tensors(samples, np.arange(min(self.task.batch_size, samples.rows.size)))

    def _try(self) -> None:
        """Compute losses and metrics of the first batch, to find mistakes before the run. Raises `DataError`."""
        _, targets = self._first()
        outputs = self._own.check_passes(self.forward, lambda: self._first()[0])
        shapes = f"outputs {shapes_of(outputs)} and targets {shapes_of(targets)}"
        self._check_shapes(outputs, targets, shapes)
        try:
            with torch.no_grad():
                loss = self.loss(tree_map_only(Tensor, torch.clone, outputs), targets)
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
        with torch.no_grad():
            if self._loss not in _LOSSES.values():
                self._judge_loss(outputs, targets, own_loss.CLOSE if loss.element_size() > 2 else own_loss.HALF_CLOSE)
            self._check_parts(outputs, targets)
            self._find_accuracies(outputs, targets)
        for split in ("validation", "test", *(["train"] if self._partition.is_partial else [])):
            self._try_split(split)
        self.check_metrics()

    def _find_accuracies(self, outputs: Any, targets: Tensor) -> None:
        """Find out what accuracy is of these outputs and targets. Raises `DataError`."""
        facts = [split.reading.targets for name, split in self._common.items() if name != "validation"]
        is_torchs = self._loss is cross_entropy
        for name, metric in self.task.functions.items():
            if metric == "accuracy":
                given = f"{METRICS_FIELD}.{name}", outputs, targets, facts, self._value
                self._accuracies[name] = accuracy.right(*given, by_torch=is_torchs)

    def _value(self, outputs: Any, targets: Tensor) -> float:
        return own_loss.value(self.loss, *moved((outputs, targets), self.flat.device))

    def _judge_loss(self, outputs: Any, targets: Tensor, close: float) -> None:
        """Find out whether the user's own loss is a mean over samples, and by which weights. See `own_loss`.

        Args:
            outputs: of a batch.
            targets: of the same batch.
            close: as `own_loss.CLOSE`.

        Raises:
            DataError: it draws at random or keeps something between calls; or it is no mean, and batches have parts.
        """
        train, name = self.specimens, name_of(self.task.loss)
        count = min(train.rows.size, own_loss.affordable(own_loss.SAMPLES, (outputs, targets)))
        few = np.linspace(0, train.rows.size - 1, count).astype(np.int64)
        most = own_loss.affordable(own_loss.TARGETS, (outputs, targets))
        telling = [split.telling_targets(most) for split in self._common.values() if split.rows.size]
        others = [each for each in telling if each is not None and each.shape[1:] == targets.shape[1:]]

        def batches_at(x: Vector, most: int) -> list[tuple[Any, Tensor]]:
            with self.flat.at(x):
                batches = [self.tensors(train, few[span]) for span in parts(few.size, most)]
                return [(self._own.passed(self.forward, inputs), targets) for inputs, targets in batches]

        given = batches_at(self._own.x0, max(2, 2 * few.size // 3))  # what it keeps of one batch changes the other
        self._losses_found = check_alone(lambda: [self._value(*each) for each in given], LOSS_FIELD, name)
        ways, facts = [own_loss.by_samples], train.reading.targets
        if facts.are_whole and facts.ignored is None:  # else a part may have no target that counts
            ways.append(own_loss.by_targets)
        points = self._own.x0, own_loss.moved(self._own.x0)
        self._weigh, can_join = own_loss.judged(self._value, batches_at, points, others, ways, close)
        if self._weigh is not None:
            return
        if self.task.micro_batch is not None:
            found = f"{self.task.micro_batch}, and the loss {name}, which is no mean over samples"
            raise DataError("task.micro_batch", found, "no micro_batch, or a loss that is the mean of those of parts")
        how = f"is averaged over batches of {self.evaluation_batch}, because outputs cannot be joined"
        if can_join:
            device = self.flat.device  # where its own tensors may lie
            loss = self._loss if device is None else lambda *batch: self._loss(*moved(batch, device))
            self._own_functions = {"loss": loss, **self._own_functions}
            how = "is that of all outputs together"
        self._unsaid = f"task.loss {name} is no mean over samples; what is reported as loss {how}"

    def _check_parts(self, outputs: Any, targets: Tensor) -> None:
        """Check that samples have the same outputs in parts of the first batch. Raises `DataError`."""
        most = self.task.micro_batch
        if most is None or most >= len(targets):
            return
        inputs, joined = self._first()[0], Joined(len(targets), "task.micro_batch")
        with suppress(DataError):  # outputs that cannot be joined are not those of single samples
            for span in parts(len(targets), most):
                part = tree_map(lambda each, span=span: each[span], inputs)
                joined.add(self._own.passed(self.forward, part), targets[span])
        pairs = zip(tree_leaves(joined.all()[0]), tree_leaves(outputs), strict=True)
        if not all(torch.allclose(a, b.cpu(), rtol=1e-2, atol=1e-3, equal_nan=True) for a, b in pairs):
            found = f"{most}, and a network whose outputs for a sample depend on the others of its batch"
            raise DataError("task.micro_batch", found, "no micro_batch, or GroupNorm or LayerNorm in the network")

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
