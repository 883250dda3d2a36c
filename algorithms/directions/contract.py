"""The definition of a direction: z(seed, step, perturbation), d independent coordinates of mean 0 and variance 1.

Their distribution is the direction's law (`laws`), a table of quantiles.

Format of the stream, which never changes
- The bits come from Philox4x32-10 (Salmon et al. 2011). Key = the 64-bit seed, low word first, combined by exclusive
  or with the law's own 64 bits: 0 for `gaussian` and `rademacher`, for others those of their names.
  Counter = (block, step, perturbation, domain), four 32-bit words. So no two (seed, step, perturbation) share a
  stream, seeds are never mixed by arithmetic, and any coordinate can be computed without those before it.
- The four output words of blocks 0, 1, 2, … are read as one string of bits, least significant bit first.
  `gaussian` and others, domain 0: coordinate i is quantile number bits[16 i : 16 i + 16] of the law's table; that is
      block i // 8, word (i % 8) // 2, the low half before the high half.
  `rademacher`, domain 1: coordinate i is +1 where bit i is 1, −1 where it is 0; that is
      block i // 128, word (i % 128) // 32, bit i % 32.

Arithmetic, which never changes
- Every operation is rounded by itself: a multiply and an add are never fused, and subnormals are kept.
- With a divisor s (HiSo's √H) the direction is z / s: the quotient first, then times the scale, then added to x.
- Sums over perturbations start at 0 and go in ascending order; a divisor divides the sum, once.
Coefficients are finite and divisors positive; x may hold any values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NotRequired, Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.laws.law import Law
from seedbus.algorithms.directions.philox import key_words
from seedbus.vector import Vector

ALIGNMENT: Final = 128
"""Vectors are split only at multiples of this number of coordinates, where every law begins a new Philox block."""


def domain(law: Law) -> int:
    """Return the last word of a law's counters."""
    return 1 if law.is_signs else 0


def per_block(law: Law) -> int:
    """Return how many coordinates one Philox block of 128 bits has."""
    return 128 if law.is_signs else 8


def stream_key(law: Law, seed: int) -> tuple[int, int]:
    """Return the key of a law's stream: its low word and its high word."""
    return key_words(seed ^ law.key)


def with_key(law: Law, rows: NDArray[Any]) -> NDArray[Any]:
    """Return steps or terms with the words of the law's key in the place of the seed's."""
    if not law.key:
        return rows
    keyed, (low, high) = rows.copy(), key_words(law.key)
    keyed["low"] ^= np.uint32(low)
    keyed["high"] ^= np.uint32(high)
    return keyed


class Step(TypedDict):
    """Where in a law's stream the directions of a step begin: its seed, the step, and the first coordinate."""

    seed: int
    step: int
    start: NotRequired[int]


class Place(Step):
    """Where one direction is."""

    perturbation: int


class Directions(Protocol):
    """Directions of one law.

    Vectors are one-dimensional and contiguous, of any size n. They hold the coordinates from `start` on, a multiple of
    `ALIGNMENT`.
    """

    @property
    def law(self) -> Law: ...

    def fill(self, out: Vector, **where: Unpack[Place]) -> None:
        """Write out = z(step, perturbation)[start : start + out.size]."""
        ...

    def accumulate(
        self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **where: Unpack[Step]
    ) -> None:
        """Write out = (Σ_p coefficients[p] · z(step, p)) / divisor, with coefficients [P] rounded to out's dtype."""
        ...

    def perturb(
        self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **where: Unpack[Place]
    ) -> None:
        """Write out = x + scale · (z(step, perturbation) / divisor), with scale rounded to out's dtype.

        out may be x itself.
        """
        ...


@runtime_checkable
class Folding(Directions, Protocol):
    """Directions whose backend folds many commits in one call."""

    def fold(self, rule: UpdateRule, fields: Mapping[str, Vector], steps: ReplaySteps, *, start: int = 0) -> None:
        """Fold steps, in their order, into a span of a replica's fields.

        Args:
            rule: how each step updates the fields.
            fields: name → the span's coordinates of a field; an x in bfloat16 (its bits, int16) is rounded after every
                step.
            steps: the steps of the commits, oldest first.
            start: the first coordinate of the span.
        """
        ...


def check_stream(law: Law, size: int, *, seed: int, step: int, perturbation: int, start: int = 0) -> None:
    """Raise ValueError unless the 128-bit counter and the 64-bit key can represent these numbers."""
    if start % ALIGNMENT or start < 0:
        raise ValueError(f"start = {start}: a block of coordinates starts at a multiple of {ALIGNMENT}")
    if start + size > per_block(law) << 32:
        raise ValueError(
            f"coordinates {start:,} to {start + size:,}: {law.law} directions end at {per_block(law) << 32:,}"
        )
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed = {seed}: a seed has 64 bits")
    if not (0 <= step < 1 << 32 and 0 <= perturbation < 1 << 32):
        raise ValueError(f"step = {step}, perturbation = {perturbation}: each has 32 bits")


def check_vectors(out: Vector, *others: Vector | None) -> None:
    """Raise ValueError unless every vector has the dtype and the shape of `out`, [d]."""
    for vector in (out, *others):
        if vector is not None and (vector.shape != (out.size,) or vector.dtype != out.dtype):
            raise ValueError(f"a {vector.dtype} vector of shape {vector.shape} beside {out.dtype} of ({out.size},)")
