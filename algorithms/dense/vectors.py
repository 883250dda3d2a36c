"""Vectors as they travel and are kept: little-endian float32 bytes. A long one is a view of its memory, without a copy.

One of more than 2 GiB is several byte strings, because msgpack has none of 2³² bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seedbus import pieces
from seedbus.algorithms.contract import BadPayload, Vector

Raw = bytes | memoryview | list[memoryview]
_BLOCK = 2**20  # coordinates that are summed at a time


def raw(vector: Vector) -> Raw:
    """Return a vector's bytes. Those of a long one are its own memory, which must not change any more."""
    flat = np.ascontiguousarray(vector, "<f4")
    if flat.nbytes <= pieces.WHOLE:
        return flat.tobytes()
    view = flat.data.toreadonly().cast("B")
    if len(view) <= pieces.SLICE:
        return view
    return [view[at : at + pieces.SLICE] for at in range(0, len(view), pieces.SLICE)]


def read(stored: Any, dimension: int) -> Vector:
    """Return the vector of some bytes, float32 [dimension]; of a view it is a view, which cannot be written to.

    Raises:
        BadPayload: they are not so many coordinates.
    """
    if isinstance(stored, list) and 4 * dimension > pieces.SLICE:
        return np.concatenate([read(each, len(each) // 4) for each in _slices(stored, dimension)])
    if not isinstance(stored, bytes | memoryview) or len(stored) != 4 * dimension:
        raise BadPayload(f"a field that is not {4 * dimension} bytes")
    vector: Vector = np.frombuffer(stored, "<f4")
    return vector.astype(np.float32, copy=isinstance(stored, bytes))


def _slices(stored: list[Any], dimension: int) -> list[Any]:
    sizes = [len(each) if isinstance(each, bytes | memoryview) else -1 for each in stored]
    if any(size < 0 or size % 4 for size in sizes) or sum(sizes) != 4 * dimension:
        raise BadPayload(f"a field that is not {4 * dimension} bytes")
    return stored


def kept(vector: Vector) -> Vector:
    """Return a vector that stays as it is: a copy, or of a long one itself, which must not change any more."""
    return vector.copy() if vector.nbytes <= pieces.WHOLE else vector


def rows(vectors: list[Vector]) -> Vector:
    """Return vectors as the rows of an array, float32 [V, d]; a single one is not copied."""
    return vectors[0][np.newaxis] if len(vectors) == 1 else np.stack(vectors)


def weighted_sum(vectors: list[Vector], weights: list[float], divisor: float, start: Any, dimension: int) -> Vector:
    """Return (start + Σ w·v) / divisor, float32 [d], summed in float64 in the order of the vectors.

    Args:
        vectors: float32 [d] each.
        weights: one for each vector.
        divisor: what the sum is divided by.
        start: what the sum begins with, float64 [d]; None: zeros.
        dimension: number of coordinates, d.
    """
    out = np.empty(dimension, np.float32)
    for first in range(0, dimension, _BLOCK):
        part = slice(first, first + _BLOCK)
        total = np.zeros(out[part].size)
        if start is not None:
            total += start[part]
        for vector, weight in zip(vectors, weights, strict=True):
            total += weight * vector[part].astype(np.float64)
        out[part] = total / divisor
    return out
