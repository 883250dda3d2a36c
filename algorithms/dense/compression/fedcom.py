"""FedCOM: coordinates rounded at random to a few levels between the smallest and the largest.

Haddadpour, Kamani, Mokhtari, Mahdavi. "Federated Learning with Compression: Unified Analysis and Sharp Guarantees",
AISTATS 2021, arXiv:2007.01154, Algorithm 1: clients send Q(Δ), with any Q that has E[Q(x)] = x (Assumption 1), and
weigh the same (`weighting: uniform`); their experiments round to 8 bits. **Ours** is the choice of Q: with a = min x,
b = max x, L = 2^bits − 1 and h = (b − a)/L,

    Q(x)_j = a + h·⌊(x_j − a)/h + u_j⌋,   u_j uniform on (0, 1),   so   E[Q(x)] = x   and   |Q(x)_j − x_j| < h

On the wire: [a and b, float32; levels of `bits` bits]; at 8 bits a quarter of float32's bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import BadPayload, Vector
from seedbus.algorithms.dense.compression.contract import Compression, floats, parts
from seedbus.algorithms.dense.compression.packing import WIDEST, pack, packed_bytes, unpack
from seedbus.algorithms.dense.draws import uniforms


class FedCom(Compression):
    """FedCOM (arXiv:2007.01154): unbiased rounding to levels between the smallest and the largest coordinate."""

    is_unbiased: ClassVar[bool] = True

    kind: Literal["fedcom"] = "fedcom"
    bits: int = Field(default=8, ge=1, le=WIDEST, description="bits a coordinate")

    @property
    def _levels(self) -> int:
        """The highest level, L; the lowest is 0."""
        return (1 << self.bits) - 1

    def encode(self, vector: Vector, key: int) -> list[Any]:
        ends = np.array([vector.min(), vector.max()], "<f4")
        low, high = ends.astype(np.float64)
        codes = np.zeros(vector.size, np.uint16)
        if np.isfinite(ends).all() and low < high:
            level = (vector.astype(np.float64) - low) * (self._levels / (high - low))
            level += uniforms(key, "fedcom", vector.size)
            codes = np.minimum(level, self._levels).astype(np.uint16)
        return [ends.tobytes(), pack(codes, self.bits)]

    def decode(self, body: Any, dimension: int) -> Vector:
        ends, packed = parts(body, 8, packed_bytes(dimension, self.bits))
        with np.errstate(invalid="ignore"):  # a vector that is not finite stays so, and the server refuses it
            low, high = floats(ends).astype(np.float64)
            if high < low:
                raise BadPayload("a vector's largest coordinate is below its smallest")
            decoded: Vector = low + unpack(packed, dimension, self.bits) * ((high - low) / self._levels)
            np.minimum(decoded, high, out=decoded)
            return decoded.astype(np.float32)

    def most_bytes(self, dimension: int) -> int:
        return packed_bytes(dimension, self.bits) + 64
