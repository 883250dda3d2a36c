"""Directions compiled by Numba for this machine's processor: float32, no fast-math, the interpreter lock released.

A vector is worked through in pieces small enough for the innermost caches. For a piece, one loop runs Philox over all
its blocks at once (it vectorises), and a second turns the words into coordinates and uses them where they arise; the
sum over perturbations is the innermost of the outer loops, so `out` is read and written in memory once. A sign is put
on a finished product by flipping its sign bit, which is exact: ±1 · c = ±c. In every kernel the table is the
quantiles' for `gaussian` and None for `rademacher`, and a branch on None costs nothing.

Kernels take whole groups of 128 coordinates; the end of a vector goes through them in a padded copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import float32, uint32, uint64
from numpy.typing import ArrayLike, NDArray

from seedbus.algorithms.directions.contract import ALIGNMENT, Kind, Vector, check_stream
from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL, key_words
from seedbus.algorithms.directions.quantiles import quantiles

PIECE = 4096  # coordinates: 16 KiB of out, 8 KiB of Philox words

M0, M1 = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
W0, W1 = (np.uint32(weyl) for weyl in WEYL)
FLOAT32 = np.dtype(np.float32)
HALF, WORD, SIGN, ONE = np.uint32(0xFFFF), np.uint64(32), np.uint32(1 << 31), np.float32(1)

Kernel = Callable[..., Any]


def _kernel(function: Kernel) -> Kernel:
    """Called from Python: compiled once for this processor, and kept on disk if there is a place for it."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Kernel = numba.njit(function, cache=True, **options)
    except RuntimeError:  # an installation that nobody may write to, and no home
        compiled = numba.njit(function, **options)
    return compiled


def _part(function: Kernel) -> Kernel:
    """Part of a kernel, inlined into it."""
    compiled: Kernel = numba.njit(function, nogil=True, forceinline=True, error_model="numpy")
    return compiled


@_part
def _words(words, count, block, step, p, domain, low, high):  # type: ignore[no-untyped-def]
    """words[:, :count] = Philox at blocks block … block + count of one direction, word by word (shape [4, any])."""
    for b in range(count):
        c0, c1, c2, c3 = uint32(block + b), uint32(step), uint32(p), uint32(domain)
        k0, k1 = uint32(low), uint32(high)
        for _ in range(ROUNDS):
            product0, product1 = M0 * uint64(c0), M1 * uint64(c2)
            c0, c1 = uint32(product1 >> WORD) ^ c1 ^ k0, uint32(product1)
            c2, c3 = uint32(product0 >> WORD) ^ c3 ^ k1, uint32(product0)
            k0, k1 = uint32(k0 + W0), uint32(k1 + W1)
        words[0, b], words[1, b], words[2, b], words[3, b] = c0, c1, c2, c3


