"""What a follower learns from second differences, of which a client reports P for each local step, after its P slopes.

    c[p] = (f(x+μz) + f(x−μz) − 2f(x)) / 2μ² ≈ ½ zᵀ∇²f z          z = u / sqrt(H)

So |c| u uᵀ is an estimate of ½ H^(−½)|∇²f|H^(−½), of which followers keep the diagonal. For a quadratic loss with the
diagonal Hessian A its mean is A_j/H_j + ½ Σ_i A_i/H_i: what is of coordinate j, and a part that all coordinates share.
`spread` describes any H.
"""

from __future__ import annotations

import numpy as np

from seedbus.algorithms.directions import Directions
from seedbus.algorithms.scalar_only.block import Block
from seedbus.vector import Vector


def weighted_squares(block: Block, backend: Directions, weights: Vector, *, seed: int, step: int) -> Vector:
    """Return Σ_p weights[p] u(step, p)², [n], in `block.delta`; `block.spare` is written to as well.

    Args:
        block: the block of n coordinates.
        backend: the directions.
        weights: [P].
        seed: the key of the directions.
        step: the local step.
    """
    total, squares = block.delta, block.spare
    total.fill(0)
    for p, weight in enumerate(weights):
        backend.fill(squares, seed=seed, step=step, perturbation=p, start=block.start)
        np.multiply(squares, squares, out=squares)
        np.multiply(squares, weight, out=squares)
        np.add(total, squares, out=total)
    return total


def spread(hessian: Vector) -> dict[str, float]:
    """Return the mean of H, [d], and its spread as a coefficient of variation: NaN once an H_j is infinite."""
    values = hessian.astype(np.float64)
    mean = float(values.mean())
    with np.errstate(invalid="ignore"):
        return {"hessian_mean": mean, "hessian_cv": float(values.std()) / mean if mean else 0.0}
