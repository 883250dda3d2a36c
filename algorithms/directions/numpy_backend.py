"""The reference backend: directions in plain NumPy, in the dtype of the vector that they are written to.

Every other backend must reproduce its float32 results bit for bit. float64 is for the theory tests: it uses the same
table values, or ±1, widened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.algorithms.directions.contract import DOMAIN, PER_BLOCK, Kind, check_stream, check_vectors
from seedbus.algorithms.directions.philox import key_words, philox4x32
from seedbus.algorithms.directions.quantiles import quantiles
from seedbus.vector import Vector


@dataclass(frozen=True)
class NumpyDirections:
    """Directions of one kind, written to be readable rather than fast."""

    kind: Kind

    def fill(self, out: Vector, *, seed: int, step: int, perturbation: int, start: int = 0) -> None:
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=perturbation, start=start)
        out[:] = self._direction(out.size, out.dtype, seed, step, perturbation, start)

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
        weights = np.asarray(coefficients, out.dtype)
        check_vectors(out, divisor)
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=weights.size, start=start)
        out[:] = 0
        with np.errstate(all="ignore"):
            for p, weight in enumerate(weights):
                out += weight * self._direction(out.size, out.dtype, seed, step, p, start)
            if divisor is not None:
                out /= divisor

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
        check_vectors(out, x, divisor)
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=perturbation, start=start)
        z = self._direction(out.size, out.dtype, seed, step, perturbation, start)
        with np.errstate(all="ignore"):
            out[:] = x + out.dtype.type(scale) * (z if divisor is None else z / divisor)

    def _direction(
        self, size: int, dtype: np.dtype[Any], seed: int, step: int, perturbation: int, start: int
    ) -> Vector:
        """Return z(step, perturbation)[start : start + size]."""
        words = _words(self.kind, size, seed, step, perturbation, start)
        if self.kind == "gaussian":
            z: Vector = quantiles()[words.view("<u2")]
        else:
            z = np.unpackbits(words.view(np.uint8), bitorder="little") * np.float32(2) - np.float32(1)
        return z[:size].astype(dtype)


def _words(kind: Kind, size: int, seed: int, step: int, perturbation: int, start: int) -> NDArray[np.uint32]:
    """Return the words of the stream that hold the coordinates start … start + size, in order, little-endian."""
    first, count = start // PER_BLOCK[kind], -(-size // PER_BLOCK[kind])
    counter = np.empty((count, 4), np.uint32)
    counter[:, 0] = np.arange(first, first + count, dtype=np.uint64)
    counter[:, 1:] = step, perturbation, DOMAIN[kind]
    return philox4x32(counter, key_words(seed)).astype("<u4").reshape(-1)
