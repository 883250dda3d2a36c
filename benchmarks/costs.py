"""The cost model that `model.py` fits: how often a round does each kind of work, and what each costs.

A round of m clients, P perturbations and K local steps on d coordinates, all in one process:

    forward passes          m·K·(P + 1)
    coordinates perturbed   d·P·(g + m·(K − 1))       g: distinct replicas among the clients, each perturbed once
    coordinates replayed    d·P·(K·f + m·(K − 1))     f: folds of a commit; later local steps continue from one
    messages                2·m
    commits sent            m·lag
    rounds                  1

Clients at one version share a replica, which the evaluator has already updated: g = f = 1, whatever the lag. With
private replicas, g = m and f = 1 + m·lag; this is also the total work of clients on machines of their own.
Cohorts are sampled uniformly, so a client asked in round r has missed (1 − (1 − m/N)^r)·N/m commits on average.
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
    "a missed commit in a plan",
    "a round",
)
WARM = 2  # first rounds, which do not count

Costs = NDArray[np.float64]
"""Milliseconds [6], in the order of NAMES."""


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        clients: number of clients, N.
        cohort: clients asked in a round, m.
        perturbations: per local step, P.
        steps: local steps, K.
        dimension: coordinates of the model, d.
        has_network: whether a CNN computes losses; otherwise there are no forward passes.
        is_private: whether each client has a replica of its own.
        rounds: length of the run.
    """

    clients: float
    cohort: float
    perturbations: float
    steps: float
    dimension: float
    has_network: bool = False
    is_private: bool = False
    rounds: int = 12


def mean_lag(point: Point) -> float:
    """Return how many commits a client has missed when it is asked, the mean over the rounds that count."""
    share, rounds = point.cohort / point.clients, np.arange(WARM, point.rounds)
    return float(np.mean((1 - (1 - share) ** rounds) / share))


def counts(point: Point) -> NDArray[np.float64]:
    """Return how often a round does each kind of work, [6], in the order of NAMES."""
    m, p, k = point.cohort, point.perturbations, point.steps
    missed, later_steps = m * mean_lag(point), m * (k - 1)
    replicas, folds = (m, 1 + missed) if point.is_private else (1, 1)
    passes = m * k * (p + 1) if point.has_network else 0
    drawn = point.dimension * p
    perturbed, replayed = drawn * (replicas + later_steps), drawn * (k * folds + later_steps)
    return np.array([passes, perturbed, replayed, 2 * m, missed, 1])


def fit(points: Sequence[Point], milliseconds: Sequence[float]) -> Costs:
    """Return the non-negative costs that minimize the sum of squared relative errors at these points.

    Args:
        points: the runs.
        milliseconds: measured time of a round of each run, [points].
    """
    from scipy.optimize import nnls

    measured = np.array(milliseconds)
    costs: Costs = nnls(np.stack([counts(point) for point in points]) / measured[:, None], np.ones(measured.size))[0]
    return costs
