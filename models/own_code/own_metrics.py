"""The user's metrics of one evaluation: functions of the outputs and targets of all samples that are evaluated.

An area under a curve or an F1 is no mean of those of batches, so a function is called once, with all samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.models.own_code.named import METRICS_FIELD, found, is_own
from seedbus.models.own_code.network import reason
from seedbus.models.own_code.own_network import shapes_of
from seedbus.models.task import Task

MOST_BYTES = 2**30
"""Outputs and targets of one evaluation that are kept on the host for its metrics."""
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
        raise DataError(f"{METRICS_FIELD}.{name}", f"an error with {shapes} ({reason(error)})", expected) from error


class Evaluated:
    """The metrics of one evaluation, batch after batch. Without functions nothing is kept."""

    def __init__(self, functions: Mapping[str, Any], count: int, *, by_batches: bool) -> None:
        """Begin.

        Args:
            functions: name → function.
            count: the number of samples that will be added.
            by_batches: whether each batch has a value of its own, and the mean of these counts.
        """
        self._functions, self._count, self._by_batches = functions, count, by_batches
        self._sums = dict.fromkeys(functions, 0.0)
        self._kept: list[Tensor] = []
        self._structure: Any = None
        self._added = 0

    def add(self, outputs: Any, targets: Tensor) -> None:
        """Add the outputs and targets of a batch.

        Args:
            outputs: tensors [b, …] in any structure.
            targets: [b, …].

        Raises:
            DataError: they cannot be joined with those of other batches, or are too large; or a metric fails.
        """
        if not self._functions:
            return
        if self._by_batches:
            for name in self._sums:
                self._sums[name] += value_of(self._functions[name], name, outputs, targets) * len(targets)
            return
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

    def values(self) -> dict[str, float]:
        """Return the metrics of all samples that were added. Raises `DataError` if one fails."""
        if self._by_batches or not self._functions:
            return {name: total / self._count for name, total in self._sums.items()}
        outputs, targets = tree_unflatten(self._kept, self._structure)
        return {name: value_of(self._functions[name], name, outputs, targets) for name in self._sums}

    def _check(self, leaves: list[Any], outputs: Any, targets: Tensor) -> None:
        """Check that each part of the outputs has the samples as its first dimension, and the same shape as before."""
        shapes = [each.shape[1:] for each in self._kept] if self._kept else [None] * len(leaves)
        is_alike = len(shapes) == len(leaves) and all(
            isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == len(targets) and shape in (None, leaf.shape[1:])
            for leaf, shape in zip(leaves, shapes, strict=True)
        )
        if not is_alike:
            found = f"outputs {shapes_of(outputs)} of a batch of {len(targets):,}, which cannot be joined with others"
            expected = (
                f"tensors with the samples as their first dimension and others alike in all batches, or {_ONE_BY_ONE}"
            )
            raise DataError(self._field, found, expected)

    def _check_size(self, leaves: list[Tensor], outputs: Any) -> None:
        size = sum(leaf[0].numel() * leaf.element_size() for leaf in leaves) * self._count
        if size > MOST_BYTES:
            found = f"outputs {shapes_of(outputs)} of a batch; with targets, {size:,} bytes for {self._count:,} samples"
            raise DataError(self._field, found, f"at most {MOST_BYTES:,}: fewer samples, or {_ONE_BY_ONE}")

    @property
    def _field(self) -> str:
        return f"{METRICS_FIELD}.{next(iter(self._functions))}"
