"""QSGD: a vector's norm, and a sign and a randomly rounded level for each coordinate; the quantiser of FedPAQ.

Alistarh, Grubic, Li, Tomioka, Vojnovic. "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NeurIPS 2017, arXiv:1610.02132, §3.1; Reisizadeh, Mokhtari, Hassani, Jadbabaie, Pedarsani. "FedPAQ", AISTATS 2020,
arXiv:1909.13014, example 1 and Algorithm 1 (several local steps, partial participation, Q(x_i − x)):

    Q_s(v)_j = ‖v‖₂·sgn(v_j)·ξ_j,   ξ_j = (l + 1)/s with probability s|v_j|/‖v‖₂ − l, and else l/s;   l = ⌊s|v_j|/‖v‖₂⌋

E[Q_s(v)] = v, and E‖Q_s(v) − v‖² ≤ min(d/s², √d/s)·‖v‖². **Ours**: sign and level are one number of ⌈log₂(2s + 1)⌉
bits, instead of Elias coding; the whole vector is one bucket. FedPAQ's clients weigh the same: `weighting: uniform`.
From d = s² on the bound is ‖v‖² or more: the error may be larger than v, and `error_feedback`, which adds it to the
next v, may then let it grow from round to round.

On the wire: [‖v‖₂, float32, rounded up; levels from −s to s, as level + s].
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.aggregation.vectors import norms
from seedbus.algorithms.contract import BadPayload, Vector
from seedbus.algorithms.dense.compression.contract import Compression, floats, parts
from seedbus.algorithms.dense.compression.packing import pack, packed_bytes, unpack
from seedbus.algorithms.dense.draws import uniforms


class Qsgd(Compression):
    """QSGD, FedPAQ's quantiser (arXiv:1610.02132, arXiv:1909.13014): a norm, and a sign and a level each coordinate."""

    is_unbiased: ClassVar[bool] = True

    kind: Literal["qsgd"] = "qsgd"
    levels: int = Field(default=127, ge=1, lt=2**15, description="s; a coordinate takes ⌈log₂(2s + 1)⌉ bits, here 8")

    @property
    def _bits(self) -> int:
        return (2 * self.levels).bit_length()

    def encode(self, vector: Vector, key: int) -> list[Any]:
        length = _norm_rounded_up(vector)
        codes = np.full(vector.size, self.levels, np.uint16)
        if math.isfinite(length) and length > 0:
            level = np.abs(vector, dtype=np.float64)
            level *= self.levels / length
            level += uniforms(key, "qsgd", vector.size)
            whole = np.minimum(level, self.levels).astype(np.int32)  # rounding may exceed s
            np.negative(whole, out=whole, where=vector < 0)
            codes = (whole + self.levels).astype(np.uint16)
        return [np.array([length], "<f4").tobytes(), pack(codes, self._bits)]

    def decode(self, body: Any, dimension: int) -> Vector:
        raw, packed = parts(body, 4, packed_bytes(dimension, self._bits))
        length = float(floats(raw)[0])
        if length < 0:
            raise BadPayload("a vector's norm is negative")
        codes = unpack(packed, dimension, self._bits)
        if codes.max(initial=0) > 2 * self.levels:
            raise BadPayload(f"a vector has a level above {self.levels}")
        with np.errstate(invalid="ignore"):
            return ((codes.astype(np.float64) - self.levels) * (length / self.levels)).astype(np.float32)

    def most_bytes(self, dimension: int) -> int:
        return packed_bytes(dimension, self._bits) + 64


def _norm_rounded_up(vector: Vector) -> float:
    """Return ‖v‖₂ as the smallest float32 not below it, so that no level exceeds s."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = norms([vector])[0]
        rounded = np.float32(exact)
        return float(np.nextafter(rounded, np.float32(np.inf)) if rounded < exact else rounded)
