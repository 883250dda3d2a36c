"""A module's parameters as coordinates of one vector: stored in it, bound to another one, or filled layer by layer.

    point     the parameters' own storage, float32 [d]: writing to it changes the module
    at        the parameters are temporarily views of another vector: nothing is copied
    loss_at   a layer's parameters exist only during its forward pass: there is no vector at all

The invariant: every coordinate belongs to exactly one parameter, in their order; a tied parameter has its coordinates
once. The point is allocated on first use. Without it, no parameter uses memory between two losses.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.device import torch_device, vector_on
from seedbus.models.task import Fill, Vector
from seedbus.tensors import tensor_of

T = TypeVar("T")
LINE = 16  # floats of a cache line of 64 bytes


def aligned_zeros(count: int) -> NDArray[np.float32]:
    """Return zeros, float32 [count], aligned to a cache line: the rounding of products may depend on the alignment."""
    padded = np.zeros(count + LINE, np.float32)
    first = -padded.ctypes.data // padded.itemsize % LINE
    return padded[first : first + count]


def add_tensor(state: hashlib.blake2b, name: str, tensor: Tensor) -> None:
    """Add a tensor's name, shape, type and values to a digest."""
    state.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
    state.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


class Coordinates:
    """A module in evaluation mode, with those of its parameters that are coordinates, all float32.

    Attributes:
        module: the module.
        dimension: number of coordinates, d.
        device: the torch device of the module and its point; None: the point is a NumPy array.
        has_initial_values: whether the parameters certainly hold the values that the module was created with.
    """

    def __init__(self, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self.device = torch_device()
        self.module = module.eval() if self.device is None else module.eval().to(self.device)
        self._parameters = list(parameters)
        self._spans: dict[nn.Parameter, slice] = {}
        start = 0
        for parameter in self._parameters:
            self._spans[parameter] = slice(start, start + parameter.numel())
            start += parameter.numel()
        self.dimension = start
        self.has_initial_values = True
        self._point: Vector | None = None
        self._layers: _Layers | None = None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parameters, in the order of their coordinates; a row of the first axis is contiguous."""
        return [tuple(parameter.shape) for parameter in self._parameters]

    @property
    def point(self) -> Vector:
        """The parameters' storage, float32 [d]; it begins with their values."""
        if self._point is None:
            self._point = vector_on(self.values(), self.device)
            self._bind(self.views(self.tensor(self._point)))
            self.has_initial_values = False
        return self._point

    def values(self) -> NDArray[np.float32]:
        """Return a copy of the parameters' values, float32 [d]."""
        copied = aligned_zeros(self.dimension)
        for parameter, view in zip(self._parameters, self.views(torch.from_numpy(copied)), strict=True):
            view.copy_(parameter.data)
        return copied

    def tensor(self, vector: Vector) -> Tensor:
        """Return a vector, float32 [d], as a tensor beside the module: its own memory if it lies there."""
        return tensor_of(vector, self.device or "cpu").to(torch.float32)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return views of a vector, float32 [d], in the shapes and layout of the parameters, in their order."""
        return [self.shaped(vector[span], parameter) for parameter, span in self._spans.items()]

    def shaped(self, span: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return a view of a parameter's coordinates in its shape."""
        return span.view(parameter.shape)

    @contextmanager
    def at(self, x: Vector) -> Iterator[None]:
        """Within this context the parameters are views of x, [d], which must not be changed."""
        before = [parameter.data for parameter in self._parameters]
        self._bind(self.views(self.tensor(x)))
        try:
            yield
        finally:
            self._bind(before)

    def loss_at(self, fill: Fill, loss: Callable[[], Tensor]) -> Tensor:
        """Return a loss at a vector that is generated layer by layer; it stays on its device.

        Args:
            fill: writes the coordinates of a span into an array.
            loss: runs the module and returns the loss.
        """
        return self.computed_at(fill, loss, lambda value: value.item())

    def computed_at(self, fill: Fill, compute: Callable[[], T], loss: Callable[[T], float]) -> T:
        """Return what the module's forward passes give at a vector that is generated layer by layer.

        Args:
            fill: writes the coordinates of a span into an array.
            compute: runs the module, as often as it likes, and returns the result; it may be called twice.
            loss: returns a loss of that result: a NaN if a parameter was used that no layer had filled.
        """
        if self._layers is None:
            self._layers = _Layers(self.module, self._spans, self.shaped, self.device)
        if self._point is None:
            self._free_storage()
        before = [parameter.data for parameter in self._parameters]
        try:
            value = self._filled(self._layers, fill, compute)
            if self._layers.uncalled() and math.isnan(loss(value)) and self._layers.move_uncalled():
                value = self._filled(self._layers, fill, compute)
        finally:
            self._bind(before)
        return value

    @staticmethod
    def _filled(layers: _Layers, fill: Fill, compute: Callable[[], T]) -> T:
        with torch.inference_mode(), layers.filled_by(fill):
            return compute()

    def _bind(self, tensors: Sequence[Tensor]) -> None:
        for parameter, tensor in zip(self._parameters, tensors, strict=True):
            parameter.data = tensor

    def _free_storage(self) -> None:
        """Free the parameters' storage; a parameter that is used unfilled has its shape, and is NaN."""
        nothing = torch.full((1,), math.nan, device=self.device or "cpu")
        self._bind([nothing.expand(parameter.shape) for parameter in self._parameters])
        self.has_initial_values = False


class _Layers:
    """The layers that own parameters, and one scratch array for the parameters of the layers that are running.

    A module may use a layer's parameters without calling the layer, as `nn.MultiheadAttention` does with its output
    projection. Such parameters are filled with those of the innermost module around the layer that was called.
    """

    def __init__(
        self,
        module: nn.Module,
        spans: dict[nn.Parameter, slice],
        shaped: Callable[[Tensor, nn.Parameter], Tensor],
        device: torch.device | None,
    ) -> None:
        self._module = module
        self._spans = spans
        self._shaped = shaped
        self._device = device
        self._owned: dict[nn.Module, list[nn.Parameter]] = {}
        for layer in module.modules():
            own = [p for p in layer.parameters(recurse=False) if p in spans]
            if own:
                self._owned[layer] = own
        self._scratch = vector_on(aligned_zeros(self._scratch_size(module)), device)
        self._top = 0
        self._called: set[nn.Module] = set()

    def _scratch_size(self, module: nn.Module) -> int:
        """Return the floats for a module's own parameters, each up to a cache line of padding, and for one child."""
        own = sum(parameter.numel() + LINE for parameter in self._owned.get(module, ()))
        return own + max(map(self._scratch_size, module.children()), default=0)

    @contextmanager
    def filled_by(self, fill: Fill) -> Iterator[None]:
        """Within this context a layer's parameters are filled before its forward pass, and freed after it."""
        running: list[tuple[int, list[Tensor]]] = []

        def before(layer: nn.Module, _: Any) -> None:
            running.append((self._top, [parameter.data for parameter in self._owned[layer]]))
            self._called.add(layer)
            for parameter in self._owned[layer]:
                span = self._spans[parameter]
                out = self._take(span)
                fill(span, out)
                parameter.data = self._shaped(tensor_of(out, self._device or "cpu"), parameter)

        def after(layer: nn.Module, _: Any, __: Any) -> None:
            self._top, previous = running.pop()
            for parameter, data in zip(self._owned[layer], previous, strict=True):
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

    def _take(self, span: slice) -> Vector:
        """Return scratch for a span, at its own offset from a cache line: torch then computes the same bits."""
        first = self._top + (span.start - self._top) % LINE
        self._top = first + span.stop - span.start
        if self._top > self._scratch.size:
            raise TypeError(
                "a layer runs inside one that does not contain it, so the scratch array is too small for both"
            )
        return self._scratch[first : self._top]

    def uncalled(self) -> set[nn.Module]:
        """Return the layers with parameters that the last forward pass did not call."""
        return {layer for layer in self._owned if layer not in self._called}

    def move_uncalled(self) -> bool:
        """Give the parameters of layers that were not called to called ones around them; whether there were any."""
        uncalled = self.uncalled()
        for layer, around in list(_inside_out(self._module, ())):
            if layer in uncalled and around:
                owner = next((module for module in around if module in self._called), self._module)
                self._owned[owner] = list(dict.fromkeys([*self._owned.get(owner, ()), *self._owned.pop(layer, ())]))
        self._scratch = vector_on(aligned_zeros(self._scratch_size(self._module)), self._device)
        return bool(uncalled)


def _inside_out(module: nn.Module, around: tuple[nn.Module, ...]) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Yield a module and all modules inside it, each with the modules around it, from the innermost."""
    yield module, around
    for child in module.children():
        yield from _inside_out(child, (module, *around))
