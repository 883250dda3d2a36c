"""Exact sums in Numba: one call adds many terms to a block of int64 coordinates, without the interpreter lock.

`rademacher` adds up to `DIRECTIONS` terms in 32-bit registers first if that cannot overflow, that is if Σ|n| < 2³¹;
other terms, and those of other laws, are added in 64 bits one by one.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint32
from numpy.typing import NDArray

from seedbus.algorithms.directions.exact import FRACTION, Sums, Terms
from seedbus.algorithms.directions.kernels import (
    BLOCKS,
    DIRECTIONS,
    PIECE,
    SCRATCH_WORDS,
    Stream,
    groups,
    inlined,
    kernel,
    philox_words,
)
from seedbus.algorithms.directions.llvm_ops import SIGNS, WORDS, sum_signs

SHIFT = np.int64(FRACTION)
LOW, HIGH, BIT = np.uint32(0xFFFF), np.uint32(16), np.uint32(1)
LIMIT = np.int64(1 << 31)


@inlined
def _add_quantiles(sums, term, words, start, table):  # type: ignore[no-untyped-def]
    """Add n · q to one piece; `words` is scratch, [4 · BLOCKS]."""
    for first in range(0, sums.size, 8 * BLOCKS):
        part = sums[first : first + 8 * BLOCKS]
        block, count = (start + first) // 8, part.size // 8
        philox_words(words, block, count, Stream(term.step, term.perturbation, term.low, term.high), 0)
        if -LIMIT <= term.number < LIMIT:  # a product of 32 bits each is one instruction
            number = int32(term.number)
            for w in range(part.size // 2):
                part[2 * w] += int64(number) * int64(table[words[w] & LOW])
                part[2 * w + 1] += int64(number) * int64(table[words[w] >> HIGH])
        else:
            for w in range(part.size // 2):
                part[2 * w] += term.number * int64(table[words[w] & LOW])
                part[2 * w + 1] += term.number * int64(table[words[w] >> HIGH])


@inlined
def _add_signs(sums, number, words):  # type: ignore[no-untyped-def]
    """Add n · q to one piece, with the signs in `words`."""
    shifted = number << SHIFT
    for w in range(sums.size // SIGNS):
        for bit in range(SIGNS):
            is_plus = int64((words[w] >> uint32(bit)) & BIT)
            sums[SIGNS * w + bit] += shifted * (is_plus + is_plus - 1)


@kernel
def _add(sums, start, terms, table):  # type: ignore[no-untyped-def]
    words, narrow = np.empty(SCRATCH_WORDS, np.uint32), np.empty(PIECE, np.int32)
    numbers = np.empty(DIRECTIONS, np.int32)
    for first in range(0, sums.size, PIECE):
        piece = sums[first : first + PIECE]
        if table.size:
            for j in range(terms.size):
                _add_quantiles(piece, terms[j], words, start + first, table)
            continue
        for begin in range(0, terms.size, DIRECTIONS):
            count, total = min(DIRECTIONS, terms.size - begin), int64(0)
            for j in range(count):
                term = terms[begin + j]
                part = words[4 * BLOCKS * j :]
                block, blocks = (start + first) // 128, piece.size // 128
                philox_words(part, block, blocks, Stream(term.step, term.perturbation, term.low, term.high), 1)
                total = LIMIT if abs(term.number) >= LIMIT else min(LIMIT, total + abs(term.number))
                numbers[j] = int32(term.number)
            if total < LIMIT:
                partial = narrow[: piece.size]
                partial[:] = int32(0)
                for i in range(0, piece.size, SIGNS * WORDS):
                    sum_signs(partial, numbers, 0, count, words, 4 * BLOCKS, i, i // SIGNS)
                for i in range(piece.size):
                    piece[i] += int64(partial[i]) << SHIFT
            else:
                for j in range(count):
                    _add_signs(piece, terms[begin + j].number, words[4 * BLOCKS * j :])


def add_terms(table: NDArray[np.int16], sums: Sums, terms: Terms, start: int) -> None:
    """Add terms to a block of sums. See `ExactDirections`.

    Args:
        table: the law's q, [65536]; without elements for `rademacher`.
        sums: the coordinates from `start` on.
        terms: the terms, with the words of the stream's key.
        start: the first coordinate.
    """
    for at, (part,) in groups(start, sums):
        _add(part, at, terms, table)
