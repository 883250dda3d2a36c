"""Accuracy on the user's own outputs and targets: what is right, by their shapes.

    outputs                            targets                                    right
    [n, k], [n, k, …]                  [n], [n, 1], [n, …]: classes 0 to k − 1    the class with the largest output
    [n, …, k]                          [n, …]: classes 0 to k − 1                 the same
    [n], [n, 1], [n, …, 1]: logits     [n], [n, 1], [n, …]: 0 or 1                1 where the logit is above 0
    [n, k], [n, k, …]                  the same shape: shares of the k classes    the class with the largest share

Where classes may be in either dimension, they are where the loss is less. The invariant: what fits none of these is
refused before the run, because broadcasting compares nearly any two tensors; so are outputs of which smaller ones are
right, by the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seedbus.models.custom.own_loss import Value
from seedbus.models.custom.samples import IGNORED, Targets
from seedbus.models.errors import DataError
from seedbus.models.own_code.own_network import shapes_of
from seedbus.tensors import wide

SURE = 4.0  # a logit whose sigmoid is 0.98
EXPECTED = (
    "classes from 0 to k − 1 as targets [n, …] of outputs [n, k, …], or their shares [n, k, …]; or one logit for each "
    "target of 0 or 1; or plugin:function"
)

Right = Callable[[Tensor, Tensor], Tensor]


def right(
    field: str, outputs: Any, targets: Tensor, facts: Sequence[Targets], value: Value, *, by_torch: bool
) -> Right:
    """Return what says which outputs are right: a function of outputs and targets, bool in the targets' shape.

    Args:
        field: the field of the scenario that asks for accuracy, for messages.
        outputs: of a batch.
        targets: of the same batch.
        facts: what the targets of all samples are.
        value: returns the loss of outputs and targets; nan if it fails.
        by_torch: whether the loss is torch's cross-entropy, whose classes are in dimension 1.

    Raises:
        DataError: accuracy is not defined for them.
    """
    extremes = [value for each in facts for value in each.extremes]
    low, high = (min(extremes), max(extremes)) if extremes else (0, 0)

    def refused(why: str) -> DataError:
        given = f"accuracy of outputs {shapes_of(outputs)} and targets {shapes_of(targets)} from {low:g} to {high:g}"
        return DataError(field, f"{given}, {why}", EXPECTED)

    if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(targets):
        raise refused("which are not one tensor with the samples as its first dimension")
    if by_torch and targets.is_floating_point():
        return _likeliest
    if outputs.shape == targets.shape and all(each.are_shares for each in facts):
        return _likeliest
    if not all(each.are_whole for each in facts):
        raise refused("which are no classes")
    first, last = _layouts(tuple(outputs.shape[1:]), tuple(targets.shape[1:]))
    if by_torch:
        return partial(_largest, dim=1)
    if outputs.ndim == 1 or (outputs.shape[1] == 1 and first) or (outputs.shape[-1] == 1 and last):
        if outputs.numel() != targets.numel():
            raise refused("which are not one for each")
        if not (0 <= low and high <= 1):
            raise refused("where one logit tells two classes apart")
        if not _is_logit(outputs, targets, value):
            raise refused("for which the loss does not fall where a logit's sign is right, as with probabilities")
        return _positive
    if not first and not last:
        raise refused("whose shapes do not fit")
    dims = [*([1] if first else []), *([outputs.ndim - 1] if last and (outputs.ndim > 2 or not first) else [])]
    classes = outputs.shape[dims[0]]
    if not (0 <= low and high < classes):
        raise refused(f"where {classes} outputs tell 0 to {classes - 1} apart")
    if len(dims) > 1:
        losses = [_loss_of_sure(outputs, targets, value, dim) for dim in dims]
        if not all(map(math.isfinite, losses)) or losses[0] == losses[1]:
            raise refused("whose classes may be in either dimension")
        dims = [dims[losses.index(min(losses))]]
    if _loss_of_sure(outputs, targets, value, dims[0]) > _loss_of_sure(outputs, targets, value, dims[0], -SURE):
        raise refused("for which the loss rises where the right class has the largest output, as with distances")
    return partial(_largest, dim=dims[0])


def share(is_right: Right, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of the right ones among targets that are not `IGNORED`."""
    found = is_right(outputs, targets)
    if found.numel() == targets.numel():  # and not shares of classes
        found = found.reshape(targets.shape)[targets != IGNORED]
    return wide(found).mean()


def _layouts(out: tuple[int, ...], of: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether targets fit if the classes are in the first, or in the last dimension of a sample's outputs."""
    for alike in (of, of[:-1]) if of and of[-1] == 1 else (of,):  # targets may have a column of their own
        if out and (out[1:] == alike or out[:-1] == alike):
            return out[1:] == alike, out[:-1] == alike
    return False, False


def _is_logit(outputs: Tensor, targets: Tensor, value: Value) -> bool:
    """Whether the loss falls where the sign of a logit is right, and rises where it is wrong."""
    sure = torch.where(targets > 0.5, SURE, -SURE).reshape(outputs.shape).to(outputs)
    at_best, at_zero, at_worst = (value(sure * factor, targets) for factor in (1, 0, -1))
    return math.isfinite(at_zero) and at_best < at_zero < at_worst


def _loss_of_sure(outputs: Tensor, targets: Tensor, value: Value, dim: int, sure: float = SURE) -> float:
    """Return the loss of outputs that are `sure` for right classes in a dimension, and −`sure` for others; or nan."""
    by_class = torch.full_like(outputs, -sure)
    right = targets.long().clamp(min=0).reshape(outputs.select(dim, 0).shape)
    return value(by_class.scatter_(dim, right.unsqueeze(dim), sure), targets)


def _largest(outputs: Tensor, targets: Tensor, dim: int) -> Tensor:
    found = outputs.argmax(dim=dim)
    return found == targets.reshape(found.shape)


def _positive(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) > 0) == (targets > 0.5)


def _likeliest(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=1) == targets.argmax(dim=1)
