"""Sums over the coordinates of models: what rules of aggregation do to millions of numbers.

Everything is float64, in blocks of coordinates, and in the order of clients: a result depends on the vectors and their
order alone. Sums are not exact, as they are for gradient scalars; that would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.vector import Vector

Row = NDArray[np.float64]
BLOCK = 2**15
"""Coordinates at a time, so that the blocks of ten clients stay in the cache."""


def average(vectors: Sequence[Vector], factors: Sequence[float] | None = None) -> Row:
    """Σ_i f_i·v_i / n, float64 [d]; all factors are 1 where none are given."""
    total = np.zeros(vectors[0].size)
    for vector, factor in zip(vectors, factors or [1.0] * len(vectors), strict=True):
        total += vector if factor == 1 else factor * vector.astype(np.float64)
    return total / len(vectors)


def trimmed_average(vectors: Sequence[Vector], cut: int) -> Row:
    """The mean of each coordinate without its `cut` smallest and largest, float64 [d]."""
    found = np.empty(vectors[0].size)
    for here, block in _blocks(vectors):
        block.sort(axis=0)
        found[here] = np.add.reduce(block[cut : len(block) - cut], axis=0) / (len(block) - 2 * cut)
    return found


def squared_distances(vectors: Sequence[Vector]) -> list[list[float]]:
    """‖a − b‖² of each pair."""
    count = len(vectors)
    found = [[0.0] * count for _ in vectors]
    for _, block in _blocks(vectors):
        for i in range(count):
            for j in range(i + 1, count):
                away = block[j] - block[i]
                away *= away
                found[i][j] = found[j][i] = found[i][j] + float(np.add.reduce(away))
    return found


def lengths(vectors: Sequence[Vector]) -> list[float]:
    """‖v‖ of each."""
    squares = [0.0] * len(vectors)
    for _, block in _blocks(vectors):
        block *= block
        squares = [total + float(np.add.reduce(row)) for total, row in zip(squares, block, strict=True)]
    return [math.sqrt(total) for total in squares]


def _blocks(vectors: Sequence[Vector]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Float64 copies [n, ≤ BLOCK], and where they are from. A zero has no sign there: sorting knows of none."""
    for start in range(0, vectors[0].size, BLOCK):
        here = slice(start, start + BLOCK)
        yield here, np.stack([vector[here] for vector in vectors]).astype(np.float64) + 0.0
