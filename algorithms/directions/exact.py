"""Directions in whole numbers, whose sums do not depend on an order.

    x ← x + 2⁻ˢ · Σ_j n_j · z_j,    z = q · 2⁻¹²

`gaussian`: q is a quantile of the table in `quantiles`, rounded to a multiple of 2⁻¹²: int16, |q| ≤ 17,715.
`rademacher`: q = ±2¹². The stream of bits is that of `contract`. The mean of q is exactly 0, because the table is
antisymmetric; its variance is 0.999979, less than the float table's by 8e−7.

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

from seedbus.algorithms.directions.contract import Directions, Kind, check_stream
from seedbus.algorithms.directions.quantiles import quantiles

FRACTION: Final = 12
"""Binary digits of z after the point."""

MOST_Q: Final = 17_715
"""The largest |q| of both kinds."""

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


@lru_cache(maxsize=1)
def whole_quantiles() -> NDArray[np.int16]:
    """Return q of `gaussian`, [65536], read-only."""
    table: NDArray[np.int16] = np.rint(quantiles() * np.float32(1 << FRACTION)).astype(np.int16)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=1)
def rounded_quantiles() -> NDArray[np.float32]:
    """Return z of `gaussian`, q · 2⁻¹², [65536], read-only."""
    table = whole_quantiles() * np.float32(2.0**-FRACTION)
    table.flags.writeable = False
    return table


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


def check_terms(kind: Kind, sums: Sums, terms: Terms, start: int) -> None:
    """Raise ValueError unless an exact backend can add these terms to these sums."""
    check_stream(kind, sums.size, seed=0, step=0, perturbation=0, start=start)
    if sums.dtype != np.int64 or not sums.flags.c_contiguous or terms.dtype != TERM:
        raise ValueError(f"exact sums are contiguous int64 and their terms TERM, not {sums.dtype} and {terms.dtype}")
