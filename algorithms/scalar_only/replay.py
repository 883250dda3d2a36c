"""The fast twin of a scalar-only replay: commits become numbers that one compiled call folds into a block.

`ScalarOnly.divisor`, `step` and `learn` are the definition and `ScalarOnly.law` the same in numbers. A class that
changes one of the former and has no law of its own is folded by them, in NumPy, commit by commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import MOVE, Directions, Folding, ReplaySteps, UpdateRule
from seedbus.algorithms.scalar_only.block import coefficients_of
from seedbus.algorithms.scalar_only.payloads import ScalarCommit

AT_ONCE = 256
"""Commits in one call: many enough to be no cost, few enough for Ctrl-C to be heard soon."""

DEFINITION = ("divisor", "step", "learn")


def fused(
    algorithm: Any, backend: Directions, replica: Replica, commits: Sequence[ScalarCommit]
) -> Callable[[slice], None] | None:
    """What folds commits into a span of the replica, or None where only the algorithm itself can."""
    law: UpdateRule | None = algorithm.law() if _speaks_for(type(algorithm)) else None
    if law is None or not isinstance(backend, Folding):
        return None
    parts = [moves(commits[at : at + AT_ONCE]) for at in range(0, len(commits), AT_ONCE)]

    def fold(span: slice) -> None:
        fields = {name: field[span] for name, field in replica.fields.items()}
        for part in parts:
            backend.fold(law, fields, part, start=span.start)

    return fold


def moves(commits: Sequence[ScalarCommit]) -> ReplaySteps:
    """Every local step of every term that weighs something, in order."""
    steps: list[tuple[Any, ...]] = []
    parts, first = [np.empty(0, np.float32)], 0
    for commit in commits:
        for term in commit.terms:
            if not term.weight:
                continue
            is_own, weight, rate = commit.effect(term)
            (last, count), words = term.scalars.shape, (term.seed & 0xFFFFFFFF, term.seed >> 32)
            for k in range(last):
                steps.append((*words, k, first + k * count, count, rate, is_own, k == 0, k + 1 == last))
            parts.append(coefficients_of(term.scalars, weight, np.float32).ravel())
            first += term.scalars.size
    return ReplaySteps(np.array(steps, MOVE), np.concatenate(parts))


def _speaks_for(kind: type) -> bool:
    """Whether a class's law is as new as all that it puts in numbers."""
    age = {
        name: next(age for age, base in enumerate(kind.__mro__) if name in vars(base)) for name in ("law", *DEFINITION)
    }
    return age["law"] <= min(age[name] for name in DEFINITION)
