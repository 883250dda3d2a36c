"""How many elements a msgpack frame has, counted without building any.

A byte of msgpack may become sixty of Python's (an empty array is one). A short frame cannot do much harm with that;
a long one, of vectors, has few elements, and is counted before it is decoded.
"""

from __future__ import annotations

# by an element's first byte: all its bytes, if it says no length; or the bytes of the length that it says
_WIDE = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xDC: 3, 0xDD: 5}
_SAID = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def has_more_than(frame: bytes, most: int) -> bool:
    """Whether a frame of numbers, strings, byte strings and arrays has more than `most` of them.

    What is none of these counts as an element of one byte: whoever decodes the frame refuses it.
    """
    at, end = 0, len(frame)
    for _ in range(most):
        if at >= end:
            return False
        first = frame[at]
        if 0xA0 <= first < 0xC0:
            at += 1 + (first & 0x1F)
        elif first in _SAID:
            width = _SAID[first]
            at += 1 + width + int.from_bytes(frame[at + 1 : at + 1 + width], "big")
        else:
            at += _WIDE.get(first, 1)
    return at < end
