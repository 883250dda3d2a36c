"""Directions in whole numbers, whose sums do not depend on an order.

    x ← x + 2⁻ˢ · Σ_j n_j · z_j,    z = q · 2⁻¹²

q is a quantile of the law's table, rounded to a multiple of 2⁻¹²: of `gaussian` |q| ≤ 17,715. `rademacher`: q = ±2¹².
The stream of bits is that of `contract`. The mean of q is exactly 0, because laws are symmetric; the variance of
`gaussian` is 0.999979, less than the float table's by 8e−7.

A vector of sums is int64 [d], in multiples of 2⁻⁽ˢ⁺¹²⁾. Addition of integers is associative and commutative, so the
order, the grouping and partial sums of the terms n_j · q_j change no bit. Products and sums are taken modulo 2⁶⁴. That
nothing overflows is for the caller to know: `scalar_only.exact` keeps a budget.

`perturb`, `fill` and `accumulate` of an exact backend are the float32 operations of `contract` with z = q · 2⁻¹², which
float32 represents exactly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.directions.contract import Directions, check_stream
from seedbus.algorithms.directions.laws.law import Law

FRACTION: Final = 12
"""Binary digits of z after the point."""

MOST_Q: Final = 17_715
"""The largest |q| of both our laws."""

TERM: Final = np.dtype(
    [
        ("low", np.uint32),  # low word of the seed
        ("high", np.uint32),  # high word of the seed
        ("step", np.uint32),  # k
        ("perturbation", np.uint32),  # p
        ("number", np.int64),  # n
    ],
    align=True,
)
"""One term n · q(z(seed, k, p)) of a sum."""

Terms = NDArray[Any]
"""Terms of a sum, dtype TERM [J], in any order."""

Sums = NDArray[Any]
"""Coordinates in multiples of 2⁻⁽ˢ⁺¹²⁾, int64 [d]."""


class ExactDirections(Directions, Protocol):
    """Directions whose backend also adds them in whole numbers."""

    def add_terms(self, sums: Sums, terms: Terms, *, start: int = 0) -> None:
        """Add Σ_j n_j · q_j to sums, modulo 2⁶⁴.

        Args:
            sums: the coordinates from `start` on, contiguous.
            terms: the terms, in any order.
            start: the first coordinate, a multiple of `ALIGNMENT`.
        """
        ...


@lru_cache(maxsize=16)
def whole_table(law: Law) -> NDArray[np.int16]:
    """Return the upper half of a law's q, [32768], read-only.

    Raises:
        ValueError: a coordinate of the law is 8 or more, so that its q has more than 16 bits.
    """
    scaled = np.rint(law.table * np.float32(1 << FRACTION))
    if not (np.abs(scaled) < 1 << 15).all():
        raise ValueError(
            f"directions: {law.law} reaches {law.table.max():g}, and arithmetic: integer needs less than 8"
        )
    table: NDArray[np.int16] = scaled.astype(np.int16)
    table.flags.writeable = False
    return table


def rounded_table(law: Law) -> NDArray[np.float32]:
    """Return the upper half of a law's z, q · 2⁻¹², [32768], read-only."""
    table = whole_table(law) * np.float32(2.0**-FRACTION)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=16)
def most_q(law: Law) -> int:
    """Return a bound on |q|, at least that of our laws."""
    return max(MOST_Q, int(whole_table(law).max()))


def merged(terms: Terms) -> Terms:
    """Return terms with the same sum, at most one of each direction: a partial sum of commits."""
    streams, which = np.unique(terms[["low", "high", "step", "perturbation"]], return_inverse=True)
    result: Terms = np.zeros(streams.size, TERM)
    for name in streams.dtype.names or ():
        result[name] = streams[name]
    np.add.at(result["number"], which.ravel(), terms["number"])
    return without_zeros(result)


def without_zeros(terms: Terms) -> Terms:
    """Return the terms whose n is not 0."""
    others: Terms = terms[terms["number"] != 0]
    return others


def is_sums(vector: Sums) -> bool:
    """Whether an array can hold exact sums."""
    return vector.dtype == np.int64 and vector.flags.c_contiguous


def check_terms(law: Law, size: int, terms: Terms, start: int, *, has_sums: bool) -> None:
    """Raise ValueError unless an exact backend can add these terms to sums of this size; has_sums: whether they are."""
    check_stream(law, size, seed=0, step=0, perturbation=0, start=start)
    if not has_sums or terms.dtype != TERM:
        raise ValueError(f"exact sums are contiguous int64 [d], and their terms TERM, not {terms.dtype}")
