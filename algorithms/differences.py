"""Finite differences of losses along the directions of one local step.

forward   (f(x+μz) − f(x)) / μ              central   (f(x+μz) − f(x−μz)) / 2μ
"""

from __future__ import annotations

from collections.abc import Callable

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
