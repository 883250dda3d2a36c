"""Replay as a simple loop in Numba: Philox in scalar code that LLVM vectorises, then coordinates one by one.

It gives the bits of the kernels (`replay.py` checks it) and is what they must beat on every processor.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import uint32, uint64

from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL

M0, M1 = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
W0, W1 = (np.uint32(weyl) for weyl in WEYL)
BLOCKS = {"gaussian": 64, "rademacher": 8}  # Philox blocks at a time: 512 and 1024 coordinates
COORDINATES = {"gaussian": 8 * BLOCKS["gaussian"], "rademacher": 128 * BLOCKS["rademacher"]}
QUANTILE_BLOCKS, SIGN_BLOCKS = BLOCKS.values()
LOW, HIGH, WORD = np.uint32(0xFFFF), np.uint32(16), np.uint64(32)


@numba.njit(nogil=True, forceinline=True, error_model="numpy")
def draw(words, block, step, p, domain, low, high):  # type: ignore[no-untyped-def]
    """Write words, [a multiple of 4] = the Philox blocks of a stream from `block` on."""
    for b in range(words.size // 4):
        c0, c1, c2, c3 = uint32(block + b), uint32(step), uint32(p), uint32(domain)
        k0, k1 = uint32(low), uint32(high)
        for _ in range(ROUNDS):
            product0, product1 = M0 * uint64(c0), M1 * uint64(c2)
            c0, c1 = uint32(product1 >> WORD) ^ c1 ^ k0, uint32(product1)
            c2, c3 = uint32(product0 >> WORD) ^ c3 ^ k1, uint32(product0)
            k0, k1 = uint32(k0 + W0), uint32(k1 + W1)
        words[4 * b], words[4 * b + 1], words[4 * b + 2], words[4 * b + 3] = c0, c1, c2, c3


@numba.njit(nogil=True, error_model="numpy")
def add_quantiles(x, scale, table, step, p, low, high):  # type: ignore[no-untyped-def]
    """Add scale · z(p) of `gaussian` to x [a multiple of 512]; `table` is the whole table of quantiles."""
    words = np.empty(4 * QUANTILE_BLOCKS, np.uint32)
    for first in range(0, x.size, 8 * QUANTILE_BLOCKS):
        draw(words, first // 8, step, p, 0, low, high)
        for w in range(4 * QUANTILE_BLOCKS):
            x[first + 2 * w] += scale * table[words[w] & LOW]
            x[first + 2 * w + 1] += scale * table[words[w] >> HIGH]


@numba.njit(nogil=True, error_model="numpy")
def add_signs(x, scale, table, step, p, low, high):  # type: ignore[no-untyped-def]
    """Add scale · z(p) of `rademacher` to x [a multiple of 1024]; `table` is not read."""
    words = np.empty(4 * SIGN_BLOCKS, np.uint32)
    for first in range(0, x.size, 128 * SIGN_BLOCKS):
        draw(words, first // 128, step, p, 1, low, high)
        for w in range(4 * SIGN_BLOCKS):
            word, part = words[w], x[first + 32 * w : first + 32 * w + 32]
            for bit in range(32):
                part[bit] += scale if (word >> uint32(bit)) & uint32(1) else -scale


ADD = {"gaussian": add_quantiles, "rademacher": add_signs}
