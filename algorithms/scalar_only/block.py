"""A block of a replica, the arithmetic that local and global steps share, and sums over all coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from seedbus.algorithms.directions import ALIGNMENT, for_blocks
from seedbus.algorithms.directions.bfloat16 import BITS, narrowed, widened
from seedbus.vector import Vector


class Block:
    """A cache-sized span of a replica's fields, with scratch vectors of the same length n.

    An x in bfloat16 is widened; `round` rounds it after each step, and `store` writes it back.

    Attributes:
        start: the span's first coordinate.
        fields: name → view of a field's coordinates, [n]; of an x in bfloat16 a float32 copy.
        delta: scratch for Δ, [n].
        spare: scratch for one step's intermediate results, [n].
        sqrt_hessian: scratch for √H, [n].
    """

    __slots__ = ("delta", "fields", "spare", "sqrt_hessian", "start", "stored")

    def __init__(self, fields: Mapping[str, Vector], span: slice) -> None:
        self.start: int = span.start
        self.fields = {name: field[span] for name, field in fields.items()}
        self.stored: Any = None
        if self.fields["x"].dtype == BITS:
            self.stored = self.fields["x"]
            self.fields["x"] = widened(self.stored)
        self.delta: Vector = np.empty_like(self.fields["x"])
        self.spare: Vector = np.empty_like(self.fields["x"])
        self.sqrt_hessian: Vector = np.empty_like(self.fields["x"])

    def round(self) -> None:
        """Round an x in bfloat16, after a step; no other field is rounded."""
        if self.stored is not None:
            np.copyto(self.fields["x"], widened(narrowed(self.fields["x"])))

    def store(self) -> None:
        """Write an x in bfloat16 back; every other field is a view."""
        if self.stored is not None:
            self.stored[:] = narrowed(self.fields["x"])


def coefficients_of(scalars: Vector, weight: float, real: type[np.floating[Any]]) -> Vector:
    """Return the weight of each direction in Δ: scalars · (weight / P), in the shape of the scalars.

    Args:
        scalars: gradient scalars, [K, P] or [P].
        weight: weight of their term in the commit.
        real: dtype of x, to which each operation is rounded.
    """
    coefficients: Vector = scalars.astype(real) * (real(weight) / real(scalars.shape[-1]))
    return coefficients


def descend(block: Block, direction: Vector, learning_rate: float) -> None:
    """Compute x ← x − η·direction: one rounded product and one rounded difference."""
    np.multiply(direction, direction.dtype.type(learning_rate), out=block.spare)
    np.subtract(block.fields["x"], block.spare, out=block.fields["x"])


def total(like: Vector, values: Callable[[slice], Vector]) -> float:
    """Return the sum of d values, the same to the bit whatever the blocks, the threads and the memory of the values.

    Args:
        like: a vector [d] of the kind that the values are.
        values: the values of a span of coordinates.
    """
    sums = np.zeros(-(-like.size // ALIGNMENT))  # of each group of coordinates, which no block divides

    def add(span: slice) -> None:
        groups = np.zeros((-(-(span.stop - span.start) // ALIGNMENT), ALIGNMENT))
        groups.reshape(-1)[: span.stop - span.start] = np.asarray(values(span), np.float64)
        sums[span.start // ALIGNMENT : -(-span.stop // ALIGNMENT)] = groups.sum(axis=1)

    for_blocks(like.size, add, like=like)
    return math.fsum(sums)
