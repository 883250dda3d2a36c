"""Replay as a simple loop in Numba: Philox in scalar code that LLVM vectorises, then look-ups one by one.

It gives the bits of the kernels (`replay.py` checks it) and is what they must beat on every processor.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import uint32, uint64

from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL

M0, M1 = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
W0, W1 = (np.uint32(weyl) for weyl in WEYL)
BLOCKS = 64  # Philox blocks at a time: 512 coordinates
LOW, HIGH, WORD = np.uint32(0xFFFF), np.uint32(16), np.uint64(32)


@numba.njit(nogil=True, error_model="numpy")
def add(x, scale, table, step, p, low, high):  # type: ignore[no-untyped-def]
    """Add scale · z(p) to x [a multiple of 512]; `table` is the whole table of quantiles."""
    words = np.empty(4 * BLOCKS, np.uint32)
    for first in range(0, x.size, 8 * BLOCKS):
        for b in range(BLOCKS):
            c0, c1, c2, c3 = uint32(first // 8 + b), uint32(step), uint32(p), uint32(0)
            k0, k1 = uint32(low), uint32(high)
            for _ in range(ROUNDS):
                product0, product1 = M0 * uint64(c0), M1 * uint64(c2)
                c0, c1 = uint32(product1 >> WORD) ^ c1 ^ k0, uint32(product1)
                c2, c3 = uint32(product0 >> WORD) ^ c3 ^ k1, uint32(product0)
                k0, k1 = uint32(k0 + W0), uint32(k1 + W1)
            words[4 * b], words[4 * b + 1], words[4 * b + 2], words[4 * b + 3] = c0, c1, c2, c3
        for w in range(4 * BLOCKS):
            x[first + 2 * w] += scale * table[words[w] & LOW]
            x[first + 2 * w + 1] += scale * table[words[w] >> HIGH]
