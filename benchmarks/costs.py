"""The model that `model.py` fits: how often a round does what, and what each costs.

A round of m clients, P perturbations and K local steps on d coordinates, all in one process:

    forward passes          m·K·(P + 1)
    coordinates perturbed   d·P·(g + m·(K − 1))       g: distinct replicas among the clients, each perturbed once
    coordinates replayed    d·P·(K·f + m·(K − 1))     f: folds of a commit; local steps after the first go on from one
    messages                2·m
    commits told            m·lag
    rounds                  1

Clients of one version share a replica, which the evaluator has brought there: g = f = 1, whatever the lag. With
replicas of their own, g = m and f = 1 + m·lag, which is also what clients on machines of their own do between them.
A cohort is drawn by lot, so a client asked in round r has missed (1 − (1 − m/N)^r)·N/m commits in the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NAMES = (
    "a forward pass (the MNIST CNN, 32 samples)",
    "perturbing a coordinate",
    "replaying a coordinate",
    "a message",
    "a missed commit that a plan tells",
    "a round",
)
WARM = 2  # rounds at the beginning that do not count

Costs = NDArray[np.float64]
"""Milliseconds, [6], in the order of NAMES."""


@dataclass(frozen=True)
class Point:
    """One run. has_network: a CNN computes losses; if not, nothing does. is_private: each client has a replica."""

    clients: float
    cohort: float
    perturbations: float
    steps: float
    dimension: float
    has_network: bool = False
    is_private: bool = False
    rounds: int = 12


def mean_lag(point: Point) -> float:
    """Commits that a client has missed when it is asked, the mean over the rounds that count."""
    share, rounds = point.cohort / point.clients, np.arange(WARM, point.rounds)
    return float(np.mean((1 - (1 - share) ** rounds) / share))


def counts(point: Point) -> NDArray[np.float64]:
    """How often a round does what NAMES says, [6]."""
    m, p, k = point.cohort, point.perturbations, point.steps
    told, on = m * mean_lag(point), m * (k - 1)
    replicas, folds = (m, 1 + told) if point.is_private else (1, 1)
    passes = m * k * (p + 1) if point.has_network else 0
    drawn = point.dimension * p
    return np.array([passes, drawn * (replicas + on), drawn * (k * folds + on), 2 * m, told, 1])


def fit(points: Sequence[Point], milliseconds: Sequence[float]) -> Costs:
    """The costs, none below 0, whose relative errors at these points have the least squares."""
    from scipy.optimize import nnls

    took = np.array(milliseconds)
    found: Costs = nnls(np.stack([counts(point) for point in points]) / took[:, None], np.ones(took.size))[0]
    return found
