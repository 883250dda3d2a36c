"""Fixed point: each coordinate as a whole number of units, four bytes, so that updates add up exactly.

    n_j = the whole number nearest to 2ˢ·v_j, within ±(2³¹ − 1)        v_j ≈ 2⁻ˢ·n_j

It saves no bytes. Secure aggregation masks whole numbers (Bonawitz et al. 2017, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS), and clipping and noise are exact on them (agents/privacy). With equal
weights the sum of the n is all that the mean needs (algorithms/summed.py).

On the wire: [n, int32]; nothing for a vector that is not finite.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.compression.contract import Compression, parts

_LARGEST = 2**31 - 1


class FixedPoint(Compression):
    """Whole numbers of units of 2^-s, int32: updates that secure_aggregation and privacy can add up."""

    kind: Literal["fixed-point"] = "fixed-point"
    unit_bits: int = Field(default=20, ge=0, le=40, description="s; a coordinate is a multiple of 2^-s, below 2^(31-s)")

    def encode(self, vector: Vector, key: int) -> list[Any]:
        if not np.isfinite(vector).all():
            return [b""]
        numbers = np.rint(np.ldexp(vector.astype(np.float64), self.unit_bits))
        return [np.clip(numbers, -_LARGEST, _LARGEST).astype("<i4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        if body == [b""] and dimension:
            return np.full(dimension, np.nan, np.float32)
        (raw,) = parts(body, 4 * dimension)
        return self.decoded(whole_numbers(raw))

    def decoded(self, numbers: NDArray[Any]) -> Vector:
        """Return the coordinates of some numbers of units, or of their mean, float32, rounded once."""
        return np.ldexp(numbers.astype(np.float64), -self.unit_bits).astype(np.float32)


def whole_numbers(raw: bytes) -> NDArray[np.int32]:
    """Return the numbers of little-endian int32 bytes."""
    return np.frombuffer(raw, "<i4").astype(np.int32)
