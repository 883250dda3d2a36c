"""Fixed point: each coordinate as a whole number of units, four bytes, so that updates add up exactly.

    n_j = the whole number nearest to 2ˢ·v_j, of a magnitude below 2³¹        v_j ≈ 2⁻ˢ·n_j

It saves no bytes. Secure aggregation masks whole numbers (Bonawitz et al. 2017, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS), and clipping and noise are exact on them (agents/privacy). With equal
weights the sum of the n is all that the mean needs.

On the wire: [n, int32]; for a vector with a number that is not finite, or larger than that, a mark. Such a vector
decodes to one that the server refuses.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.compression.contract import Compression, parts

_LARGEST = 2**31 - 1
_NOT_FINITE, _TOO_LARGE = b"", b"\0"


class FixedPoint(Compression):
    """Whole numbers of units of 2^-s, int32: updates that secure_aggregation and privacy can add up."""

    kind: Literal["fixed-point"] = "fixed-point"
    unit_bits: int = Field(default=20, ge=0, le=22, description="s; a coordinate is a multiple of 2^-s, below 2^(31-s)")

    def encode(self, vector: Vector, key: int) -> list[Any]:
        numbers = np.rint(np.ldexp(vector.astype(np.float64), self.unit_bits))
        if not np.isfinite(numbers).all():
            return [_NOT_FINITE]
        return [_TOO_LARGE if np.abs(numbers).max(initial=0) > _LARGEST else numbers.astype("<i4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        if dimension and body in ([_NOT_FINITE], [_TOO_LARGE]):
            return np.full(dimension, np.nan if body == [_NOT_FINITE] else np.finfo(np.float32).max, np.float32)
        (raw,) = parts(body, 4 * dimension)
        return self.decoded(np.frombuffer(raw, "<i4"))

    def decoded(self, numbers: NDArray[Any]) -> Vector:
        """Return the coordinates of some numbers of units, or of their mean, float32, rounded once."""
        return np.ldexp(numbers.astype(np.float64), -self.unit_bits).astype(np.float32)


def whole_numbers(body: list[Any]) -> NDArray[np.int32] | None:
    """Return the numbers of a vector's body; None if it has none."""
    (raw,) = body
    return None if raw in (_NOT_FINITE, _TOO_LARGE) else np.frombuffer(raw, "<i4").astype(np.int32)
