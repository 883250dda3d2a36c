"""The discrete Gaussian, Pr[x] ∝ exp(−x²/2σ²) on the integers, drawn exactly, many numbers at once.

Canonne, Kamath, Steinke. "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, arXiv:2004.00010. With t =
⌊σ⌋ + 1, Algorithm 2 draws a candidate y = l + t·h, l uniform in [0, t) and h with probability ∝ e⁻ʰ, accepts it with
probability exp(−l/t), and gives it a sign; Algorithm 3 accepts that with probability exp(−(|y| − σ²/t)²/2σ²). Here one
decision with the product of both is made in the place of the two:

    exp(−γ),   γ = y²/2σ² − h + σ²/2t² = (y²t² − 2σ²t²h + σ⁴) / 2σ²t² ≥ 0

Nothing is rounded. A decision is whether a uniform number u from [0, 1), of which 64 bits are drawn, is below exp(−γ).
In float64 γ and exp(−γ) are known to within 2⁻³⁸, so wherever u is farther than 2⁻³² from that, its side is certain,
and the same on every processor. Elsewhere, once in 2³¹ decisions, decimals of as many digits as it takes decide, and
further bits of u are drawn if 64 do not.

Random bits come from the operating system, or from a stream that a key decides, the same everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from hashlib import shake_128
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from seedbus.keyed import Key, keyed_bytes

Words = Callable[[int], NDArray[np.uint64]]
"""Returns so many words of 64 uniform bits."""

_DOUBTFUL = 2.0**-32  # nearer than this to the probability, float64 does not decide
_BLOCK = 2**14  # candidates at once; their arrays fit into a processor's cache
_FEW_BITS = 2**34  # below this the first 64 bits are too few for −ln u to be known so well


def system(count: int) -> NDArray[np.uint64]:
    """Return words of the operating system's generator."""
    return np.frombuffer(os.urandom(8 * count), "<u8").astype(np.uint64)


def keyed(*key: Key) -> Words:
    """Return a stream of words that a key decides: SHAKE128 of it and of the number of the call."""
    own, calls = keyed_bytes(*key, size=64), 0

    def draw(count: int) -> NDArray[np.uint64]:
        nonlocal calls
        drawn = shake_128(own + calls.to_bytes(8, "little")).digest(8 * count)
        calls += 1
        return np.frombuffer(drawn, "<u8").astype(np.uint64)

    return draw


class Uniform:
    """A uniform number from [0, 1), of which as many bits are drawn as a decision needs.

    Args:
        word: its first 64 bits.
        words: the further ones.
    """

    def __init__(self, word: int, words: Words) -> None:
        self._drawn, self._bits, self._words = word, 64, words

    def is_below_exp(self, numerator: int, denominator: int) -> bool:
        """Return whether it is below exp(−γ), γ = numerator/denominator ≥ 0."""
        while True:
            digits = self._bits // 3 + len(str(numerator // denominator)) + 10
            with localcontext(Context(prec=digits, Emin=-(10**15), Emax=10**15)):  # `exp` is rounded correctly
                power = (Decimal(-numerator) / denominator).exp() * 2**self._bits
                # of γ a digit in the last place may be wrong, so of exp(−γ) as many parts as γ is large
                error = power * (numerator // denominator + 4) * Decimal(10) ** (1 - digits)
                if self._drawn + 1 <= power - error:
                    return True
                if self._drawn >= power + error:
                    return False
            self._drawn = self._drawn << 64 | int(self._words(1)[0])
            self._bits += 64


def geometric(count: int, words: Words) -> NDArray[np.int64]:
    """Return integers h ≥ 0, each with probability ∝ e⁻ʰ: h = ⌊−ln u⌋. int64 [count]."""
    drawn = words(count)
    logarithms = -np.log(np.maximum(drawn, 1) * 2.0**-64)
    is_doubtful = (np.abs(logarithms - np.rint(logarithms)) < _DOUBTFUL) | (drawn < _FEW_BITS)
    found = np.where(is_doubtful, 0, logarithms).astype(np.int64)
    for place in np.flatnonzero(is_doubtful):
        uniform = Uniform(int(drawn[place]), words)
        while uniform.is_below_exp(int(found[place]) + 1, 1):
            found[place] += 1
    return found


def number_and_bit(limit: int, count: int, words: Words) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return uniform integers in [0, limit), limit < 2⁶³, and a bit beside each. int64 and bool [count]."""
    drawn = words(count)
    most = 2**63 // limit * limit
    while (beyond := np.flatnonzero(drawn >> 1 >= most)).size:
        drawn[beyond] = words(beyond.size)
    return ((drawn >> 1) % limit).astype(np.int64), (drawn & 1).astype(np.bool_)


def discrete_gaussian(variance: int, count: int, words: Words) -> NDArray[np.int64]:
    """Return integers x, each with probability ∝ exp(−x²/2σ²), 1 ≤ σ² = variance < 2¹⁰⁰. int64 [count]."""
    found, missing = [np.empty(0, np.int64)], count
    while missing:
        candidates, is_accepted = _candidates(variance, min(missing * 9 // 4 + 16, _BLOCK), words)
        accepted = candidates[is_accepted][:missing]  # some 48%
        found.append(accepted)
        missing -= accepted.size
    return np.concatenate(found)


def _candidates(variance: int, count: int, words: Words) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return candidates with their signs, and which are accepted."""
    scale = isqrt(variance) + 1
    low, is_negative = number_and_bit(scale, count, words)
    high = geometric(count, words)
    size = low + scale * high
    drawn = words(count)
    uniform = drawn * 2.0**-64
    chance = np.exp(high - (size / variance**0.5) ** 2 / 2 - variance / scale**2 / 2)
    is_accepted = uniform < chance
    for place in np.flatnonzero(np.abs(uniform - chance) < _DOUBTFUL):
        y, h, square = int(size[place]), int(high[place]), variance * scale * scale
        numerator = y * y * scale * scale - 2 * square * h + variance * variance
        is_accepted[place] = Uniform(int(drawn[place]), words).is_below_exp(numerator, 2 * square)
    is_accepted &= (size > 0) | ~is_negative  # −0 is no further number
    return np.where(is_negative, -size, size), is_accepted
