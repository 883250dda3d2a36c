"""A block of a replica: what one step works on, and the last thing that every step does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seedbus.algorithms.vector import Vector


class Block:
    """A cache-sized span of a replica's fields, with scratch of the same length."""

    __slots__ = ("delta", "fields", "spare", "sqrt_hessian", "start")

    def __init__(self, fields: Mapping[str, Vector], span: slice) -> None:
        self.start: int = span.start
        self.fields = {name: field[span] for name, field in fields.items()}
        self.delta, self.spare, self.sqrt_hessian = (np.empty_like(self.fields["x"]) for _ in range(3))


def coefficients_of(scalars: Vector, weight: float, real: type[np.floating[Any]]) -> Vector:
    """What each direction weighs in Δ: scalars · (weight / P), [K, P] or [P], each operation rounded to x's type."""
    coefficients: Vector = scalars.astype(real) * (real(weight) / real(scalars.shape[-1]))
    return coefficients


def descend(block: Block, direction: Vector, learning_rate: float) -> None:
    """x ← x − η·direction: one rounded product, one rounded difference."""
    np.multiply(direction, direction.dtype.type(learning_rate), out=block.spare)
    np.subtract(block.fields["x"], block.spare, out=block.fields["x"])
