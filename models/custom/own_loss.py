"""A loss of the user's own: whether it is a mean over samples, so that the losses of a batch's parts make its own.

A loss with weights of classes, one of pairs or of ranks, and a root of a mean are none. It is compared with those of
parts on the outputs of a few samples at two points, because at x₀ all classes may look alike, and then on the same
outputs beside as many different targets as there are, because a heavy class may be rare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from seedbus.models.custom.samples import IGNORED
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.generators import generator
from seedbus.models.own_code.own_metrics import LOSS_FIELD, Joined
from seedbus.models.partition import Indices
from seedbus.models.task import Vector
from seedbus.tensors import wide

SAMPLES = 64  # whose outputs are computed
TARGETS = 1024  # different ones, at most
MOST_BYTES = 2**26  # of outputs
CLOSE = 1e-4  # how far a mean of parts may be from the whole, relative to the largest of these losses
HALF_CLOSE = 0.02  # the same for losses in float16 and bfloat16, which have a few digits

Batch = tuple[Any, Tensor]
Value = Callable[[Any, Tensor], float]
Weigh = Callable[[Tensor], float]


def by_samples(targets: Tensor) -> float:
    """Return the number of a batch's samples."""
    return len(targets)


def by_targets(targets: Tensor) -> float:
    """Return the number of a batch's samples, by the share of their targets that are not `IGNORED`."""
    return len(targets) * float(wide(targets != IGNORED).mean())


def value(loss: Callable[[Any, Tensor], Tensor], outputs: Any, targets: Tensor) -> float:
    """Return the loss of a batch, which may write to its outputs; nan if it fails, as one of pairs may without any."""
    try:
        return float(loss(tree_map_only(Tensor, torch.clone, outputs), targets))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return math.nan


def moved(x0: Vector) -> Vector:
    """Return a point near x₀, float32 [d], at which outputs are others, also those of a layer that is zero at x₀."""
    size = 0.1 * float(np.sqrt(np.square(x0, dtype=np.float64).mean())) + 0.01
    away = generator("moved").random(x0.size, dtype=np.float32) - np.float32(0.5)
    return x0 + away * np.float32(2 * size)


def affordable(most: int, batch: Batch) -> int:
    """Return for how many samples, `most` at most, outputs like those of a batch take little memory."""
    leaves = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    each = sum(leaf.numel() * leaf.element_size() for leaf in leaves) / len(batch[1])
    return max(4, min(most, int(MOST_BYTES / max(each, 1))))


def with_targets(outputs: Any, targets: Tensor) -> Batch:
    """Return as many outputs as there are targets, those of a few samples again and again."""
    count = len(next(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)))
    rows = torch.arange(len(targets)) % count
    return _rows_of(outputs, rows), targets


def judged(
    value: Value,
    batches_at: Callable[[Vector, int], list[Batch]],
    points: Sequence[Vector],
    others: Sequence[Tensor],
    ways: Sequence[Weigh],
    close: float,
) -> tuple[Weigh | None, bool]:
    """Return by which weights a loss is the mean of those of parts, and whether batches can be joined.

    Args:
        value: returns the loss of outputs and targets.
        batches_at: returns the outputs of a few samples at a point, and their targets, in batches of a size at most.
        points: at which outputs are taken.
        others: targets with which outputs are tried, too: those of several splits.
        ways: weights that parts may have; the first of them with which the loss is a mean is returned; None: with none.
        close: as `CLOSE`.
    """
    left, can_join = list(ways), True
    for x in points:
        (whole,) = batches_at(x, SAMPLES)
        divided = batches_at(x, max(2, 2 * len(whole[1]) // 3))
        joined = Joined(len(whole[1]), LOSS_FIELD)
        try:
            for batch in divided:
                joined.add(*batch)
        except DataError:
            can_join = False
            losses, alone = value(*whole), [value(*batch) for batch in divided]
            left = [weigh for weigh in left if is_mean_of(losses, alone, [weigh(t) for _, t in divided], close)]
            continue
        batches = [joined.all()]
        batches += [with_targets(batches[0][0], _as_many(torch.cat([*others])))] if others else []
        left = [weigh for weigh in left if all(is_mean(value, batch, weigh, close) for batch in batches)]
    return (left[0] if left else None), can_join


def is_mean(value: Value, batch: Batch, weigh: Weigh, close: float) -> bool:
    """Whether the loss of a batch is the mean of the losses of its parts, however it is divided.

    Args:
        value: returns the loss of outputs and targets.
        batch: outputs whose tensors all have the samples as their first dimension, and targets.
        weigh: returns the weight of a part with such targets.
        close: as `CLOSE`.
    """
    outputs, targets = batch
    whole = value(outputs, targets)
    for division in _divisions(targets):
        rows = [torch.from_numpy(part).to(targets.device) for part in division]
        split = [(_rows_of(outputs, at), targets[at]) for at in rows]
        if not is_mean_of(whole, [value(*part) for part in split], [weigh(part) for _, part in split], close):
            return False
    return True


def is_mean_of(whole: float, parts: Sequence[float], weights: Sequence[float], close: float) -> bool:
    """Whether a loss is the weighted mean of others; parts without weight do not count, whatever their loss."""
    counted = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight]
    mean = sum(part * weight for part, weight in counted) / max(sum(weights), 1e-300)
    if not math.isfinite(whole) or not math.isfinite(mean):
        return math.isfinite(whole) == math.isfinite(mean)
    return abs(whole - mean) <= close * max([abs(whole), *(abs(part) for part, _ in counted)])


def _as_many(targets: Tensor) -> Tensor:
    """Return targets again and again, at least `SAMPLES` of them, so that there are several of each."""
    return targets.repeat(-(-SAMPLES // len(targets)), *[1] * (targets.ndim - 1))


def _rows_of(outputs: Any, rows: Tensor) -> Any:
    return tree_map_only(Tensor, lambda leaf: leaf[rows.to(leaf.device)], outputs)


def _divisions(targets: Tensor) -> Iterator[list[Indices]]:
    """Yield ways to divide a batch into unequal parts: by targets, across them, and into many small parts."""
    count = len(targets)
    if count < 4:
        return
    order = np.argsort(targets.cpu().numpy().reshape(count, -1)[:, 0], kind="stable").astype(np.int64)
    fourth = count // 4 + 1
    yield [order[:fourth], order[fourth:]]
    yield [order[::3], np.setdiff1d(order, order[::3])]
    yield np.array_split(order, max(2, min(count // 5, 16)))
