"""Small whole numbers, packed in as few bits each as they need: least significant bit first, one string of bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.contract import BadPayload

WIDEST = 16
_GROUP = 8  # so many numbers of b bits are b bytes


def packed_bytes(count: int, width: int) -> int:
    """How many bytes `count` numbers of `width` bits take."""
    return -(-count * width // 8)


def pack(numbers: NDArray[np.uint16], width: int) -> bytes:
    """Numbers below 2^width, width ≤ 16."""
    groups = np.zeros((-(-numbers.size // _GROUP), _GROUP), np.uint32)
    groups.reshape(-1)[: numbers.size] = numbers
    out = np.zeros((len(groups), width), np.uint8)
    for place in range(_GROUP):
        byte, shift = divmod(place * width, 8)
        moved = groups[:, place] << np.uint32(shift)
        for part in range(-(-(shift + width) // 8)):
            out[:, byte + part] |= (moved >> np.uint32(8 * part)).astype(np.uint8)
    return out.tobytes()[: packed_bytes(numbers.size, width)]


def unpack(packed: bytes, count: int, width: int) -> NDArray[np.uint16]:
    """The inverse. Raises `BadPayload` for another length, or if a bit is set after the last number."""
    if len(packed) != packed_bytes(count, width):
        raise BadPayload(f"{len(packed)} bytes where {count} numbers of {width} bits take {packed_bytes(count, width)}")
    spare = 8 * len(packed) - count * width
    if spare and packed[-1] >> (8 - spare):
        raise BadPayload("bits after the last number")
    padded = np.zeros((-(-count // _GROUP), width), np.uint8)
    padded.reshape(-1)[: len(packed)] = np.frombuffer(packed, np.uint8)
    out = np.empty((len(padded), _GROUP), np.uint16)
    for place in range(_GROUP):
        byte, shift = divmod(place * width, 8)
        found = np.zeros(len(padded), np.uint32)
        for part in range(-(-(shift + width) // 8)):
            found |= padded[:, byte + part].astype(np.uint32) << np.uint32(8 * part)
        out[:, place] = (found >> np.uint32(shift)) & np.uint32((1 << width) - 1)
    return out.reshape(-1)[:count]
