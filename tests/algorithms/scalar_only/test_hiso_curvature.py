"""HiSo by equation 11: its equations in float64, with lag, its bytes, and what its H learns."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from algorithm_cases import Quadratic, make, over_the_wire, seed_of, x0
from numpy.typing import NDArray
from scalar_cases import DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, direction_of, loss_at

from seedbus.algorithms.scalar_only.curvature import spread

Array = NDArray[np.floating[Any]]
CLIENTS, STEPS, PERTURBATIONS, NU, EPSILON, MOMENTUM = 4, 2, 3, 0.25, 0.125, 0.5
FIELDS: dict[str, Any] = {
    "estimator": "curvature",
    "local_steps": STEPS,
    "perturbations": PERTURBATIONS,
    "learning_rate": RATE,
    "smoothing": SMOOTHING,
    "nu": NU,
    "epsilon": EPSILON,
    "momentum": MOMENTUM,
    "dampening": False,
}


def by_the_equations(hessian_step: str) -> tuple[Array, Array]:
    """Return x and H after all rounds; clients take their local steps with momentum, H is that of the round."""
    x, m, hessian = x0(DIMENSION, np.float64), np.zeros(DIMENSION), np.ones(DIMENSION)
    for round in range(ROUNDS):
        z = [[direction_of(seed_of(round), k, p) / np.sqrt(hessian) for p in range(PERTURBATIONS)] for k in (0, 1)]
        slopes, curvatures = np.zeros((2, CLIENTS, STEPS, PERTURBATIONS))
        for client in range(CLIENTS):
            own, own_m = x.copy(), m.copy()
            for k in range(STEPS):
                here = loss_at(client, round, k, own)
                for p in range(PERTURBATIONS):
                    ahead, behind = (loss_at(client, round, k, own + s * SMOOTHING * z[k][p]) for s in (1, -1))
                    slopes[client, k, p] = (ahead - behind) / (2 * SMOOTHING)
                    curvatures[client, k, p] = (ahead + behind - 2 * here) / SMOOTHING**2
                own_m = MOMENTUM * own_m + np.mean(
                    [g * each for g, each in zip(slopes[client, k], z[k], strict=True)], 0
                )
                own = own - RATE * own_m
        old = hessian
        for k in range(STEPS):
            along = zip(slopes.mean(axis=0)[k], z[k], strict=True)
            m = MOMENTUM * m + np.mean([g * each for g, each in along], axis=0)
            x = x - RATE * m
            if hessian_step == "every" or k == STEPS - 1:
                among = zip(curvatures.mean(axis=0)[k], z[k], strict=True)
                learned = np.mean([abs(c) * (old * each) ** 2 for c, each in among], axis=0)
                hessian = (1 - NU) * hessian + NU * (learned + EPSILON)
    return x, hessian


@pytest.mark.parametrize("hessian_step", ["every", "last"])
def test_it_is_its_equations_at_any_lag_and_sends_twice_the_scalars(hessian_step: str) -> None:
    algorithm = make("hiso", hessian_step=hessian_step, **FIELDS)
    replica, late = (algorithm.replica(x0(DIMENSION, np.float64)) for _ in range(2))
    log: Any = []
    for round in range(ROUNDS):
        plan = algorithm.plan(round, round, seed_of(round))
        reports = {}
        for client in range(CLIENTS):
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            report, _ = algorithm.local(replica, None, plan, objective)
            packed = algorithm.pack_report(plan, report)
            assert packed.scalars == algorithm.work(round).scalars == 2 * STEPS * PERTURBATIONS
            assert len(msgpack.packb(packed.body)) >= 4 * packed.scalars
            assert objective.evaluations == algorithm.work(round).evaluations == STEPS * (2 * PERTURBATIONS + 1)
            reports[client] = algorithm.unpack_report(over_the_wire(packed.body), plan)
        log.append(algorithm.aggregate(None, plan, reports)[0])
        algorithm.apply(replica, log)
    packed = algorithm.pack_commits(log)
    assert packed.scalars == ROUNDS * 2 * STEPS * PERTURBATIONS
    algorithm.apply(late, algorithm.unpack_commits(over_the_wire(packed.body)))
    assert late.digest() == replica.digest()
    x, hessian = by_the_equations(hessian_step)
    assert np.abs(x - x0(DIMENSION, np.float64)).max() > 1e-2 and np.abs(hessian - 1).max() > 0.1
    np.testing.assert_allclose(late.x, x, rtol=0, atol=1e-10)
    np.testing.assert_allclose(late.fields["hessian"], hessian, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "weight", "multiple"),
    [("hiso", "nu", 10), pytest.param("hizoo", "alpha", 5, marks=pytest.mark.slow)],
)
def test_h_comes_to_rest_at_a_multiple_of_the_diagonal_of_the_hessian(name: str, weight: str, multiple: int) -> None:
    """(d + 2)·A for a loss with the Hessian A, of HiZOO half of it; here within the noise of a moving average."""
    dimension, rounds = 8, 300
    algorithm = make(
        name, estimator="curvature", perturbations=20, learning_rate=1e-6, smoothing=0.125, **{weight: 0.05}
    )
    replica, objective = algorithm.replica(x0(dimension)), Quadratic(dimension, 0, 0)
    for round in range(rounds):
        plan = algorithm.plan(round, round, seed_of(round))
        report, _ = algorithm.local(replica, None, plan, objective)
        algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
    diagonal = (1.5 + np.sin(np.arange(dimension))) / dimension
    np.testing.assert_allclose(replica.fields["hessian"], multiple * diagonal, rtol=0.35)
    assert diagonal.max() > 4 * diagonal.min()
    assert "hessian_cv_null" not in algorithm.diagnostics(replica)


@pytest.mark.parametrize(("name", "weight"), [("hiso", "nu"), ("hizoo", "alpha")])
def test_h_learns_the_magnitude_of_the_curvature_of_the_mean_loss_which_may_be_negative(name: str, weight: str) -> None:
    algorithm = make(name, estimator="curvature", perturbations=1, **{weight: 0.25})

    def learned(*curvatures: float) -> list[float]:
        replica, plan = algorithm.replica(x0(DIMENSION)), algorithm.plan(0, 0, seed_of(0))
        reports = {client: np.array([[0.0, c]], np.float32) for client, c in enumerate(curvatures)}
        algorithm.apply(replica, [algorithm.aggregate(None, plan, reports)[0]])
        hessian: list[float] = replica.fields["hessian"].tolist()
        return hessian

    assert learned(-3.0) == learned(3.0) == learned(1.0, -7.0) != learned(3.0, -3.0)
    assert learned(3.0, -3.0) == pytest.approx([0.75] * DIMENSION), "a mean curvature of 0 only lets H decay"


def test_the_spread_of_h_is_its_deviation_over_its_mean() -> None:
    found = [spread(np.array(hessian, np.float32)) for hessian in ([1, 3], [0, 0], [np.inf, 1])]
    assert [each["hessian_mean"] for each in found] == [2.0, 0.0, np.inf]
    assert [each["hessian_cv"] for each in found] == pytest.approx([0.5, 0.0, np.nan], nan_ok=True)
