"""Whole numbers of 128 bits as words of a masked report, whose sums over a cohort fit into 32 bits each.

A number is cut into words of so few bits that those of all clients that a round may ask add up to less than 2³¹. The
highest word has the sign. Sums of words, each times its power of two, are the sum of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.secure.settings import LARGEST

BITS = 128
"""Of a number, the sign included."""


def word_count(numbers: int, asked: int) -> int:
    """Return how many words so many numbers are; asked: how many clients a round asks at most."""
    return numbers * -(-BITS // _bits(asked))


def words(numbers: Sequence[int], asked: int) -> NDArray[np.int32]:
    """Return the words of numbers of -2¹²⁷ to 2¹²⁷ - 1, lowest first."""
    bits, each = _bits(asked), word_count(1, asked)
    cut = [
        number >> (bits * place) if place == each - 1 else number >> (bits * place) & (1 << bits) - 1
        for number in numbers
        for place in range(each)
    ]
    return np.array(cut, dtype=np.int32)


def sums_of(totals: Sequence[int], asked: int) -> list[int]:
    """Return the sums of numbers; totals: the sums of their words."""
    bits, each = _bits(asked), word_count(1, asked)
    return [
        sum(int(total) << (bits * place) for place, total in enumerate(totals[first : first + each]))
        for first in range(0, len(totals), each)
    ]


def _bits(asked: int) -> int:
    return (LARGEST // asked + 1).bit_length() - 1
