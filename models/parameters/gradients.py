"""What first-order methods ask of a flat module: gradients, and what it says at other points.

Gradients are one float32 vector, the parameters' own are views into it. A network is a sequence of layers, and so of
blocks: a layer with parameters and those without that follow it. The last block is the head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seedbus.models.parameters.flat import FlatModule
from seedbus.models.task import Vector


class Outputs(NamedTuple):
    """What a network says to one mini-batch."""

    inputs: Tensor  # [b, …]
    logits: Tensor  # [b, classes]
    hidden: tuple[Tensor, ...]  # what comes out of each block but the last, [b, …]
    labels: Tensor  # int64 [b]

    @property
    def features(self) -> Tensor:
        """What goes into the head, [b, features]."""
        return (self.hidden[-1] if self.hidden else self.inputs).flatten(1)


Criterion = Callable[[Outputs], Tensor]


def outputs(flat: FlatModule, inputs: Tensor, labels: Tensor) -> Outputs:
    """At the module's point. Raises `TypeError` for a network that is no sequence of layers."""
    hidden = [inputs]
    for block in blocks(flat.module):
        hidden.append(block(hidden[-1]))
    return Outputs(inputs, hidden[-1], tuple(hidden[1:-1]), labels)


def through(flat: FlatModule, hidden: Tensor, number: int, at: Vector) -> list[Tensor]:
    """What comes out of the blocks after that of this number, with the parameters that another vector holds, [d]."""
    held = iter(flat.views(torch.from_numpy(at)))
    found = [hidden]
    for place, block in enumerate(blocks(flat.module)):
        names = [name for name, _ in block.named_parameters()]
        there = {name: next(held) for name in names}
        if place > number:
            found.append(functional_call(block, there, (found[-1],)))
    return found[1:]


def backward(
    flat: FlatModule,
    inputs: Tensor,
    labels: Tensor,
    usual: Callable[[Tensor, Tensor], Tensor],
    criterion: Criterion | None,
) -> Vector:
    """∇ of the usual loss, out of logits and labels, or of a criterion of the outputs, at the module's point; [d],
    overwritten by the next call."""
    with flat.differentiated() as gradient:
        if criterion is None:
            loss = usual(flat.module(inputs), labels)
        else:
            loss = criterion(outputs(flat, inputs, labels))
        loss.backward()  # type: ignore[no-untyped-call]
    return gradient


def blocks(module: nn.Module) -> list[nn.Sequential]:
    """Raises `TypeError` for a network that is no sequence of layers."""
    parts: list[list[nn.Module]] = []
    for layer in module if isinstance(module, nn.Sequential) else ():
        if not parts or (any(True for _ in layer.parameters()) and _is_begun(parts[-1])):
            parts.append([])
        parts[-1].append(layer)
    if not parts:
        raise TypeError(f"{type(module).__name__} is no sequence of layers to look at")
    return [nn.Sequential(*part) for part in parts]


def _is_begun(part: list[nn.Module]) -> bool:
    return any(True for layer in part for _ in layer.parameters())
