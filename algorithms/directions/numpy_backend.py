"""The reference backend: directions in plain NumPy, in the dtype of the vector that they are written to.

Every other backend must reproduce its float32 results bit for bit. float64 is for the theory tests: it uses the same
table values, or ±1, widened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.algorithms.directions.contract import (
    Place,
    Step,
    check_stream,
    check_vectors,
    domain,
    per_block,
    stream_key,
)
from seedbus.algorithms.directions.exact import (
    FRACTION,
    Sums,
    Terms,
    check_terms,
    is_sums,
    rounded_table,
    whole_table,
)
from seedbus.algorithms.directions.laws.law import Law, mirrored
from seedbus.algorithms.directions.philox import philox4x32
from seedbus.vector import Vector


@dataclass(frozen=True)
class NumpyDirections:
    """Directions of one law, written to be readable rather than fast."""

    law: Law

    def fill(self, out: Vector, **where: Unpack[Place]) -> None:
        check_stream(self.law, out.size, **where)
        out[:] = self._direction(out.size, out.dtype, **where)

    def accumulate(
        self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **where: Unpack[Step]
    ) -> None:
        weights = np.asarray(coefficients, out.dtype)
        check_vectors(out, divisor)
        check_stream(self.law, out.size, perturbation=weights.size, **where)
        out[:] = 0
        with np.errstate(all="ignore"):
            for p, weight in enumerate(weights):
                out += weight * self._direction(out.size, out.dtype, perturbation=p, **where)
            if divisor is not None:
                out /= divisor

    def perturb(
        self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **where: Unpack[Place]
    ) -> None:
        check_vectors(out, x, divisor)
        check_stream(self.law, out.size, **where)
        z = self._direction(out.size, out.dtype, **where)
        with np.errstate(all="ignore"):
            out[:] = x + out.dtype.type(scale) * (z if divisor is None else z / divisor)

    def _direction(self, size: int, dtype: np.dtype[Any], **where: Unpack[Place]) -> Vector:
        """Return z(step, perturbation)[start : start + size]."""
        words = _words(self.law, size, **where)
        z: Vector = _signs(words).astype(np.float32) if self.law.is_signs else self._table[words.view("<u2")]
        return z[:size].astype(dtype)

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        return mirrored(self.law.table)


class NumpyExactDirections(NumpyDirections):
    """The reference of `ExactDirections`."""

    def add_terms(self, sums: Sums, terms: Terms, *, start: int = 0) -> None:
        check_terms(self.law, sums.size, terms, start, has_sums=is_sums(sums))
        table = mirrored(whole_table(self.law))
        for low, high, step, perturbation, number in terms.tolist():
            words = _words(self.law, sums.size, high << 32 | low, step, perturbation, start)
            q = _signs(words) << FRACTION if self.law.is_signs else table[words.view("<u2")]
            sums += np.int64(number) * q[: sums.size].astype(np.int64)

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        return mirrored(rounded_table(self.law))


def _signs(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return ±1 for each bit."""
    return np.unpackbits(words.view(np.uint8), bitorder="little") * np.int64(2) - np.int64(1)


def _words(law: Law, size: int, seed: int, step: int, perturbation: int, start: int = 0) -> NDArray[np.uint32]:
    """Return the words of the stream that hold the coordinates start … start + size, in order, little-endian."""
    first, count = start // per_block(law), -(-size // per_block(law))
    counter = np.empty((count, 4), np.uint32)
    counter[:, 0] = np.arange(first, first + count, dtype=np.uint64)
    counter[:, 1:] = step, perturbation, domain(law)
    return philox4x32(counter, stream_key(law, seed)).astype("<u4").reshape(-1)
