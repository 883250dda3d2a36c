"""Vectors in the memory of a torch device, on which NumPy's own functions operate.

A `TensorVector` stands wherever a NumPy array of coordinates does. NumPy hands its functions and operators over to it
(NEP 13 and NEP 18), and it runs them on its device. So neither an algorithm nor an agent knows of devices. Where it has
no counterpart of a function, the function runs on copies in host memory, and its result goes back to the device.

Invariant: multiplication, addition, subtraction, division, square roots and comparisons are single operations in the
type that NumPy would take, each correctly rounded, so their bits are NumPy's. Sums over coordinates may differ in the
last bits; what every replica must agree on contains none.

This module stands below all layers, imports none of them, and is imported only where torch is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

_TORCH: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.bool_): torch.bool,
}
_CHUNK = 1 << 22
_NUMPY: dict[torch.dtype, np.dtype[Any]] = {kind: dtype for dtype, kind in _TORCH.items()}


class TensorVector(NDArrayOperatorsMixin):
    """A vector [n] in a device's memory.

    Attributes:
        tensor: its coordinates, one-dimensional; slices are views of it.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    # -- what an array tells of itself

    @property
    def size(self) -> int:
        return self.tensor.numel()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return _NUMPY[self.tensor.dtype]

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"TensorVector({self.dtype}, {self.size} on {self.tensor.device})"

    # -- coordinates

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a copy in host memory; read-only unless one was asked for, as writing to it changes no vector."""
        array = self.tensor.detach().to("cpu", copy=True).numpy()
        array = array if dtype is None else array.astype(dtype, copy=False)
        if not copy:  # NumPy makes no array of memory that is torch's writeable, not even one that is
            array.flags.writeable = False
        return array

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return TensorVector(self.tensor[key])
        return np.asarray(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        source = _operand(value, self.tensor.device)
        if isinstance(key, slice) or key is Ellipsis:
            part = self.tensor[key]
            part.copy_(source) if isinstance(source, Tensor) else part.fill_(source)
        else:
            source = source.to(self.tensor.dtype) if isinstance(source, Tensor) else source
            self.tensor[_index(key, self.tensor.device)] = source

    def __float__(self) -> float:
        return float(self.tensor)

    def copy(self) -> TensorVector:
        return TensorVector(self.tensor.clone())

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Any:
        """Return the coordinates in another type; an array in host memory if torch does not have the type."""
        if np.dtype(dtype) not in _TORCH:
            return np.asarray(self).astype(dtype)
        return TensorVector(self.tensor.to(_TORCH[np.dtype(dtype)], copy=copy))

    def fill(self, value: float) -> None:
        self.tensor.fill_(value)

    def ravel(self) -> TensorVector:
        return TensorVector(self.tensor.reshape(-1))

    def tobytes(self) -> bytes:
        return np.asarray(self).tobytes()

    # -- figures over all coordinates

    def sum(self, *arguments: Any, **options: Any) -> Any:
        return np.asarray(self).sum(*arguments, **options)

    def mean(self, *arguments: Any, **options: Any) -> Any:
        return np.asarray(self).mean(*arguments, **options)

    def std(self, *arguments: Any, **options: Any) -> Any:
        return np.asarray(self).std(*arguments, **options)

    def max(self, *_: Any, **__: Any) -> Any:
        return self.dtype.type(self.tensor.max().item())

    def min(self, *_: Any, **__: Any) -> Any:
        return self.dtype.type(self.tensor.min().item())

    def all(self, *_: Any, **__: Any) -> bool:
        return bool(self.tensor.all())

    def any(self, *_: Any, **__: Any) -> bool:
        return bool(self.tensor.any())

    # -- NumPy's functions

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Run an element-wise function of NumPy here, or on the host if there is no counterpart."""
        (out,) = options.pop("out", (None,))
        operation = _UFUNCS.get(ufunc.__name__)
        shapes = {np.shape(each) for each in inputs} - {()}
        if method != "__call__" or operation is None or options.keys() - {"dtype"} or len(shapes) > 1:
            return _on_host(getattr(ufunc, method), inputs, options, out, self.tensor.device)
        kind = np.dtype(options.get("dtype") or np.result_type(*map(_typed, inputs)))
        if not _has_numpys_bits(ufunc.__name__, kind):
            return _on_host(ufunc, inputs, options, out, self.tensor.device)
        result = operation(*(_operand(each, self.tensor.device, kind) for each in inputs))
        return _written(result, out)

    def __array_function__(
        self, function: Any, types: Sequence[type], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Run a function of NumPy that makes, copies or clips vectors here, and any other on the host."""
        own = _FUNCTIONS.get(function.__name__)
        if own is not None and options.keys() <= _OPTIONS.get(function.__name__, {"dtype"}):
            return own(*arguments, **options)
        others = {name: value for name, value in options.items() if name != "out"}
        return _on_host(function, arguments, others, options.get("out"), self.tensor.device)


def tensor_of(vector: Any, device: torch.device | str) -> Tensor:
    """Return a vector's coordinates as a tensor on a device: its own memory if it lies there already."""
    if isinstance(vector, TensorVector):
        return vector.tensor.to(device)
    return torch.from_numpy(np.require(vector, requirements=["C", "W"])).to(device)


def placed(vector: Any, device: torch.device | str) -> TensorVector:
    """Return a copy of a vector in a device's memory."""
    return TensorVector(torch.from_numpy(np.array(vector)).to(device))


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, in the processor's memory if its device has none, as Apple's GPUs."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def sqrt(tensor: Tensor) -> Tensor:
    """Return correctly rounded square roots; torch's own are not, on some processors.

    The root of a float32, taken in float64 and rounded, is the rounded root: no float32's root is so near to the middle
    of two others that float64's error could matter.
    """
    if tensor.dtype != torch.float32:
        return torch.sqrt(tensor)
    roots = torch.empty_like(tensor)
    for start in range(0, tensor.numel(), _CHUNK):  # so that no long vector of float64 is in memory
        roots[start : start + _CHUNK] = torch.sqrt(wide(tensor[start : start + _CHUNK]))
    return roots


def _typed(value: Any) -> Any:
    """Return what decides the type of a result: a dtype, or a number of Python's, which decides least."""
    return value.dtype if hasattr(value, "dtype") else value


def _operand(value: Any, device: torch.device, kind: Any = None) -> Any:
    """Return an input of an operation as a tensor, or as a number, which takes the type of the tensors beside it."""
    if isinstance(value, TensorVector):
        tensor = value.tensor
    elif isinstance(value, np.ndarray) and value.ndim:
        tensor = torch.from_numpy(np.require(value, requirements=["C", "W"])).to(device)
    else:
        return value.item() if isinstance(value, np.generic | np.ndarray) else value
    return tensor if kind is None else tensor.to(_TORCH[np.dtype(kind)])


def _written(result: Tensor, out: Any) -> Any:
    if out is None:
        return TensorVector(result)
    out[...] = TensorVector(result)
    return out


def _host(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_host, value))
    return np.asarray(value) if isinstance(value, TensorVector) else value


