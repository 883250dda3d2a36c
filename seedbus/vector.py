"""The type of the vectors that models and algorithms share, and sums over them with one order on every processor.

This module stands below all layers and imports none of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
"""Coordinates, shape [d] unless said otherwise; float32 in every run, float64 only in the theory tests' reference.

On a device a `seedbus.tensors.TensorVector` stands in its place, on which NumPy's functions operate too.
"""


def is_on_host(vector: object) -> bool:
    """Whether a vector is a NumPy array, and not on a device (`seedbus.tensors`)."""
    return isinstance(vector, np.ndarray)


def inner(first: Vector, second: Vector) -> float:
    """⟨first, second⟩ of two vectors [d], products and sums in float64.

    NumPy adds in the same order everywhere. np.dot would leave the order to BLAS, which has another for each kind of
    processor.
    """
    return float(np.multiply(first, second, dtype=np.float64).sum())


def norm(vector: Vector) -> float:
    """The Euclidean norm of a vector [d], the same to the bit on every processor."""
    return math.sqrt(inner(vector, vector))
