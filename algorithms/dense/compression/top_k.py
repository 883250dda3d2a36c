"""Top-k: the coordinates of largest magnitude as they are, and zero for all others.

Stich, Cordonnier, Jaggi. "Sparsified SGD with Memory", NeurIPS 2018, arXiv:1809.07599, definition 2.1. It is biased:
`error_feedback` keeps what was left out and adds it to the next update (their Algorithm 1).

    top_k(v)_j = v_j for the k largest |v_j|, else 0;   k = ⌈fraction·d⌉

Of equal magnitudes the first coordinates are taken. On the wire: [k indices, uint32, ascending; k values, float32]:
8 bytes each, as the papers count them, so all coordinates take twice what they take uncompressed.
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
    fraction: float = Field(default=0.1, gt=0, le=1, description="k/d, of the coordinates; rounded up")

    def scalars(self, dimension: int) -> int:
        """k."""
        return min(dimension, max(1, math.ceil(round(self.fraction * dimension, 6))))  # 0.07 × 100 is just above 7

    def encode(self, vector: Vector, key: int) -> list[Any]:
        indices = _largest(vector, self.scalars(vector.size))
        return [indices.astype("<u4").tobytes(), vector[indices].astype("<f4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        count = self.scalars(dimension)
        raw, values = parts(body, 4 * count, 4 * count)
        indices = np.frombuffer(raw, "<u4").astype(np.int64)
        if (np.diff(indices) <= 0).any() or indices[-1] >= dimension:
            raise BadPayload("a vector's indices do not ascend to its dimension")
        found = np.zeros(dimension, np.float32)
        found[indices] = floats(values)
        return found

    def most_bytes(self, dimension: int) -> int:
        return 8 * self.scalars(dimension) + 64


def _largest(vector: Vector, count: int) -> NDArray[np.int64]:
    """Where the `count` largest magnitudes are, ascending; what is no number is larger than any."""
    sizes = np.abs(vector)
    sizes[np.isnan(sizes)] = np.inf
    least = np.partition(sizes, sizes.size - count)[sizes.size - count]
    above = np.flatnonzero(sizes > least)
    level = np.flatnonzero(sizes == least)[: count - above.size]
    return np.sort(np.concatenate([above, level]))
