"""The compiled replay of scalar-only commits: they become data that one call folds into a block.

`ScalarOnly.divisor`, `step` and `learn` define an update, and `ScalarOnly.update_rule` is the same as data, for the
stream's own directions; weight decay is added to it here. If a class overrides one of `DEFINITION` and not
`update_rule`, its commits are folded by these methods, in NumPy, commit by commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seedbus.algorithms.contract import Replica, Vector
from seedbus.algorithms.directions import STEP, Directions, Folding, ReplaySteps, UpdateRule
from seedbus.algorithms.scalar_only.block import coefficients_of
from seedbus.algorithms.scalar_only.payloads import ScalarCommit

COMMITS_PER_CALL = 256
"""Commits per call: so many that the call itself costs nothing, so few that Ctrl-C takes effect soon."""

DEFINITION = ("divisor", "directions_of", "step", "learn")
"""The methods that `update_rule` states as data, and `directions_of`, which it cannot state."""


def fused(
    algorithm: Any, backend: Directions, replica: Replica, commits: Sequence[ScalarCommit]
) -> Callable[[slice], None] | None:
    """Return a function that folds commits into a span of the replica, or None if only the algorithm's methods can.

    Args:
        algorithm: the algorithm, a `ScalarOnly`.
        backend: the directions; None is returned unless they are `Folding`.
        replica: the replica to fold into.
        commits: the commits to fold, oldest first.
    """
    rule = rule_of(algorithm)
    if rule is None or not isinstance(backend, Folding):
        return None
    parts = [
        replay_steps(commits[at : at + COMMITS_PER_CALL], algorithm.rate)
        for at in range(0, len(commits), COMMITS_PER_CALL)
    ]

    def fold(span: slice) -> None:
        fields = {name: field[span] for name, field in replica.fields.items()}
        for part in parts:
            backend.fold(rule, fields, part, start=span.start)

    return fold


def _unchanged(rate: float, scalars: Vector) -> float:
    return rate


def replay_steps(
    commits: Sequence[ScalarCommit], rate_of: Callable[[float, Vector], float] = _unchanged
) -> ReplaySteps:
    """Return every local step of every term whose weight is not 0, in order.

    Args:
        commits: the commits, oldest first.
        rate_of: returns the η of an own step along its scalars, [P], from that of its commit (`ScalarOnly.rate`).
    """
    steps: list[tuple[Any, ...]] = []
    joined: list[tuple[tuple[int, float], list[Vector]]] = []  # one call multiplies scalars of equal P and weight
    first = 0
    for commit in commits:
        for term in commit.terms:
            if not term.weight:
                continue
            is_own, weight, rate = commit.effect(term)
            (local_steps, count), words = term.scalars.shape, (term.seed & 0xFFFFFFFF, term.seed >> 32)
            for k in range(local_steps):
                own = rate_of(rate, term.scalars[k]) if is_own else rate
                steps.append((*words, k, first + k * count, count, own, is_own, k == 0, k + 1 == local_steps))
            if not joined or joined[-1][0] != (count, weight):
                joined.append(((count, weight), []))
            joined[-1][1].append(term.scalars)
            first += term.scalars.size
    parts = [coefficients_of(np.concatenate(each), weight, np.float32).ravel() for (_, weight), each in joined]
    return ReplaySteps(np.array(steps, STEP), np.concatenate([np.empty(0, np.float32), *parts]))


def rule_of(algorithm: Any) -> UpdateRule | None:
    """Return the algorithm's update as data, or None if only its methods define it."""
    rule: UpdateRule | None = algorithm.update_rule() if _is_rule_current(type(algorithm)) else None
    return rule and replace(rule, decay=algorithm.weight_decay)


def _is_rule_current(algorithm: type) -> bool:
    """Return whether no subclass overrides a method of DEFINITION after the last override of `update_rule`."""
    depth = {
        name: next(depth for depth, base in enumerate(algorithm.__mro__) if name in vars(base))
        for name in ("update_rule", *DEFINITION)
    }
    return depth["update_rule"] <= min(depth[name] for name in DEFINITION)
