"""Gradients of a flat module: one float32 vector, the parameters' gradients are views into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seedbus.models.flat import FlatModule
from seedbus.models.task import Vector


class Outputs(NamedTuple):
    """What a network says to one mini-batch."""

    logits: Tensor  # [b, classes]
    features: Tensor  # what goes into the last layer, [b, …]
    labels: Tensor  # int64 [b]


Criterion = Callable[[Outputs], Tensor]


def outputs(module: nn.Module, inputs: Tensor, labels: Tensor) -> Outputs:
    """Raises `TypeError` for a network that is no sequence of layers with the last one at its end."""
    if not isinstance(module, nn.Sequential):
        raise TypeError(f"{type(module).__name__} does not say what its last layer is: make it a sequence")
    features = inputs
    for layer in list(module)[:-1]:
        features = layer(features)
    return Outputs(module[-1](features), features, labels)


def backward(flat: FlatModule, inputs: Tensor, labels: Tensor, criterion: Criterion | None) -> Vector:
    """∇ of the mean cross-entropy, or of a criterion of the outputs, at the module's point; [d], overwritten by the
    next call."""
    with flat.differentiated() as gradient:
        if criterion is None:
            loss = cross_entropy(flat.module(inputs), labels)
        else:
            loss = criterion(outputs(flat.module, inputs, labels))
        loss.backward()  # type: ignore[no-untyped-call]
    return gradient
