"""What a direction is: z(seed, step, perturbation), d independent coordinates of zero mean and unit variance.

The format of the stream, for ever
- bits: Philox4x32-10 (Salmon et al. 2011). Key = the 64-bit seed, low word first.
  Counter = (block, step, perturbation, domain), four 32-bit words. So no two (seed, step, perturbation) share a
  stream, no seed is ever mixed by arithmetic, and any coordinate is reached without those before it.
- The four output words of blocks 0, 1, 2, … are read as one string of bits, least significant bit first.
  `gaussian`, domain 0: coordinate i is quantile number bits[16 i : 16 i + 16] of the table in `quantiles`; that is
      block i // 8, word (i % 8) // 2, the low half before the high half.
  `rademacher`, domain 1: coordinate i is +1 where bit i is 1, −1 where it is 0; that is
      block i // 128, word (i % 128) // 32, bit i % 32.

The arithmetic, for ever
- Every operation is rounded by itself: a multiply and an add are never fused, and subnormals are kept.
- With a divisor s (HiSo's √H) the direction is z / s: the quotient first, then times the scale, then added to x.
- Sums over perturbations start at 0 and go in ascending order; a divisor divides the sum, once.
Coefficients are finite and divisors positive; x may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.vector import Vector

Kind = Literal["gaussian", "rademacher"]

DOMAIN: Final[dict[Kind, int]] = {"gaussian": 0, "rademacher": 1}
PER_BLOCK: Final[dict[Kind, int]] = {"gaussian": 8, "rademacher": 128}
"""Coordinates that one Philox block of 128 bits serves."""

ALIGNMENT: Final = 128
"""A vector is cut only at multiples of this: there every kind begins a new Philox block."""


class Directions(Protocol):
    """Directions of one kind. Vectors are one-dimensional and contiguous, of any size; `start` is where they begin."""

    @property
    def kind(self) -> Kind: ...

    def fill(self, out: Vector, *, seed: int, step: int, perturbation: int, start: int = 0) -> None:
        """out = z(step, perturbation)[start : start + out.size]."""
        ...

    def accumulate(
        self,
        out: Vector,
        coefficients: ArrayLike,
        *,
        seed: int,
        step: int,
        start: int = 0,
        divisor: Vector | None = None,
    ) -> None:
        """out = (Σ_p coefficients[p] · z(step, p)) / divisor, coefficients [P] rounded to out's dtype."""
        ...

    def perturb(
        self,
        out: Vector,
        x: Vector,
        scale: float,
        *,
        seed: int,
        step: int,
        perturbation: int,
        start: int = 0,
        divisor: Vector | None = None,
    ) -> None:
        """out = x + scale · (z(step, perturbation) / divisor), scale rounded to out's dtype; out may be x itself."""
        ...


@runtime_checkable
class Folding(Directions, Protocol):
    """Directions that fold many commits in one call."""

    def fold(self, rule: UpdateRule, fields: Mapping[str, Vector], steps: ReplaySteps, *, start: int = 0) -> None:
        """Fold moves, in their order, into fields, which begin at coordinate `start`."""
        ...


def check_stream(kind: Kind, size: int, *, seed: int, step: int, perturbation: int, start: int) -> None:
    """Raise ValueError unless the 128-bit counter and the 64-bit key can say what is asked for."""
    if start % ALIGNMENT or start < 0:
        raise ValueError(f"start = {start}: a block of coordinates starts at a multiple of {ALIGNMENT}")
    if start + size > PER_BLOCK[kind] << 32:
        raise ValueError(
            f"coordinates {start:,} to {start + size:,}: {kind} directions end at {PER_BLOCK[kind] << 32:,}"
        )
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed = {seed}: a seed has 64 bits")
    if not (0 <= step < 1 << 32 and 0 <= perturbation < 1 << 32):
        raise ValueError(f"step = {step}, perturbation = {perturbation}: each has 32 bits")


def check_vectors(out: Vector, *others: Vector | None) -> None:
    """Raise ValueError unless every vector has out's dtype and shape [d]."""
    for vector in (out, *others):
        if vector is not None and (vector.shape != (out.size,) or vector.dtype != out.dtype):
            raise ValueError(f"a {vector.dtype} vector of shape {vector.shape} beside {out.dtype} of ({out.size},)")
