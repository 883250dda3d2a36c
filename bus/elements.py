"""Count the elements of a msgpack frame without building any Python object.

One byte of msgpack, such as an empty array, may become sixty bytes of Python objects. A short frame cannot do much harm
with that. A long frame carries vectors and so has few elements; they are counted before the frame is decoded.
"""

from __future__ import annotations

# First byte of a number, or of an array's header → size in bytes, the first byte included.
_SIZES = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xDC: 3, 0xDD: 5}
# First byte of a string or byte string → bytes of its length field, which follows.
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def has_more_than(frame: bytes, limit: int) -> bool:
    """Return whether a frame of numbers, strings, byte strings and arrays has more than `limit` elements.

    An element of any other type counts as one byte: the decoder refuses such a frame anyway.
    """
    offset = 0
    end = len(frame)
    for _ in range(limit):
        if offset >= end:
            return False
        first = frame[offset]
        if 0xA0 <= first < 0xC0:
            offset += 1 + (first & 0x1F)
        elif first in _LENGTH_BYTES:
            width = _LENGTH_BYTES[first]
            offset += 1 + width + int.from_bytes(frame[offset + 1 : offset + 1 + width], "big")
        else:
            offset += _SIZES.get(first, 1)
    return offset < end
