"""The user's metrics of one evaluation: functions of the outputs and targets of all samples that are evaluated.

An area under a curve or an F1 is no mean of those of batches, so a function is called once, with all samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.models.own_code.named import METRICS_FIELD, found, is_own, name_of
from seedbus.models.own_code.network import reason
from seedbus.models.own_code.own_network import shapes_of
from seedbus.models.own_code.repeated import repeated
from seedbus.models.task import Task

MOST_BYTES = 2**30
"""Outputs and targets of one evaluation that are kept on the host for its metrics."""
LOSS_FIELD = "task.loss"
_ONE_BY_ONE = "task.metrics_by: batches for a metric that is a mean over samples"


def words_of(task: Task) -> dict[str, str]:
    """Return the metrics of ours that a task has: name → what it measures."""
    metrics = task.functions if isinstance(task, OwnMetrics) else {name: name for name in task.metrics}
    return {"loss": "loss"} | {name: metric for name, metric in metrics.items() if not is_own(metric)}


def functions_of(task: Task) -> dict[str, Any]:
    """Return the user's metrics that a task has: name → function. Raises `DataError` if a name is of none."""
    metrics = task.functions if isinstance(task, OwnMetrics) else {}
    return {name: found(metric, f"{METRICS_FIELD}.{name}") for name, metric in metrics.items() if is_own(metric)}


def value_of(metric: Any, name: str, outputs: Any, targets: Tensor) -> float:
    """Return the value of a metric, which is named for messages. Raises `DataError` if it fails.

    It gets a copy: what one metric writes to its arguments is not what the next one, or a later evaluation, reads.
    """
    try:
        with torch.no_grad():
            return float(metric(*tree_map_only(Tensor, torch.clone, (outputs, targets))))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        shapes = f"outputs {shapes_of(outputs)} and targets {shapes_of(targets)}"
        expected = "a function of outputs and targets that returns one number, nan where it is not defined"
        raise DataError(_field(name), f"an error with {shapes} ({reason(error)})", expected) from error


def check_alone(call: Callable[[], list[float]], field: str, name: str) -> list[float]:
    """Return what a function of the user gives for some outputs and targets, if it gives the same when called again.

    Args:
        call: calls it, with more than one batch: what it keeps of one then shows in the value of another.
        field: the field of the scenario that names it.
        name: the function's name.

    Raises:
        DataError: it gives something else.
    """

    def equal(first: list[float], second: list[float]) -> bool:
        return all(a == b or a != a != b != b for a, b in zip(first, second, strict=True))  # nan is no other value

    values, is_same = repeated(call, equal)
    if not is_same:
        found = f"{name}, which gives another value for the same outputs and targets when it is called again"
        expected = "one that keeps nothing between calls, and draws nothing at random or seeds its generator each time"
        raise DataError(field, found, expected)
    return values


