"""Gradients and outputs of a flat module, for first-order methods.

A gradient is one float32 vector; the parameters' `grad` are views into it. A network is a sequence of layers, and so of
blocks: a block is a layer with parameters and the layers without parameters that follow it. The last block is the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.func import functional_call

from seedbus.models.device import repeatable_gradients
from seedbus.models.errors import DataError
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.task import Vector


class Outputs(NamedTuple):
    """The outputs of a network on one mini-batch of b samples.

    Attributes:
        inputs: [b, …].
        logits: [b, classes].
        before_head: the output of each block but the last, [b, …] each.
        targets: what cross-entropy compares the logits with, [b, …].
    """

    inputs: Tensor
    logits: Tensor
    before_head: tuple[Tensor, ...]
    targets: Tensor

    @property
    def labels(self) -> Tensor:
        """`targets`, int64 [b]. Raises `DataError` for others: probabilities, or classes of a sample's parts."""
        if self.targets.ndim != 1 or self.targets.is_floating_point():
            found = f"targets {self.targets.dtype}{list(self.targets.shape)} of a batch".replace("torch.", "")
            expected = "a class for each sample, or a method that needs no classes of samples"
            raise DataError("task.data: the training set", found, expected)
        return self.targets

    @property
    def hidden(self) -> tuple[Tensor, ...]:
        """`before_head`. Raises `DataError` for a network that is only a head: nothing is learnt before it."""
        if not self.before_head:
            found = "a single layer with parameters, and so no learnt features"
            expected = "two or more, or a method that needs no features or blocks of layers"
            raise DataError("the task's network", found, expected)
        return self.before_head

    @property
    def features(self) -> Tensor:
        """The input of the head, [b, features]. Raises `DataError` as `hidden` does, and if it is no tensor."""
        features: Any = self.hidden[-1]
        if not isinstance(features, Tensor):
            found = f"a {type(features).__name__} as the input of its last layer with parameters"
            raise DataError("the task's network", found, "a tensor there, or a method that needs no features")
        return features.flatten(1)


Criterion = Callable[[Outputs], Tensor]


def only(inputs: Any) -> Any:
    """Return the input of a sequence of layers, which takes one; an item may have it in a list or mapping."""
    if isinstance(inputs, dict):
        return next(iter(inputs.values()))
    return inputs[0] if isinstance(inputs, list | tuple) else inputs


def outputs(flat: FlatModule, inputs: Tensor, targets: Tensor) -> Outputs:
    """Return the outputs at the module's point. Raises `DataError` for a network that is not a sequence of layers."""
    hidden = [inputs]
    for block in blocks(flat.module):
        hidden.append(block(hidden[-1]))
    return Outputs(inputs, hidden[-1], tuple(hidden[1:-1]), targets)


def through(flat: FlatModule, hidden: Tensor, number: int, at: Vector) -> list[Tensor]:
    """Return the outputs of the later blocks, with their parameters taken from another vector.

    Args:
        flat: the module.
        hidden: the output of block `number`, [b, …].
        number: index of that block, from 0.
        at: the vector of parameters, float32 [d].
    """
    views = flat.by_parameter(flat.tensor(at))
    results = [hidden]
    for index, block in enumerate(blocks(flat.module)):
        parameters = {name: views[p] for name, p in block.named_parameters() if p in views}
        if index > number:
            results.append(functional_call(block, parameters, (results[-1],)))
    return results[1:]


def backward(flat: FlatModule, losses: Iterable[Callable[[], Tensor]]) -> Vector:
    """Return the gradient of a sum of losses at the module's point, float32 [d]; the next call overwrites it.

    Args:
        flat: the module.
        losses: each computes one loss; only one of their graphs is in memory at a time.
    """
    with flat.differentiated() as gradient, repeatable_gradients(flat.module, flat.device):
        for loss in losses:
            loss().backward()  # type: ignore[no-untyped-call]
    return gradient


def blocks(module: nn.Module) -> list[nn.Sequential]:
    """Return the blocks of a network. Raises `DataError` if it is not a sequence of layers."""
    parts: list[list[nn.Module]] = []
    layers = module if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward else ()
    for layer in layers:
        if not parts or (any(True for _ in layer.parameters()) and _has_parameters(parts[-1])):
            parts.append([])
        parts[-1].append(layer)
    if not parts:
        found = f"{type(module).__name__}, which is not a sequence of layers"
        raise DataError("task.network", found, "nn.Sequential, or a method that needs no blocks of layers")
    return [nn.Sequential(*part) for part in parts]


def _has_parameters(part: list[nn.Module]) -> bool:
    return any(True for layer in part for _ in layer.parameters())
