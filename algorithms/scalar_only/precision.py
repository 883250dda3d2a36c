"""The formats that gradient scalars have on the wire: float32, float16, bfloat16, or their signs alone.

    rounded   float64 → the nearest value of the format, ties to even, in one rounding; as float32, which represents
              the values of all three formats exactly
    narrow    values → stored form (little-endian, 4 or 2 bytes each)
    widen     stored form → values, float32

Invariant: every computation uses the rounded value of a scalar, so sender and receiver hold the same bits.

float16 is IEEE 754 binary16 (11 bits of significand, ±65,504, subnormals down to 6e−8). bfloat16 is the upper half of a
float32 (8 bits of significand, float32's range): Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training",
arXiv:1905.12322.

A sign is one bit, 1 for +1 and 0 for −1. The sign of 0 is +1. So the mean of signs, rounded, is the majority's sign,
and +1 in a tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_FLOAT32 = np.dtype(np.float32)
Precision = Literal["float32", "float16", "bfloat16"]
WirePrecision = Literal["float32", "float16", "bfloat16", "int32", "sign"]
"""int32: whole numbers of `arithmetic: integer`, which a client makes from scalars that it measured in float32."""


@dataclass(frozen=True, slots=True)
class Format:
    """One of the formats.

    Attributes:
        dtype: dtype of the stored form.
        largest: the largest finite value.
    """

    name: str
    dtype: np.dtype[Any]
    largest: float

    @property
    def width(self) -> int:
        """Bytes per scalar."""
        return self.dtype.itemsize

    def narrow(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Return the stored form of float32 or float64 values, each rounded once; to an infinity beyond `largest`.

        If the values have the stored dtype already, the same array is returned, here and by `widen`.
        """
        if self.name == "bfloat16":
            return _upper_half(values)
        if values.dtype == self.dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(self.dtype)

    def widen(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return the exact values of a stored form, float32."""
        if self.name == "bfloat16":
            return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if stored.dtype == _FLOAT32:
            return stored
        with np.errstate(invalid="ignore"):  # for signalling NaNs, which a peer may send
            return stored.astype(np.float32)

    def rounded(self, values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float32]:
        """Return float64 values as the receiver will have them, float32."""
        return self.widen(self.narrow(np.asarray(values, np.float64)))


FORMATS: Mapping[Precision, Format] = {
    "float32": Format("float32", np.dtype("<f4"), float(np.finfo(np.float32).max)),
    "float16": Format("float16", np.dtype("<f2"), 65504.0),
    "bfloat16": Format("bfloat16", np.dtype("<u2"), float.fromhex("0x1.fep127")),
}
FLOAT32 = FORMATS["float32"]


class _WholeNumbers(Format):
    """int32, the format of commits with `arithmetic: integer`; nothing is rounded."""

    def narrow(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    def widen(self, stored: NDArray[Any]) -> NDArray[Any]:
        return stored


INT32 = _WholeNumbers("int32", np.dtype("<i4"), float(2**31 - 1))


class _Signs(Format):
    """Signs, whose stored form is the bit; payloads packs eight of them to a byte."""

    def narrow(self, values: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
        return (values >= 0).astype(np.uint8)

    def widen(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        return np.where(stored, np.float32(1), np.float32(-1))


SIGN = _Signs("sign", np.dtype("u1"), 1.0)

WIRE_FORMATS: Mapping[WirePrecision, Format] = {"int32": INT32, "sign": SIGN, **dict(FORMATS.items())}


def _upper_half(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16, ties to even; a NaN keeps the bits that fit and stays a NaN."""
    bits = _to_odd(values).view(np.uint32)
    half = bits >> np.uint32(16)
    is_odd = half & np.uint32(1)
    # add just under half a unit, or half a unit if the upper half is odd: the carry rounds it, ties to even
    nearest = (bits + (np.uint32(0x7FFF) + is_odd)) >> np.uint32(16)
    quiet = np.where(half & np.uint32(0x7F), half, half | np.uint32(0x40))
    return np.where(np.isnan(values), quiet, nearest).astype(np.uint16)


def _to_odd(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return float32 values rounded to odd: an inexact value is truncated and its last bit is set.

    Boldo and Melquiond, "Emulation of a FMA and Correctly Rounded Sums", 2008, theorem 3: float32 has more than two
    bits more than bfloat16, so rounding to odd and then to bfloat16 gives the same as one rounding.
    """
    if values.dtype == np.float32:
        return np.ascontiguousarray(values, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.ascontiguousarray(values.astype(np.float32))
        back = near.astype(np.float64)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(values))  # one step towards 0; from infinity to the largest
    return np.where(np.isnan(values) | (back == values), near.view(np.uint32), bits | 1).astype(np.uint32).view("f4")
