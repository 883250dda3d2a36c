"""Parameters of a module as coordinates of one vector: written to as a whole, bound to another, or made layer by layer.

    point     the parameters' own storage, float32 [d]: who writes to it has changed the module
    at        the parameters are views of another vector for a while: nothing is copied
    loss_at   a layer's parameters are made when its forward pass begins and gone when it ends: no vector at all

The invariant: every coordinate belongs to exactly one parameter, in their order; a tied one has its coordinates once.
The point is made when it is first asked for. Who never asks holds, between two losses, not one float of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.task import Fill, Vector

LINE = 16  # floats of a cache line of 64 bytes


def room(count: int) -> NDArray[np.float32]:
    """float32 [count], beginning at a cache line: how products are rounded may depend on where a matrix begins."""
    whole = np.zeros(count + LINE, np.float32)
    first = -whole.ctypes.data // whole.itemsize % LINE
    return whole[first : first + count]


class Coordinates:
    """A module in evaluation mode and those of its parameters that are coordinates, float32 all."""

    def __init__(self, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self.module, self._parameters = module.eval(), list(parameters)
        self._spans: dict[nn.Parameter, slice] = {}
        start = 0
        for parameter in self._parameters:
            self._spans[parameter] = slice(start, start + parameter.numel())
            start += parameter.numel()
        self.dimension = start
        self.is_as_made = True
        self._point: NDArray[np.float32] | None = None
        self._layers: _Layers | None = None

    @property
    def point(self) -> NDArray[np.float32]:
        """float32 [d]; at first what the parameters held."""
        if self._point is None:
            self._point = self.values()
            self._bind(self.views(torch.from_numpy(self._point)))
            self.is_as_made = False
        return self._point

    def values(self) -> NDArray[np.float32]:
        """What the parameters hold, in the vector's order: a copy."""
        found = room(self.dimension)
        for parameter, view in zip(self._parameters, self.views(torch.from_numpy(found)), strict=True):
            view.copy_(parameter.data)
        return found

    def views(self, vector: Tensor) -> list[Tensor]:
        """A vector, float32 [d], as tensors of the parameters' shapes and layout, in their order: nothing is copied."""
        return [self.shaped(vector[span], parameter.shape) for parameter, span in self._spans.items()]

    @staticmethod
    def shaped(span: Tensor, shape: Any) -> Tensor:
        """A parameter's coordinates in its shape."""
        return span.view(shape)

    @contextmanager
    def at(self, x: Vector) -> Iterator[None]:
        """While it lasts, the parameters are views of x, [d], which nobody writes to."""
        kept = [parameter.data for parameter in self._parameters]
        self._bind(self.views(torch.from_numpy(np.require(x, np.float32, ["C", "W"]))))
        try:
            yield
        finally:
            self._bind(kept)

    def loss_at(self, fill: Fill, loss: Callable[[], Tensor]) -> float:
        """A loss at the vector that `fill` tells, layer by layer. Raises `TypeError` for a layer that is not called."""
        if self._layers is None:
            self._layers = _Layers(self.module, self._spans, self.shaped)
        if self._point is None:
            self._let_go()
        kept = [parameter.data for parameter in self._parameters]
        try:
            with torch.inference_mode(), self._layers.made_by(fill):
                found = float(loss())
        finally:
            self._bind(kept)
        if math.isnan(found):
            self._layers.check_all_called()
        return found

    def _bind(self, tensors: Sequence[Tensor]) -> None:
        for parameter, tensor in zip(self._parameters, tensors, strict=True):
            parameter.data = tensor

    def _let_go(self) -> None:
        """Parameters without storage: who uses one that was not made gets NaN, in the right shape."""
        self._bind([torch.full((1,), math.nan).expand(parameter.shape) for parameter in self._parameters])
        self.is_as_made = False


class _Layers:
    """The modules that own parameters, and one scratch for what the innermost of them that run now need."""

    def __init__(
        self, module: nn.Module, spans: dict[nn.Parameter, slice], shaped: Callable[[Tensor, Any], Tensor]
    ) -> None:
        self._spans, self._shaped = spans, shaped
        self._owned: dict[nn.Module, list[nn.Parameter]] = {}
        self._names: dict[nn.Module, str] = {}
        for name, layer in module.named_modules():
            own = [p for p in layer.parameters(recurse=False) if p in spans]
            if own:
                self._owned[layer], self._names[layer] = own, name
        self._scratch = room(self._need(module))
        self._top = 0
        self._called: set[nn.Module] = set()

    def _need(self, module: nn.Module) -> int:
        """Floats for the module's own parameters, each at most a cache line further on, and for one of its children."""
        own = sum(parameter.numel() + LINE for parameter in self._owned.get(module, ()))
        return own + max(map(self._need, module.children()), default=0)

    @contextmanager
    def made_by(self, fill: Fill) -> Iterator[None]:
        """While it lasts, a layer's parameters are filled before its forward pass."""
        began: list[tuple[int, list[Tensor]]] = []

        def before(layer: nn.Module, _: Any) -> None:
            began.append((self._top, [parameter.data for parameter in self._owned[layer]]))
            self._called.add(layer)
            for parameter in self._owned[layer]:
                span = self._spans[parameter]
                out = self._take(span)
                fill(span, out)
                parameter.data = self._shaped(torch.from_numpy(out), parameter.shape)

        def after(layer: nn.Module, _: Any, __: Any) -> None:
            self._top, held = began.pop()
            for parameter, data in zip(self._owned[layer], held, strict=True):
                parameter.data = data

        self._top = 0
        self._called.clear()
        hooks = [layer.register_forward_pre_hook(before) for layer in self._owned]
        hooks += [layer.register_forward_hook(after) for layer in self._owned]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _take(self, span: slice) -> NDArray[np.float32]:
        """Scratch for a span, as far from a cache line as the span itself is: that is all that torch could tell."""
        first = self._top + (span.start - self._top) % LINE
        self._top = first + span.stop - span.start
        if self._top > self._scratch.size:
            raise TypeError("a layer runs inside one that it is no part of, so their parameters have no room together")
        return self._scratch[first : self._top]

    def check_all_called(self) -> None:
        """Raises `TypeError` if there are layers whose parameters were not made, and so may have been used as NaN."""
        missed = [name for layer, name in self._names.items() if layer not in self._called]
        if missed:
            raise TypeError(f"the loss is no number, and layer {missed[0]} was not called: its weights may be in use")
