"""A module's parameters as coordinates of one vector: stored in it, bound to another one, or filled layer by layer.

    point        the parameters' own storage, float32 [d]: writing to it changes the module
    at           the parameters are temporarily views of another vector: nothing is copied
    computed_at  a layer's parameters exist only while they are used: there is no vector at all

The invariant: every coordinate belongs to exactly one parameter, in their order; a tied parameter has its coordinates
once. The point is allocated on first use. Without it, no parameter uses memory between two losses. A parameter that is
used where nothing has filled it is NaN, and never what it was at another point.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.overrides import TorchFunctionMode

from seedbus.models.device import torch_device, vector_on
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.task import Fill, Vector
from seedbus.tensors import TensorVector, tensor_of

T = TypeVar("T")
LINE = 16  # floats of a cache line of 64 bytes
FORMS = frozenset(
    [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad")]
    + [Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, torch.is_floating_point]
)
"""What asks for a parameter's form and not for its values."""


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
        parameters: those that are coordinates, in their order.
        device: the torch device of the module and its point; None: the point is a NumPy array.
        has_initial_values: whether the parameters certainly hold the values that the module was created with.
    """

    def __init__(self, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        torch.backends.mha.set_fastpath_enabled(False)  # it rounds differently, and only where there are no gradients
        self.device = torch_device()
        self.module = module.eval() if self.device is None else module.eval().to(self.device)
        self.parameters = list(parameters)
        self._spans: dict[nn.Parameter, slice] = {}
        start = 0
        for parameter in self.parameters:
            self._spans[parameter] = slice(start, start + parameter.numel())
            start += parameter.numel()
        self.dimension = start
        self.has_initial_values = True
        self._point: Vector | None = None
        self._tangent: Vector | None = None
        self._layers: _Layers | None = None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parameters, in the order of their coordinates; a row of the first axis is contiguous."""
        return [tuple(parameter.shape) for parameter in self.parameters]

    @property
    def point(self) -> Vector:
        """The parameters' storage, float32 [d]; it begins with their values."""
        if self._point is None:
            self._point = vector_on(self.values(), self.device)
            _bind(self.parameters, self.views(self.tensor(self._point)))
            self.has_initial_values = False
        return self._point

    @property
    def tangent(self) -> Vector:
        """A direction, float32 [d], that the caller writes; at first zero."""
        if self._tangent is None:
            self._tangent = vector_on(aligned_zeros(self.dimension), self.device)
        return self._tangent

    @property
    def names(self) -> list[str]:
        """The names of the parameters, in the order of their coordinates."""
        return [name for name, parameter in self.module.named_parameters() if parameter in self._spans]

    def copy_at(self, x: Vector) -> nn.Module:
        """Return a copy of the module with the parameters x, float32 [d]."""
        with self.at(x):
            return deepcopy(self.module)

    @contextmanager
    def without_values(self) -> Iterator[list[Tensor]]:
        """Within this context each parameter is NaN, without memory for it; yields the values that they had."""
        values = [parameter.data for parameter in self.parameters]
        _bind(self.parameters, _unfilled(self.parameters, math.nan, self.device))
        try:
            yield values
        finally:
            _bind(self.parameters, values)

    def values(self) -> NDArray[np.float32]:
        """Return a copy of the parameters' values, float32 [d]."""
        copied = aligned_zeros(self.dimension)
        for parameter, view in zip(self.parameters, self.views(torch.from_numpy(copied)), strict=True):
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

    def rows(self, values: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return numbers in the layout of a parameter's coordinates, of some of its rows, as these rows, [n, …]."""
        return values.view(-1, *parameter.shape[1:])

    @contextmanager
    def at(self, x: Vector) -> Iterator[None]:
        """Within this context the parameters are views of x, [d], which must not be changed."""
        before = [parameter.data for parameter in self.parameters]
        _bind(self.parameters, self.views(self.tensor(x)))
        try:
            yield
        finally:
            _bind(self.parameters, before)

    def computed_at(self, fill: Fill, compute: Callable[[], T]) -> T:
        """Return what the module's forward passes give at a vector that is generated layer by layer.

        Args:
            fill: writes the coordinates of a span into an array.
            compute: runs the module, as often as it likes, and returns the result; it stays on its device.
        """
        if self._layers is None:
            self._layers = _Layers(self.module, self._spans, self.shaped, self.device)
        if self._point is None:
            _bind(self.parameters, _unfilled(self.parameters, math.nan, self.device))  # frees the initial values
            self.has_initial_values = False
        with self._layers.filled_by(fill):
            return compute()

    def check_layers(self, compute: Callable[[], Tensor]) -> None:
        """Compare a loss at the values that the parameters have with the same one computed layer by layer.

        Args:
            compute: runs the module and returns the loss.

        Raises:
            DataError: they differ.
        """
        values = {self._spans[p].start: (p, p.data) for p in self.parameters if p.numel()}

        def fill(span: slice, out: Vector) -> None:
            parameter, data = values[span.start]
            flat = torch.empty(data.numel())
            self.shaped(flat, parameter).copy_(data)
            np.copyto(out, flat.numpy())

        def differs(spans: Mapping[nn.Parameter, slice]) -> bool:
            for unfilled in (math.nan, -0.71):  # a comparison hides a NaN, and a number may have no effect
                try:
                    with _Layers(self.module, spans, self.shaped, self.device).filled_by(fill, unfilled):
                        found = compute()
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    return True
                if not torch.equal(found.nan_to_num(), whole.nan_to_num()):
                    return True
            return False

        whole = compute()
        if not differs(self._spans):
            return
        name = type(self.module).__name__
        for place, layer in self.module.named_modules():
            own = {p: self._spans[p] for p in layer.parameters(recurse=False) if p in self._spans}
            if own and differs(own):
                name = f"{place or name} ({type(layer).__name__})"
                break
        found = f"light, and the weights of {name} are used where torch does not tell of it, as in compiled code"
        raise DataError("algorithm.revert", found, "copy")


def _bind(parameters: Iterable[nn.Parameter], tensors: Iterable[Tensor]) -> None:
    for parameter, tensor in zip(parameters, tensors, strict=True):
        parameter.data = tensor


def _unfilled(parameters: Iterable[nn.Parameter], value: float, device: torch.device | None) -> list[Tensor]:
    """Return one number in the shape of each parameter, without memory for it."""
    number = torch.full((1,), value, device=device or "cpu")
    return [number.expand(parameter.shape) for parameter in parameters]


class _Layers(TorchFunctionMode):
    """The parameters of a module's layers, each in memory only while it is used.

    Those of a layer are filled before its forward pass, and freed after it. Others may use them without calling that
    layer, as `nn.MultiheadAttention` uses its output projection. torch hands each of its functions over to this mode
    before it is called: what a function takes of layers that are not running is filled for this call.
    """

    def __init__(
        self,
        module: nn.Module,
        spans: Mapping[nn.Parameter, slice],
        shaped: Callable[[Tensor, nn.Parameter], Tensor],
        device: torch.device | None,
    ) -> None:
        """Take the parameters with these spans; see `Coordinates` for the others."""
        super().__init__()
        self._spans = spans
        self._shaped = shaped
        self._device = device
        self._owned: dict[nn.Module | None, list[nn.Parameter]] = {}
        self._own(module, None)
        # on a device torch itself keeps what is freed
        self._scratch: Vector = aligned_zeros(0 if device is not None else self._scratch_size(module))
        self._top = 0
        self._filled: set[nn.Parameter] = set()

    def _own(self, module: nn.Module, around: nn.Module | None) -> None:
        """Find the layer whose call fills a module's parameters: that around a scripted one, or None for the root."""
        owner = around if isinstance(module, torch.jit.ScriptModule) else module  # which tells nothing of its layers
        if own := [parameter for parameter in module.parameters(recurse=False) if parameter in self._spans]:
            self._owned.setdefault(owner, []).extend(own)
        for child in module.children():
            self._own(child, owner)

    def _scratch_size(self, module: nn.Module) -> int:
        """Return the floats for a module's own parameters, each up to a cache line of padding, and for one child."""
        own = sum(parameter.numel() + LINE for parameter in self._owned.get(module, ()))
        return own + max(map(self._scratch_size, module.children()), default=0)

    @contextmanager
    def filled_by(self, fill: Fill, unfilled: float = math.nan) -> Iterator[None]:
        """Within this context parameters are filled where they are used, and are a number elsewhere."""
        before = [parameter.data for parameter in self._spans]
        running: list[Callable[[], None]] = []

        def enter(layer: nn.Module, _: Any) -> None:
            with DisableTorchFunction():  # this mode is for what the module does
                running.append(self._fill(self._owned[layer]))

        def leave(*_: Any) -> None:
            with DisableTorchFunction():
                running.pop()()

        # inside of the user's own hooks, and also left when an error is caught by the layer around it
        layers = [layer for layer in self._owned if layer is not None]
        hooks = [layer.register_forward_pre_hook(enter, prepend=True) for layer in layers]
        hooks += [layer.register_forward_hook(leave, always_call=True) for layer in layers]
        self._write, self._top = fill, 0
        _bind(self._spans, _unfilled(self._spans, unfilled, self._device))
        self._fill(self._owned.get(None, ()))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()
            _bind(self._spans, before)
            self._filled.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, with the parameters filled that it takes."""
        kwargs = kwargs or {}
        used = [] if func in FORMS else [*self._unfilled_in((args, kwargs))]
        if not used:
            return func(*args, **kwargs)
        free = self._fill(used)
        try:
            return func(*args, **kwargs)
        finally:
            free()

    def _unfilled_in(self, value: Any) -> Iterator[nn.Parameter]:
        """Yield the parameters in the arguments of a function that are not filled."""
        if isinstance(value, Tensor):
            if value in self._spans and value not in self._filled:
                yield value  # type: ignore[misc]
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._unfilled_in(each)
        elif isinstance(value, dict):
            yield from self._unfilled_in([*value.values()])

    def _fill(self, parameters: Iterable[nn.Parameter]) -> Callable[[], None]:
        """Fill those parameters that are not, and return what frees them."""
        top, freed = self._top, []
        for parameter in parameters:
            if parameter not in self._filled:
                memory = self._take(self._spans[parameter])
                self._write(self._spans[parameter], memory)
                freed.append((parameter, parameter.data, None if self._device else weakref.ref(memory)))
                parameter.data = self._shaped(tensor_of(memory, self._device or "cpu"), parameter)
                self._filled.add(parameter)

        def free() -> None:
            for parameter, data, _ in freed:
                parameter.data = data
                self._filled.discard(parameter)
            if any(memory is not None and memory() is not None for *_, memory in freed):
                self._scratch = aligned_zeros(self._scratch.size)  # somebody keeps a view of what was freed
            self._top = top

        return free

    def _take(self, span: slice) -> Vector:
        """Return memory for a span, at its own offset from a cache line: torch then computes the same bits."""
        first = self._top + (span.start - self._top) % LINE
        last = first + span.stop - span.start
        if last <= self._scratch.size:
            self._top = last
            return self._scratch[first:last]
        first, last = span.start % LINE, span.start % LINE + span.stop - span.start
        if self._device is None:
            return aligned_zeros(last)[first:]
        memory: Any = TensorVector(torch.empty(last, device=self._device)[first:])
        return memory  # type: ignore[no-any-return]
