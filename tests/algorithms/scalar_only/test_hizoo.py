"""HiZOO against its equations in float64, and what its H learns."""

from __future__ import annotations

from typing import Any

import numpy as np
from algorithm_cases import Quadratic, make, over_the_wire, seed_of, x0
from numpy.typing import NDArray
from scalar_cases import DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, direction_of

Array = NDArray[np.floating[Any]]
CLIENTS, PERTURBATIONS, ALPHA, DECAY = 4, 3, 0.25, 0.125
FIELDS = {"perturbations": PERTURBATIONS, "learning_rate": RATE, "smoothing": SMOOTHING, "alpha": ALPHA}


def loss(client: int, round: int, x: Array) -> float:
    objective = Quadratic(x.size, client, round, np.float64, GRAIN)
    objective.point[:] = x
    return objective.loss(0)


def by_the_equations() -> tuple[Array, Array]:
    """Return x and diag Σ⁻¹ after all rounds, in the paper's Σ."""
    x, sigma = x0(DIMENSION, np.float64), np.ones(DIMENSION)
    for round in range(ROUNDS):
        u = np.array([direction_of(seed_of(round), 0, p) for p in range(PERTURBATIONS)])
        slopes, curvatures = np.zeros(PERTURBATIONS), np.zeros(PERTURBATIONS)
        for client in range(CLIENTS):
            here = loss(client, round, x)
            for p, z in enumerate(u * np.sqrt(sigma)):
                ahead, behind = loss(client, round, x + SMOOTHING * z), loss(client, round, x - SMOOTHING * z)
                slopes[p] += (ahead - behind) / (2 * SMOOTHING) / CLIENTS
                curvatures[p] += (ahead + behind - 2 * here) / (2 * SMOOTHING**2) / CLIENTS
        learned = np.mean([abs(c) * each**2 / sigma for c, each in zip(curvatures, u, strict=True)], axis=0)
        sigma = 1 / ((1 - ALPHA) / sigma + ALPHA * learned)
        step = np.mean([g * np.sqrt(sigma) * each for g, each in zip(slopes, u, strict=True)], axis=0)
        x = x - RATE * (step + DECAY * x)
    return x, 1 / sigma


def test_hizoo_is_its_equations() -> None:
    algorithm = make("hizoo", weight_decay=DECAY, **FIELDS)
    replica, late = (algorithm.replica(x0(DIMENSION, np.float64)) for _ in range(2))
    log: Any = []
    for round in range(ROUNDS):
        plan = algorithm.plan(round, round, seed_of(round))
        reports = {}
        for client in range(CLIENTS):
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            report, _ = algorithm.local(replica, None, plan, objective)
            packed = algorithm.pack_report(plan, report)
            assert (packed.scalars, objective.evaluations) == (2 * PERTURBATIONS, 2 * PERTURBATIONS + 1)
            reports[client] = algorithm.unpack_report(over_the_wire(packed.body), plan)
        log.append(algorithm.aggregate(None, plan, reports)[0])
        algorithm.apply(replica, log)
    algorithm.apply(late, log)
    x, hessian = by_the_equations()
    assert np.abs(x - x0(DIMENSION, np.float64)).max() > 1e-2 and np.abs(hessian - 1).max() > 0.1
    for each in (replica, late):
        np.testing.assert_allclose(each.x, x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(each.fields["hessian"], hessian, rtol=0, atol=1e-10)


def test_h_stays_above_zero_where_no_curvature_is_found() -> None:
    algorithm = make("hizoo", perturbations=1, alpha=0.9, smoothing=0.125)
    replica = algorithm.replica(x0(DIMENSION))
    for round in range(60):
        plan = algorithm.plan(round, round, seed_of(round))
        algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: np.zeros((1, 2), np.float32)})[0]])
    assert (replica.fields["hessian"] > 0).all()
    assert algorithm.diagnostics(replica)["hessian_cv"] == 0
