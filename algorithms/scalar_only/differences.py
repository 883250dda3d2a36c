"""Gradient scalars: estimates of the directional derivatives along the directions of one local step.

forward      (f(x+μz) − f(x)) / μ              central   (f(x+μz) − f(x−μz)) / 2μ
projection   ⟨∇f(x), z⟩, by one backward pass: Algorithm 5 of DeComFL's paper (arXiv:2405.15861), which prints the
             gradient at x^K, the model after all steps; as there is none yet in step k, it is taken at that step's x
forward-mode ⟨∇f(x), z⟩, by one forward pass for each z that carries derivatives along z with all values (Spry,
             arXiv:2405.15551): no μ, no backward pass, and of its activations none is kept
curvature    central differences, and with them (f(x+μz) + f(x−μz) − 2f(x)) / 2μ², which is about ½ zᵀ∇²f z
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seedbus.algorithms.directions import for_blocks
from seedbus.vector import Vector, inner

Shift = tuple[int, float]
"""(perturbation, scale) stands for the point x + scale · z(perturbation), or for x itself if scale is 0."""

Losses = Callable[[Sequence[Shift]], list[list[float]]]
"""Returns each client's losses at some points, in the order of the points."""


def differences(losses: Losses, perturbations: int, smoothing: float, *, is_central: bool) -> list[tuple[float, ...]]:
    """Return each client's finite differences, one per perturbation.

    Args:
        losses: the clients' losses at perturbed points.
        perturbations: number of perturbations, P.
        smoothing: μ.
        is_central: central differences instead of forward differences.
    """
    if is_central:
        both = losses([(p, scale) for p in range(perturbations) for scale in (smoothing, -smoothing)])
        return [tuple((f - g) / (2 * smoothing) for f, g in zip(own[::2], own[1::2], strict=True)) for own in both]
    around = losses([(0, 0.0), *((p, smoothing) for p in range(perturbations))])
    return [tuple((f - at_x) / smoothing for f in shifted) for at_x, *shifted in around]


def with_curvature(losses: Losses, perturbations: int, smoothing: float) -> list[tuple[float, ...]]:
    """Return each client's central differences, one per perturbation, and after them as many second differences.

    Args:
        losses: the clients' losses at perturbed points.
        perturbations: number of perturbations, P.
        smoothing: μ.
    """
    shifts = [(p, scale) for p in range(perturbations) for scale in (smoothing, -smoothing)]
    found = []
    for at_x, *around in losses([(0, 0.0), *shifts]):
        pairs = list(zip(around[::2], around[1::2], strict=True))
        slopes = [(f - g) / (2 * smoothing) for f, g in pairs]
        found.append((*slopes, *((f + g - 2 * at_x) / (2 * smoothing**2) for f, g in pairs)))
    return found


def projections(gradient: Vector, write: Callable[[Vector, int, slice], None], perturbations: int) -> tuple[float, ...]:
    """Return ⟨gradient, z(p)⟩ for each perturbation p, the same to the bit on every processor.

    Args:
        gradient: ∇f(x), [d].
        write: write(out, p, span) writes z(p)[span] to out.
        perturbations: number of perturbations, P.
    """

    def along(perturbation: int) -> float:
        parts: dict[int, float] = {}  # by first coordinate, so that the sum does not depend on which block ends first

        def part(span: slice) -> None:
            z = np.empty_like(gradient[span])
            write(z, perturbation, span)
            with np.errstate(invalid="ignore"):  # the server refuses what a diverged gradient gives
                parts[span.start] = inner(gradient[span], z)

        for_blocks(gradient.size, part, like=gradient)
        return float(sum(parts[start] for start in sorted(parts)))

    return tuple(map(along, range(perturbations)))
