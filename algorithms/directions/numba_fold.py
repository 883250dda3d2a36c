"""The fused replay: a block of coordinates folds many commits in one call, with the interpreter lock released.

A piece of x, m, H and Δ stays in the innermost caches from the first commit to the last. A field that a replica doesn't
have has no elements.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.kernels import PIECE, ROOM, add_all, check_float32, groups, inlined, kernel
from seedbus.algorithms.vector import Vector


@inlined
def _descend(x, delta, rate):  # type: ignore[no-untyped-def]
    """x ← x − rate·Δ."""
    for i in range(x.size):
        x[i] -= delta[i] * rate


@inlined
def _gather(m, delta, keep, fresh):  # type: ignore[no-untyped-def]
    """m ← keep·m + fresh·Δ."""
    for i in range(m.size):
        m[i] = m[i] * keep + delta[i] * fresh


@inlined
def _learn(h, delta, keep, fresh, epsilon, lowest, highest):  # type: ignore[no-untyped-def]
    """H ← keep·H + fresh·(Δ² + ε), held between the bounds; what is no number stays none, as in np.clip."""
    for i in range(h.size):
        new = h[i] * keep + (delta[i] * delta[i] + epsilon) * fresh
        new = lowest if new < lowest else new
        h[i] = highest if new > highest else new


@inlined
def _own(x, m, h, delta, move, momentum, hessian, is_last_only):  # type: ignore[no-untyped-def]
    """What a Δ of the commit's own round does, by the rule."""
    if m.size:
        _gather(m, delta, momentum[0], momentum[1])
        _descend(x, m, move.rate)
    else:
        _descend(x, delta, move.rate)
    if h.size and (move.is_last or not is_last_only):
        _learn(h, delta, hessian[0], hessian[1], hessian[2], hessian[3], hessian[4])


@kernel
def _fold(x, m, h, start, steps, coefficients, table, momentum, hessian, is_last_only):  # type: ignore[no-untyped-def]
    words, sums, roots = np.empty(ROOM, np.uint32), np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)
    for first in range(0, x.size, PIECE):
        x_piece, m_piece, h_piece = x[first : first + PIECE], m[first : first + PIECE], h[first : first + PIECE]
        delta, sqrt_hessian = sums[: x_piece.size], roots[: h_piece.size]
        for n in range(steps.size):
            move = steps[n]
            if move.is_first:
                for i in range(sqrt_hessian.size):
                    sqrt_hessian[i] = np.sqrt(h_piece[i])
            part = coefficients[move.first : move.first + move.count]
            add_all(delta, part, words, start + first, move.step, move.low, move.high, table, sqrt_hessian)
            if move.is_own:
                _own(x_piece, m_piece, h_piece, delta, move, momentum, hessian, is_last_only)
            else:
                _descend(x_piece, delta, move.rate)


def fold(
    rule: UpdateRule, fields: Mapping[str, Vector], steps: ReplaySteps, start: int, table: NDArray[np.float32]
) -> None:
    """Fold steps into a block of a replica's fields that begins at coordinate `start`, a multiple of 128."""
    x = fields["x"]
    m = None if rule.momentum is None else fields["momentum"]
    h = None if rule.hessian is None else fields["hessian"]
    check_float32(x, m, h)
    momentum = np.array(rule.momentum or (0, 0), np.float32)
    *numbers, is_last_only = rule.hessian or (0, 0, 0, 0, 0, False)
    hessian = np.array(numbers, np.float32)
    for at, parts in groups(start, x, m, h, written=3):
        _fold(*parts, at, *steps, table, momentum, hessian, is_last_only)
