"""The fast twin of a scalar-only replay: commits become numbers that one compiled call folds into a block.

`ScalarOnly.divisor`, `step` and `learn` are the definition and `ScalarOnly.update_rule` the same as data. A class that
changes one of the former and has no update rule of its own is folded by them, in NumPy, commit by commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbus.algorithms.contract import CommitGap, Replica
from seedbus.algorithms.directions import STEP, Directions, Folding, ReplaySteps, UpdateRule, check_stream
from seedbus.algorithms.scalar_only.block import coefficients_of
from seedbus.algorithms.scalar_only.payloads import ScalarCommit

if TYPE_CHECKING:
    from torch import Tensor

AT_ONCE = 256
"""Commits in one call: many enough to be no cost, few enough for Ctrl-C to be heard soon."""

DEFINITION = ("divisor", "step", "learn")


def fused(
    algorithm: Any, backend: Directions, replica: Replica, commits: Sequence[ScalarCommit]
) -> Callable[[slice], None] | None:
    """What folds commits into a span of the replica, or None where only the algorithm itself can."""
    rule = rule_of(algorithm)
    if rule is None or not isinstance(backend, Folding):
        return None
    parts = [replay_steps(commits[at : at + AT_ONCE]) for at in range(0, len(commits), AT_ONCE)]

    def fold(span: slice) -> None:
        fields = {name: field[span] for name, field in replica.fields.items()}
        for part in parts:
            backend.fold(rule, fields, part, start=span.start)

    return fold


def replay_steps(commits: Sequence[ScalarCommit]) -> ReplaySteps:
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
    return ReplaySteps(np.array(steps, STEP), np.concatenate(parts))


def fold_tensors(fields: Mapping[str, Tensor], algorithm: Any, commits: Sequence[ScalarCommit]) -> None:
    """Fold commits, oldest first, into the fields of a replica that holds the version before the first of them.

    fields: name → tensor [d], float32 or bfloat16 each, all on one device; x and the algorithm's companions.
    Raises ValueError for fields that are not the algorithm's, TypeError for an algorithm whose update is not said as
    data, `CommitGap` if a commit does not follow the one before it, and ImportError without Triton.
    """
    from seedbus.algorithms.directions.triton_fold import fold

    rule = rule_of(algorithm)
    if rule is None:
        raise TypeError(f"{type(algorithm).__name__} has no replay on a GPU: its update is not said as an UpdateRule")
    wanted = {"x", *algorithm.companions()}
    if set(fields) != wanted:
        raise ValueError(f"a replica of {type(algorithm).__name__} has {sorted(wanted)}, not {sorted(fields)}")
    for before, after in pairwise(commits):
        if after.version != before.version + 1:
            raise CommitGap(before.version, after.version)
    for term in (term for commit in commits for term in commit.terms):
        steps, perturbations = term.scalars.shape
        stream = {"seed": term.seed, "step": steps, "perturbation": perturbations, "start": 0}
        check_stream(algorithm.directions, len(fields["x"]), **stream)
    fold(algorithm.directions, rule, fields, replay_steps(commits))


def rule_of(algorithm: Any) -> UpdateRule | None:
    """The algorithm's update as data, or None where only its own methods say it."""
    found: UpdateRule | None = algorithm.update_rule() if _speaks_for(type(algorithm)) else None
    return found


def _speaks_for(kind: type) -> bool:
    """Whether a class's update rule is as new as all that it puts in numbers."""
    age = {
        name: next(age for age, base in enumerate(kind.__mro__) if name in vars(base))
        for name in ("update_rule", *DEFINITION)
    }
    return age["update_rule"] <= min(age[name] for name in DEFINITION)
