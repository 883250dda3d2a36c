"""Small unsigned integers, packed without gaps at a fixed number of bits each, least significant bit first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.contract import BadPayload

WIDEST = 16
_GROUP = 8  # 8 numbers of b bits take b bytes


def packed_bytes(count: int, width: int) -> int:
    """Return how many bytes `count` numbers of `width` bits take."""
    return -(-count * width // 8)


def pack(numbers: NDArray[np.uint16], width: int) -> bytes:
    """Pack numbers below 2^width; width: bits a number, at most `WIDEST`."""
    groups = np.zeros((-(-numbers.size // _GROUP), _GROUP), np.uint32)
    groups.reshape(-1)[: numbers.size] = numbers
    out = np.zeros((len(groups), width), np.uint8)
    for place in range(_GROUP):
        byte, shift = divmod(place * width, 8)
        shifted = groups[:, place] << np.uint32(shift)
        for part in range(-(-(shift + width) // 8)):
            out[:, byte + part] |= (shifted >> np.uint32(8 * part)).astype(np.uint8)
    return out.tobytes()[: packed_bytes(numbers.size, width)]


def unpack(packed: bytes, count: int, width: int) -> NDArray[np.uint16]:
    """Return the `count` numbers that `pack` packed, uint16 [count].

    Raises:
        BadPayload: the length does not fit, or a bit is set after the last number.
    """
    if len(packed) != packed_bytes(count, width):
        raise BadPayload(f"{len(packed)} bytes where {count} numbers of {width} bits take {packed_bytes(count, width)}")
    spare = 8 * len(packed) - count * width
    if spare and packed[-1] >> (8 - spare):
        raise BadPayload("a bit is set after the last number")
    padded = np.zeros((-(-count // _GROUP), width), np.uint8)
    padded.reshape(-1)[: len(packed)] = np.frombuffer(packed, np.uint8)
    out = np.empty((len(padded), _GROUP), np.uint16)
    for place in range(_GROUP):
        byte, shift = divmod(place * width, 8)
        joined = np.zeros(len(padded), np.uint32)
        for part in range(-(-(shift + width) // 8)):
            joined |= padded[:, byte + part].astype(np.uint32) << np.uint32(8 * part)
        out[:, place] = (joined >> np.uint32(shift)) & np.uint32((1 << width) - 1)
    return out.reshape(-1)[:count]