def _on_host(
    function: Callable[..., Any], inputs: Sequence[Any], options: Mapping[str, Any], out: Any, device: torch.device
) -> Any:
    """Run a function of NumPy on copies in host memory; its result goes back to the device, or to `out`."""
    host_options = {name: _host(value) for name, value in options.items()}
    if out is not None:
        host_out = np.array(out)
        function(*map(_host, inputs), out=host_out, **host_options)
        out[...] = host_out
        return out
    result = function(*map(_host, inputs), **host_options)
    is_vector = isinstance(result, np.ndarray) and result.ndim == 1 and result.dtype in _TORCH
    return placed(result, device) if is_vector else result


def _index(key: Any, device: torch.device) -> Any:
    return key.tensor if isinstance(key, TensorVector) else torch.as_tensor(key, device=device)


def _divide(first: Any, second: Any) -> Tensor:
    if not isinstance(second, Tensor):  # by a number some devices multiply by its reciprocal, which rounds twice
        second = torch.tensor(second, dtype=first.dtype, device=first.device)
    return torch.div(first, second)


def _swapped(operation: Callable[[Tensor, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """Return an operation of torch that also takes a number first."""

    def run(first: Any, second: Any) -> Tensor:
        if not isinstance(first, Tensor):
            first = torch.tensor(first, dtype=second.dtype, device=second.device)
        return operation(first, second)

    return run


_UFUNCS: dict[str, Callable[..., Tensor]] = {
    "add": _swapped(torch.add),
    "subtract": _swapped(torch.sub),
    "multiply": _swapped(torch.mul),
    "divide": _swapped(_divide),
    "true_divide": _swapped(_divide),
    "negative": torch.neg,
    "absolute": torch.abs,
    "sqrt": sqrt,
    "square": torch.square,
    "rint": torch.round,  # both take the even one of two nearest
    "sign": lambda tensor: torch.where(torch.isnan(tensor), tensor, torch.sign(tensor)),  # torch's sign of NaN is 0
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "less": _swapped(torch.lt),
    "less_equal": _swapped(torch.le),
    "greater": _swapped(torch.gt),
    "greater_equal": _swapped(torch.ge),
    "equal": _swapped(torch.eq),
    "not_equal": _swapped(torch.ne),
}


_OF_INTEGERS = {"add", "subtract", "multiply", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}


def _has_numpys_bits(name: str, kind: np.dtype[Any]) -> bool:
    """Whether torch's operation on numbers of this type has the type and the bits of NumPy's."""
    if kind == np.float64:
        return name != "sqrt"  # see `sqrt`
    return kind == np.float32 or (kind.kind in "iub" and name in _OF_INTEGERS)


def _like(make: Callable[..., Tensor]) -> Callable[..., TensorVector]:
    def run(like: TensorVector, *values: Any, dtype: DTypeLike | None = None) -> TensorVector:
        kind = None if dtype is None else _TORCH[np.dtype(dtype)]
        numbers = (value.item() if isinstance(value, np.generic) else value for value in values)
        return TensorVector(make(like.tensor, *numbers, dtype=kind))

    return run


def _copyto(target: Any, source: Any, where: Any = True) -> None:
    source = source if where is True else np.where(where, source, target)
    target[...] = np.asarray(source) if isinstance(target, np.ndarray) else source


def _clip(vector: Any, lowest: Any, highest: Any, out: Any = None) -> Any:
    given = [each for each in (vector, lowest, highest) if each is not None]
    device = next(each.tensor.device for each in given if isinstance(each, TensorVector))
    if any(map(np.ndim, given[1:])) or np.result_type(*map(_typed, given)) != vector.dtype:  # torch mixes no kinds
        return _on_host(np.clip, (vector, lowest, highest), {}, out, device)
    return _written(torch.clamp(vector.tensor, _operand(lowest, device), _operand(highest, device)), out)


_OPTIONS = {"copyto": {"where"}, "clip": {"out"}}  # with others than these, or `dtype`, they run on the host
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "empty_like": _like(torch.empty_like),
    "zeros_like": _like(torch.zeros_like),
    "ones_like": _like(torch.ones_like),
    "full_like": _like(torch.full_like),
    "copyto": _copyto,
    "clip": _clip,
    "size": lambda vector, axis=None: vector.size if axis is None else vector.shape[axis],
    "shape": lambda vector: vector.shape,
}
