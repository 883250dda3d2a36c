"""The fused replay in Numba: one call folds many commits into a block of coordinates, without the interpreter lock.

A piece of x, m, H and Δ stays in the innermost caches from the first commit to the last. A field that the replica does
not have is an array without elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.directions.bfloat16 import BITS, narrowed, widened
from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.kernels import (
    PIECE,
    SCRATCH_WORDS,
    LookUp,
    Stream,
    add_all,
    check_float32,
    groups,
    inlined,
    kernel,
)
from seedbus.vector import Vector

_SIXTEEN, _ONE, _BELOW_HALF, _QUIET, _UPPER = (np.uint32(bits) for bits in (16, 1, 0x7FFF, 0x400000, 0xFFFF0000))


@inlined
def _descend(x, delta, rate):  # type: ignore[no-untyped-def]
    """Compute x ← x − rate·Δ."""
    for i in range(x.size):
        x[i] -= delta[i] * rate


@inlined
def _decay(out, x, delta, decay):  # type: ignore[no-untyped-def]
    """Compute out = Δ + decay·x."""
    for i in range(x.size):
        out[i] = delta[i] + x[i] * decay


@inlined
def _gather(m, delta, keep, fresh):  # type: ignore[no-untyped-def]
    """Compute m ← keep·m + fresh·Δ."""
    for i in range(m.size):
        m[i] = m[i] * keep + delta[i] * fresh


@inlined
def _learn(h, delta, keep, fresh, epsilon, lowest, highest):  # type: ignore[no-untyped-def]
    """Compute H ← keep·H + fresh·(Δ² + ε), clipped to the bounds; a NaN stays a NaN, as in np.clip."""
    for i in range(h.size):
        new = h[i] * keep + (delta[i] * delta[i] + epsilon) * fresh
        new = lowest if new < lowest else new
        h[i] = highest if new > highest else new


class _Rule(NamedTuple):
    """An `UpdateRule` in float32."""

    decay: np.float32
    momentum: NDArray[np.float32]
    hessian: NDArray[np.float32]
    is_last_only: bool
    rounds: bool


@inlined
def _own(x, m, h, delta, decayed, step, rule):  # type: ignore[no-untyped-def]
    """Update x, m and H by a Δ of the commit's own round; `decayed` is scratch."""
    update, momentum, hessian = delta, rule.momentum, rule.hessian
    if rule.decay != 0:
        _decay(decayed, x, delta, rule.decay)
        update = decayed
    if m.size:
        _gather(m, update, momentum[0], momentum[1])
        _descend(x, m, step.rate)
    else:
        _descend(x, update, step.rate)
    if h.size and (step.is_last or not rule.is_last_only):
        _learn(h, delta, hessian[0], hessian[1], hessian[2], hessian[3], hessian[4])


@inlined
def _round(x):  # type: ignore[no-untyped-def]
    """Round x to the nearest bfloat16, ties to even, as `bfloat16.narrowed` does."""
    bits = x.view(np.uint32)
    for i in range(bits.size):
        half = (bits[i] >> _SIXTEEN) & _ONE
        rounded = bits[i] + _BELOW_HALF + half
        if x[i] != x[i]:
            rounded = bits[i] | _QUIET
        bits[i] = rounded & _UPPER


@kernel
def _fold(x, m, h, start, steps, coefficients, quantiles, numbers):  # type: ignore[no-untyped-def]
    words, deltas, roots = np.empty(SCRATCH_WORDS, np.uint32), np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)
    decayed, look_up, rule = np.empty(PIECE, np.float32), LookUp(*quantiles), _Rule(*numbers)
    for first in range(0, x.size, PIECE):
        x_piece, m_piece, h_piece = x[first : first + PIECE], m[first : first + PIECE], h[first : first + PIECE]
        delta, sqrt_hessian = deltas[: x_piece.size], roots[: h_piece.size]
        for n in range(steps.size):
            step = steps[n]
            if step.is_first:
                for i in range(sqrt_hessian.size):
                    sqrt_hessian[i] = np.sqrt(h_piece[i])
            part = coefficients[step.first : step.first + step.count]
            stream = Stream(step.step, 0, step.low, step.high)
            add_all(delta, part, words, start + first, stream, look_up, sqrt_hessian)
            if step.is_own:
                _own(x_piece, m_piece, h_piece, delta, decayed, step, rule)
            else:
                _descend(x_piece, delta, step.rate)
            if rule.rounds:
                _round(x_piece)


def fold(
    rule: UpdateRule,
    fields: Mapping[str, Vector],
    steps: ReplaySteps,
    start: int,
    look_up: tuple[NDArray[np.float32], bool],
) -> None:
    """Fold steps into a block of a replica.

    Args:
        rule: how each step updates the fields.
        fields: name → the block's coordinates of a field, float32; x may be in bfloat16.
        steps: the steps of the commits, oldest first.
        start: the block's first coordinate, a multiple of 128.
        look_up: the fields of a `LookUp`.
    """
    stored = fields["x"]
    x, rounds = widened(stored), stored.dtype == BITS
    m = None if rule.momentum is None else fields["momentum"]
    h = None if rule.hessian is None else fields["hessian"]
    check_float32(x, m, h)
    momentum = np.array(rule.momentum or (0, 0), np.float32)
    *numbers, is_last_only = rule.hessian or (0, 0, 0, 0, 0, False)
    how = (np.float32(rule.decay), momentum, np.array(numbers, np.float32), is_last_only, rounds)
    for at, parts in groups(start, x, m, h, written=3):
        _fold(*parts, at, *steps, look_up, how)
    if rounds:
        stored[:] = narrowed(x)
