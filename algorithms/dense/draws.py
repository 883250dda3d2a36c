"""Keyed random numbers of the dense family: for the rounding of codecs and the fading of channels.

The generator is NumPy's Philox4x64-10, with the 64-bit key in the first word of its key and the purpose in the second.
Only its raw words are used, so a draw does not depend on the version of NumPy. Directions have a stream of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.keyed import keyed_bits


def derived(key: int, purpose: str, *numbers: int) -> int:
    """Return a 64-bit key derived from a key, a purpose and numbers."""
    return keyed_bits(purpose, key, *numbers)


def uniforms(key: int, purpose: str, count: int) -> NDArray[np.float64]:
    """Return `count` uniform numbers in (0, 1), of 32 random bits each, from a 64-bit key; float64 [count]."""
    raw = np.random.Philox(key=np.array([key, keyed_bits(purpose)], np.uint64)).random_raw(-(-count // 2))
    drawn = raw.astype("<u8").view("<u4")[:count].astype(np.float64)
    drawn += 0.5
    drawn *= 2.0**-32
    return drawn
