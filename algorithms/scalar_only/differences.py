"""What the losses say of the directions of one local step.

forward      (f(x+μz) − f(x)) / μ              central   (f(x+μz) − f(x−μz)) / 2μ
projection   ⟨∇f(x), z⟩, by one backward pass: Algorithm 5 of DeComFL's paper (arXiv:2405.15861)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seedbus.algorithms.contract import inner
from seedbus.algorithms.directions import for_blocks
from seedbus.algorithms.vector import Vector

Losses = Callable[[int, float], list[float]]
"""Each client's loss at x + scale · z(perturbation), of (perturbation, scale); at x itself where scale is 0."""


def differences(losses: Losses, perturbations: int, smoothing: float, *, is_central: bool) -> list[tuple[float, ...]]:
    """Each client's, one a perturbation."""

    def along(perturbation: int) -> list[float]:
        ahead = losses(perturbation, smoothing)
        behind = losses(perturbation, -smoothing) if is_central else here
        apart = 2 * smoothing if is_central else smoothing
        return [(f - g) / apart for f, g in zip(ahead, behind, strict=True)]

    here = [] if is_central else losses(0, 0.0)
    return list(zip(*map(along, range(perturbations)), strict=True))


def projections(gradient: Vector, write: Callable[[Vector, int, slice], None], perturbations: int) -> tuple[float, ...]:
    """⟨gradient, z(p)⟩ for each perturbation p, the same to the bit on every processor.

    write(vector, p, span): writes the coordinates `span` of z(p) into a vector of their length.
    """

    def along(perturbation: int) -> float:
        parts: dict[int, float] = {}  # by where they begin: sums do not depend on which block is done first

        def part(span: slice) -> None:
            z = np.empty_like(gradient[span])
            write(z, perturbation, span)
            parts[span.start] = inner(gradient[span], z)

        for_blocks(gradient.size, part)
        return float(sum(parts[start] for start in sorted(parts)))

    return tuple(map(along, range(perturbations)))
