"""Vectors in bfloat16, which are kept as their bits, int16 [d]: a replica's x with `arithmetic: bfloat16`.

bfloat16 is the upper half of a float32. Rounding goes to nearest, ties to even, subnormals are kept, and a NaN stays a
NaN. It is done with whole numbers, since processors' own conversions differ in subnormals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbus.vector import Vector, is_on_host

if TYPE_CHECKING:
    from torch import Tensor

BITS: Final = np.dtype(np.int16)
"""The type of a vector in bfloat16."""


def widened(x: Any) -> Vector:
    """Return the values of a vector in bfloat16, float32; any other vector as it is."""
    if x.dtype != BITS:
        return x  # type: ignore[no-any-return]
    if not is_on_host(x):
        return _vector_of(widened_tensor(x.tensor))
    wide = x.astype(np.int32)
    wide <<= 16
    values: Vector = wide.view(np.float32)
    return values


def narrowed(x: Any) -> Any:
    """Return float32 values in bfloat16, each rounded once, as their bits."""
    if not is_on_host(x):
        return _vector_of(narrowed_tensor(x.tensor))
    return (_rounded(x.view(np.int32), np.where) >> 16).astype(BITS)


def empty_values(x: Any) -> Vector:
    """Return a vector for as many values, of the type that `widened` returns."""
    return np.empty_like(x, dtype=np.float32 if x.dtype == BITS else x.dtype)


def widened_tensor(bits: Tensor) -> Tensor:
    """Return what `widened` returns, of a tensor's bits, int16 [d]."""
    import torch

    return (bits.to(torch.int32) << 16).view(torch.float32)


def narrowed_tensor(x: Tensor) -> Tensor:
    """Return what `narrowed` returns, of a tensor, float32 [d]."""
    import torch

    narrow: Tensor = (_rounded(x.view(torch.int32), torch.where) >> 16).to(torch.int16)
    return narrow


def _rounded(bits: Any, where: Any) -> Any:
    """Return the bits of float32 values, int32, rounded in their upper halves; the lower ones are of no meaning."""
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return where(is_nan, bits | 0x400000, bits + (((bits >> 16) & 1) + 0x7FFF))


def _vector_of(tensor: Tensor) -> Vector:
    from seedbus.tensors import TensorVector

    vector: Any = TensorVector(tensor)
    return vector  # type: ignore[no-any-return]
