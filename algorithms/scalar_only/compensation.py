"""`revert: compensate`: x is perturbed in place and never copied, and what that does to it.

DeComFL, arXiv:2405.15861, Appendix A.2, equation 10: a client needs no copy of x to come back from its local steps,

    x_{r+1} = x_i^K − η Σ_k (ḡ[k] − g_i[k]) z(r,k)

because seeds and scalars say how far it has gone. Its losses are measured in the same vector: x ← x + μz, then back.
That is the update in exact arithmetic only. In float32 x + μz − μz is another number than x in many coordinates, and
such a client drifts away from x, further with every loss.

A client that kept its own drift would have a model that no log can rebuild. So every follower keeps, beside x, the
drifted vector of one client: it took part in every round and measured the cohort's ḡ, with which the correction of
equation 10 is 0. All clients measure their losses around this vector, in place, and every evaluation reports its drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import Directions, for_blocks
from seedbus.algorithms.scalar_only.block import Block, coefficients_of, descend
from seedbus.algorithms.scalar_only.differences import Shift
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.algorithms.schedule import at
from seedbus.vector import norm

DRIFTED = "drifted"
"""The field of a replica with the drifted vector, [d]."""


def moves(shifts: Sequence[Shift]) -> list[list[Shift]]:
    """Return the moves (p, amount) along z(p) that lead to each shift from the one before, and last those back to x."""
    path: list[list[Shift]] = []
    p, reached = 0, 0.0
    for target, scale in [*shifts, (-1, 0.0)]:
        step: list[Shift] = []
        if reached and target != p:
            step.append((p, -reached))
            reached = 0.0
        if scale != reached:
            step.append((target, scale - reached))
        p, reached = target, scale
        path.append(step)
    return path


def follow(algorithm: Any, source: Directions, replica: Replica, commits: Sequence[ScalarCommit]) -> None:
    """Fold commits into the drifted vector of a replica: the losses of their rounds in place, and their steps.

    Args:
        algorithm: the algorithm, a `ScalarOnly`.
        source: its directions.
        replica: the replica.
        commits: the commits, oldest first.
    """
    drifted = replica.fields[DRIFTED]

    def fold(span: slice) -> None:
        block = Block({"x": drifted}, span)
        x, real = block.fields["x"], block.delta.dtype.type
        with np.errstate(over="ignore", invalid="ignore"):
            for commit in commits:
                for term in (term for term in commit.terms if term.weight):
                    is_own, weight, rate = commit.effect(term)
                    path = _path(algorithm, term.round, term.scalars.shape[1]) if is_own else []
                    for k, weights in enumerate(coefficients_of(term.scalars, weight, real)):
                        where: dict[str, Any] = {"seed": term.seed, "step": k, "start": block.start}
                        for p, amount in path:
                            source.perturb(x, x, amount, perturbation=p, **where)
                        source.accumulate(block.delta, weights, **where)
                        descend(block, block.delta, rate)

    for_blocks(drifted.size, fold, like=drifted)


def _path(algorithm: Any, round: int, perturbations: int) -> list[Shift]:
    """Return all moves of one local step of a round."""
    smoothing = float(np.float32(at(algorithm.smoothing, round)))
    scales = (smoothing, -smoothing) if at(algorithm.estimator, round) == "central" else (smoothing,)
    shifts = [(p, scale) for p in range(perturbations) for scale in scales]
    return [move for step in moves(shifts) for move in step]


def drift(replica: Replica) -> dict[str, float]:
    """Return the drift relative to the norm of x, and the share of coordinates that differ."""
    x, drifted = (np.asarray(replica.fields[name], np.float64) for name in ("x", DRIFTED))
    size = norm(x)
    return {"drift": norm(drifted - x) / size if size else 0.0, "drifted_share": float(np.mean(drifted != x))}