class Joined:
    """The outputs and targets of several batches as those of one, in host memory."""

    def __init__(self, count: int, field: str) -> None:
        """Begin.

        Args:
            count: the number of samples that will be added.
            field: the field of the scenario for whose function they are joined, for messages.
        """
        self._count, self._field = count, field
        self._otherwise = "a loss that is a mean over samples" if field == LOSS_FIELD else _ONE_BY_ONE
        self._kept: list[Tensor] = []
        self._structure: Any = None
        self._added = 0

    def add(self, outputs: Any, targets: Tensor) -> None:
        """Add a batch; see `Evaluated.add`. Raises `DataError`."""
        leaves, structure = tree_flatten((outputs, targets))
        self._check(leaves, outputs, targets)
        if not self._kept:
            self._check_size(leaves, outputs)
            self._structure = structure
            with torch.inference_mode(False):  # a function may write to what it is given
                shapes = ((self._count, *leaf.shape[1:]) for leaf in leaves)
                self._kept = [torch.empty(shape, dtype=leaf.dtype) for shape, leaf in zip(shapes, leaves, strict=True)]
        for kept, leaf in zip(self._kept, leaves, strict=True):
            kept[self._added : self._added + len(targets)] = leaf.detach()
        self._added += len(targets)

    def all(self) -> tuple[Any, Tensor]:
        """Return the outputs and targets of all samples that were added."""
        outputs, targets = tree_unflatten(self._kept, self._structure)
        return outputs, targets

    def _check(self, leaves: list[Any], outputs: Any, targets: Tensor) -> None:
        """Check that each part of the outputs has the samples as its first dimension, and the same shape as before."""
        shapes = [each.shape[1:] for each in self._kept] if self._kept else [None] * len(leaves)
        is_alike = len(shapes) == len(leaves) and all(
            isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == len(targets) and shape in (None, leaf.shape[1:])
            for leaf, shape in zip(leaves, shapes, strict=True)
        )
        if not is_alike:
            found = f"outputs {shapes_of(outputs)} of a batch of {len(targets):,}, which cannot be joined with others"
            alike = "tensors with the samples as their first dimension and others alike in all batches"
            raise DataError(self._field, found, f"{alike}, or {self._otherwise}")

    def _check_size(self, leaves: list[Tensor], outputs: Any) -> None:
        size = sum(leaf[0].numel() * leaf.element_size() for leaf in leaves) * self._count
        if size > MOST_BYTES:
            found = f"outputs {shapes_of(outputs)} of a batch; with targets, {size:,} bytes for {self._count:,} samples"
            raise DataError(self._field, found, f"at most {MOST_BYTES:,}: fewer samples, or {self._otherwise}")


class Evaluated:
    """The functions of one evaluation, batch after batch. Without any that takes all samples nothing is kept."""

    def __init__(self, functions: Mapping[str, Any], count: int, *, averaged: Collection[str]) -> None:
        """Begin.

        Args:
            functions: name → function; "loss" is that of the task.
            count: the number of samples that will be added.
            averaged: the names of those of which each batch has a value of its own, and the mean of these counts.
        """
        self._functions, self._count = functions, count
        self._sums = {name: 0.0 for name in functions if name in averaged}
        whole = [name for name in functions if name not in averaged]
        self._joined = Joined(count, _field(whole[0])) if whole else None

    def add(self, outputs: Any, targets: Tensor) -> None:
        """Add the outputs and targets of a batch.

        Args:
            outputs: tensors [b, …] in any structure.
            targets: [b, …].

        Raises:
            DataError: they cannot be joined with those of other batches, or are too large; or a metric fails.
        """
        for name in self._sums:
            self._sums[name] += value_of(self._functions[name], name, outputs, targets) * len(targets)
        if self._joined is not None:
            self._joined.add(outputs, targets)

    def values(self) -> dict[str, float]:
        """Return the values for all samples that were added. Raises `DataError` if a function fails."""
        means = {name: total / self._count for name, total in self._sums.items()}
        if self._joined is None:
            return means
        outputs, targets = self._joined.all()
        whole = [name for name in self._functions if name not in means]
        return means | {name: value_of(self._functions[name], name, outputs, targets) for name in whole}

    def check(self, outputs: Any, targets: Tensor) -> None:
        """Call each function more than once, with all samples that were added, or without them with one batch of them.

        Raises:
            DataError: its values for the same samples differ.
        """
        for name, function in self._functions.items():
            given = (outputs, targets) if name in self._sums or self._joined is None else self._joined.all()

            def call(function: Any = function, name: str = name, given: tuple[Any, Tensor] = given) -> list[float]:
                values = [value_of(function, name, *given)]
                with suppress(DataError, IndexError):  # it may need all samples, and outputs may have none
                    half = len(given[1]) // 2 + 1
                    values.append(value_of(function, name, *tree_map_only(Tensor, lambda each: each[:half], given)))
                return values

            check_alone(call, _field(name), name_of(function))


def _field(name: str) -> str:
    return LOSS_FIELD if name == "loss" else f"{METRICS_FIELD}.{name}"
