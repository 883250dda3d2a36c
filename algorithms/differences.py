"""Finite differences of losses along the directions of one local step.

    forward   (f(x+μz) − f(x)) / μ              central   (f(x+μz) − f(x−μz)) / 2μ

Clients at one x share the points: each is made once, and every client's loss is taken there, on its own mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedbus.algorithms.contract import Objective, Vector
from seedbus.algorithms.directions import Directions, for_blocks


def differences(
    backend: Directions,
    x: Vector,
    root: Vector | None,
    objectives: Sequence[Objective],
    *,
    seed: int,
    step: int,
    perturbations: int,
    smoothing: float,
    is_central: bool,
) -> list[tuple[float, ...]]:
    """Each client's, one a perturbation. The objectives share one point; root: what divides the directions."""
    point = objectives[0].point

    def losses(perturbation: int, scale: float) -> list[float]:
        def shift(span: slice) -> None:
            part = None if root is None else root[span]
            where = {"seed": seed, "step": step, "perturbation": perturbation, "start": span.start}
            backend.perturb(point[span], x[span], scale, divisor=part, **where)

        for_blocks(x.size, shift)
        return [objective.loss(step) for objective in objectives]

    def along(perturbation: int) -> list[float]:
        ahead = losses(perturbation, smoothing)
        behind = losses(perturbation, -smoothing) if is_central else here
        apart = 2 * smoothing if is_central else smoothing
        return [(f - g) / apart for f, g in zip(ahead, behind, strict=True)]

    here: list[float] = []
    if not is_central:
        np.copyto(point, x)
        here = [objective.loss(step) for objective in objectives]
    return list(zip(*map(along, range(perturbations)), strict=True))