@_part
def _add_gaussian(out, x, scale, words, table, divisor):  # type: ignore[no-untyped-def]
    """out = x + scale · z / divisor; x may be out."""
    for b in range(out.size // 8):
        for w in range(4):
            word = words[w, b]
            i = 8 * b + 2 * w
            z0, z1 = table[word & HALF], table[word >> uint32(16)]
            if divisor is not None:
                z0, z1 = z0 / divisor[i], z1 / divisor[i + 1]
            out[i] = x[i] + scale * z0
            out[i + 1] = x[i + 1] + scale * z1


@_part
def _add_rademacher(out, scale, words, divisor):  # type: ignore[no-untyped-def]
    """out += scale · z / divisor, in place: a second vector, which might be the same, would not vectorise."""
    rows = out.reshape(-1, 32)
    for row in range(rows.shape[0]):
        minus = ~words[row & 3, row >> 2]
        for bit in range(32):
            size = scale if divisor is None else scale * (ONE / divisor[32 * row + bit])
            sign = (minus << uint32(31 - bit)) & SIGN
            rows[row, bit] += np.uint32(np.float32(size).view(np.uint32) ^ sign).view(np.float32)


@_part
def _add(out, x, scale, words, block, step, p, low, high, table, divisor):  # type: ignore[no-untyped-def]
    """out = x + scale · z / divisor over one piece (`rademacher`: x is in out already); block: of 128 coordinates."""
    if table is None:
        _words(words, out.size // 128, block, step, p, 1, low, high)
        _add_rademacher(out, scale, words, divisor)
    else:
        _words(words, out.size // 8, block * 16, step, p, 0, low, high)
        _add_gaussian(out, x, scale, words, table, divisor)


@_kernel
def _fill(out, low, high, step, p, start, table):  # type: ignore[no-untyped-def]
    words = np.empty((4, PIECE // 8), np.uint32)
    for first in range(0, out.size, PIECE):
        piece = out[first : first + PIECE]
        piece[:] = float32(0)
        _add(piece, piece, ONE, words, (start + first) // 128, step, p, low, high, table, None)


@_kernel
def _accumulate(out, scales, low, high, step, start, table, divisor):  # type: ignore[no-untyped-def]
    words = np.empty((4, PIECE // 8), np.uint32)
    for first in range(0, out.size, PIECE):
        piece = out[first : first + PIECE]
        part = None if divisor is None else divisor[first : first + PIECE]
        piece[:] = float32(0)
        for p in range(scales.size):
            _add(piece, piece, scales[p], words, (start + first) // 128, step, p, low, high, table, part)


@_kernel
def _perturb(out, x, scale, low, high, step, p, start, table, divisor):  # type: ignore[no-untyped-def]
    words = np.empty((4, PIECE // 8), np.uint32)
    for first in range(0, out.size, PIECE):
        piece, base = out[first : first + PIECE], x[first : first + PIECE]
        part = None if divisor is None else divisor[first : first + PIECE]
        if table is None:
            for i in range(piece.size):  # not piece[:] = base, which copies twice in case they overlap
                piece[i] = base[i]
        _add(piece, base, scale, words, (start + first) // 128, step, p, low, high, table, part)


@dataclass(frozen=True)
class NumbaDirections:
    """Directions of one kind in float32, fast."""

    kind: Kind

    def fill(self, out: Vector, *, seed: int, step: int, perturbation: int, start: int = 0) -> None:
        _check_float32(out)
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=perturbation, start=start)
        low, high = key_words(seed)
        for at, (piece,) in _groups(start, out):
            _fill(piece, low, high, step, perturbation, at, self._table)

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
        scales = np.ascontiguousarray(coefficients, np.float32)
        _check_float32(out, divisor)
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=scales.size, start=start)
        low, high = key_words(seed)
        for at, (piece, part) in _groups(start, out, divisor):
            _accumulate(piece, scales, low, high, step, at, self._table, part)

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
        _check_float32(out, x, divisor)
        check_stream(self.kind, out.size, seed=seed, step=step, perturbation=perturbation, start=start)
        low, high = key_words(seed)
        for at, (piece, base, part) in _groups(start, out, x, divisor):
            _perturb(piece, base, np.float32(scale), low, high, step, perturbation, at, self._table, part)

    @property
    def _table(self) -> NDArray[np.float32] | None:
        return quantiles() if self.kind == "gaussian" else None


def _check_float32(out: Vector, *others: Vector | None) -> None:
    """Raise ValueError unless every vector is contiguous float32 of shape [d]: another would be compiled for anew."""
    shape = (out.size,)
    for vector in (out, *others):
        if vector is None or (vector.dtype == FLOAT32 and vector.shape == shape and vector.flags.c_contiguous):
            continue
        raise ValueError(
            f"compiled directions take contiguous float32 vectors of one shape: {vector.dtype} of {vector.shape} "
            f"beside {out.dtype} of {out.shape} (`reference` takes other types)"
        )


def _groups(start: int, out: Vector, *others: Vector | None) -> Iterator[tuple[int, tuple[Vector | None, ...]]]:
    """Where to begin and the vectors: first the whole groups of 128 coordinates, then what is left, padded."""
    whole = out.size // ALIGNMENT * ALIGNMENT
    if whole == out.size:
        yield start, (out, *others)
        return
    yield start, (out[:whole], *(None if other is None else other[:whole] for other in others))
    end = np.empty(ALIGNMENT, np.float32)
    yield start + whole, (end, *(None if other is None else _padded(other[whole:]) for other in others))
    out[whole:] = end[: out.size - whole]


def _padded(end: Vector) -> Vector:
    padded = np.ones(ALIGNMENT, np.float32)
    padded[: end.size] = end
    return padded
