"""Top-k: the coordinates of largest magnitude are sent exactly; all others become zero.

Stich, Cordonnier, Jaggi. "Sparsified SGD with Memory", NeurIPS 2018, arXiv:1809.07599, definition 2.1. It is biased:
`error_feedback` adds the omitted coordinates to the next update (their Algorithm 1).

    top_k(v)_j = v_j for the k largest |v_j|, else 0;   k = ⌈fraction·d⌉

Among equal magnitudes the first coordinates are taken. On the wire: [k indices, uint32, ascending; k values, float32]:
8 bytes a coordinate, as papers count them, so sending all of them takes twice the bytes of no compression.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.algorithms.contract import BadPayload, Vector
from seedbus.algorithms.dense.compression.contract import Compression, floats, parts


class TopK(Compression):
    """Top-k (arXiv:1809.07599): the largest coordinates, each with its index."""

    kind: Literal["top-k"] = "top-k"
    fraction: float = Field(default=0.1, gt=0, le=1, description="k/d, share of the coordinates; k is rounded up")

    def scalars(self, dimension: int) -> int:
        """Return k: only so many values are sent."""
        return min(dimension, max(1, math.ceil(round(self.fraction * dimension, 6))))  # 0.07 × 100 is just above 7

    def encode(self, vector: Vector, key: int) -> list[Any]:
        indices = _largest(vector, self.scalars(vector.size))
        return [indices.astype("<u4").tobytes(), vector[indices].astype("<f4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        count = self.scalars(dimension)
        raw, values = parts(body, 4 * count, 4 * count)
        indices = np.frombuffer(raw, "<u4").astype(np.int64)
        if (np.diff(indices) <= 0).any() or indices[-1] >= dimension:
            raise BadPayload(f"a vector's indices are not ascending, or not below {dimension}")
        decoded = np.zeros(dimension, np.float32)
        decoded[indices] = floats(values)
        return decoded

    def most_bytes(self, dimension: int) -> int:
        return 8 * self.scalars(dimension) + 64

    def longest_string(self, dimension: int) -> int:
        return 4 * self.scalars(dimension)


def _largest(vector: Vector, count: int) -> NDArray[np.int64]:
    """Return the ascending indices of the `count` largest magnitudes; NaN counts as infinite."""
    magnitudes = np.abs(vector)
    magnitudes[np.isnan(magnitudes)] = np.inf
    least = np.partition(magnitudes, magnitudes.size - count)[magnitudes.size - count]
    above = np.flatnonzero(magnitudes > least)
    equal = np.flatnonzero(magnitudes == least)[: count - above.size]
    return np.sort(np.concatenate([above, equal]))
