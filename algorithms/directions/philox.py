"""Philox4x32-10, a counter-based generator: it maps a 128-bit counter and a 64-bit key to 128 random bits.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
The constants are from that paper. The tests use the known-answer vectors that Random123 publishes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
"""Increments of the two key words in each round: the golden ratio and √3 − 1."""


def philox4x32(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Return the random blocks of counters, uint32 [..., 4].

    Args:
        counter: four 32-bit words each, word 0 first, [..., 4].
        key: two 32-bit words, low word first.
    """
    c0, c1, c2, c3 = (counter[..., word].astype(np.uint64) for word in range(4))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for round in range(ROUNDS):
        k0, k1 = (np.uint64((word + round * weyl) & 0xFFFFFFFF) for word, weyl in zip(key, WEYL, strict=True))
        product0, product1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (product1 >> shift) ^ c1 ^ k0, product1 & low, (product0 >> shift) ^ c3 ^ k1, product0 & low
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)


def key_words(seed: int) -> tuple[int, int]:
    """Return a 64-bit seed as a key: its low word and its high word."""
    return seed & 0xFFFFFFFF, seed >> 32
