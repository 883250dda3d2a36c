"""Sums over the coordinates of model updates, for the aggregation rules.

Everything is computed in float64, in blocks of coordinates and in the order of clients. So a result depends only on
the vectors and their order. Unlike sums of gradient scalars these are not exact: exact ones would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from seedbus.vector import Vector

Row = NDArray[np.float64]
BLOCK = 2**15
"""Coordinates processed at a time; the blocks of ten clients fit into the cache."""


def average(vectors: Sequence[Vector], factors: Sequence[float] | None = None) -> Row:
    """Return Σ_i f_i·v_i / n, float64 [d], for n vectors v_i and factors f_i; without factors all are 1."""
    total = np.zeros(vectors[0].size)
    for vector, factor in zip(vectors, factors or [1.0] * len(vectors), strict=True):
        total += vector if factor == 1 else factor * vector.astype(np.float64)
    return total / len(vectors)


def trimmed_average(vectors: Sequence[Vector], cut: int) -> Row:
    """Return the mean of each coordinate without its `cut` smallest and its `cut` largest values, float64 [d]."""
    means = np.empty(vectors[0].size)
    for span, block in _blocks(vectors):
        block.sort(axis=0)
        means[span] = np.add.reduce(block[cut : len(block) - cut], axis=0) / (len(block) - 2 * cut)
    return means


def squared_distances(vectors: Sequence[Vector]) -> list[list[float]]:
    """Return ‖a − b‖² of each pair of vectors, [n, n]."""
    count = len(vectors)
    distances = [[0.0] * count for _ in vectors]
    for _, block in _blocks(vectors):
        for i in range(count):
            for j in range(i + 1, count):
                squares = block[j] - block[i]
                squares *= squares
                distances[i][j] = distances[j][i] = distances[i][j] + float(np.add.reduce(squares))
    return distances


def norms(vectors: Sequence[Vector]) -> list[float]:
    """Return the Euclidean norm of each vector."""
    squares = [0.0] * len(vectors)
    for _, block in _blocks(vectors):
        block *= block
        squares = [total + float(np.add.reduce(row)) for total, row in zip(squares, block, strict=True)]
    return [math.sqrt(total) for total in squares]


def deviations(vectors: Sequence[Vector], mean: Row) -> Row:
    """Return the standard deviation of each coordinate about its mean, √(Σ_i (v_i − mean)² / n), float64 [d]."""
    total = np.zeros(mean.size)
    for vector in vectors:
        difference = vector - mean
        total += difference * difference
    return np.sqrt(total / len(vectors))


def inner_products(vectors: Sequence[Vector], origin: Row, direction: Row) -> list[tuple[float, float]]:
    """Return ‖v − origin‖² and ⟨v − origin, direction⟩ of each vector v; origin, direction: float64 [d]."""
    products = [(0.0, 0.0)] * len(vectors)
    for span, block in _blocks(vectors):
        block -= origin[span]
        for number, row in enumerate(block):
            square, along = products[number]
            products[number] = (
                square + float(np.add.reduce(row * row)),
                along + float(np.add.reduce(row * direction[span])),
            )
    return products


def _blocks(vectors: Sequence[Vector]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield spans of coordinates and float64 copies of the vectors there, [n, ≤ BLOCK].

    Adding 0.0 turns −0 into +0, because sorting does not order the two.
    """
    for start in range(0, vectors[0].size, BLOCK):
        span = slice(start, start + BLOCK)
        yield span, np.stack([vector[span] for vector in vectors]).astype(np.float64) + 0.0
