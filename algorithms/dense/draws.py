"""Numbers drawn by key for the dense family: what a codec rounds by, and what a channel does.

The generator is NumPy's Philox4x64-10 with the 64-bit key in its first word and the purpose in its second; its raw
words are read as they are, so no version of NumPy changes a draw. Directions have a stream of their own.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derived(key: int, purpose: str, *numbers: int) -> int:
    """64 bits that follow from a key, a purpose and numbers."""
    named = "\0".join((purpose, str(key), *map(str, numbers)))
    return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest(), "little")


def uniforms(key: int, purpose: str, count: int) -> NDArray[np.float64]:
    """`count` numbers in (0, 1), with 32 bits each; key: 64 bits."""
    second = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    raw = np.random.Philox(key=np.array([key, second], np.uint64)).random_raw(-(-count // 2))
    drawn = raw.astype("<u8").view("<u4")[:count].astype(np.float64)
    drawn += 0.5
    drawn *= 2.0**-32
    return drawn
