"""`revert: compensate`: one vector, in place, as a client of equation 10 has it; what it may not be combined with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, make, rehearse, x0

from seedbus.algorithms.contract import LateReports
from seedbus.algorithms.directions import reference
from seedbus.algorithms.scalar_only.compensation import _path, moves
from seedbus.studies.check.promises import seed_of

D = 257


def test_moves_lead_from_shift_to_shift_and_back() -> None:
    assert moves([(0, 0.0), (0, 0.5), (1, 0.5)]) == [[], [(0, 0.5)], [(0, -0.5), (1, 0.5)], [(1, -0.5)]]
    assert moves([(0, 0.5), (0, -0.5)]) == [[(0, 0.5)], [(0, -1.0)], [(0, 0.5)]]


@pytest.mark.parametrize("estimator", ["forward", "central"])
def test_one_client_drifts_as_a_vector_that_is_perturbed_in_place(estimator: str) -> None:
    """With one client its scalars are the cohort's, so the drifted field is its own vector, followed here in NumPy."""
    algorithm = make("decomfl", revert="compensate", estimator=estimator, local_steps=2, perturbations=3)
    run = rehearse(algorithm, 4, clients=1, dimension=D)
    w, exact, z = x0(D), x0(D), np.empty(D, np.float32)
    mu, eta = np.float32(1e-3), np.float32(algorithm.learning_rate)
    for round in range(4):
        for k in range(2):
            objective, g = Quadratic(D, 0, round), []

            def loss(objective: Any = objective, k: int = k, at: Any = w) -> float:
                objective.point[:] = at
                return float(objective.loss(k))

            at_x = loss()
            for p in range(3):
                reference("gaussian").fill(z, seed=seed_of(round), step=k, perturbation=p)
                w += mu * z
                up = loss()
                if estimator == "central":
                    w += np.float32(-2 * float(mu)) * z
                    g.append((up - loss()) / (2 * float(mu)))
                    w += mu * z
                else:
                    g.append((up - at_x) / float(mu))
                    w += -mu * z
            scalars = np.array(g, np.float32)
            assert run.reports[round][0][k].tolist() == scalars.tolist()
            delta = np.zeros(D, np.float32)
            for p in range(3):
                reference("gaussian").fill(z, seed=seed_of(round), step=k, perturbation=p)
                delta += scalars[p] * (np.float32(1) / np.float32(3)) * z
            w -= eta * delta
            exact -= eta * delta
    assert np.array_equal(run.replica.fields["drifted"], w) and np.array_equal(run.replica.x, exact)
    found = run.algorithm.diagnostics(run.replica)
    assert found["drift"] == pytest.approx(np.linalg.norm(w - exact) / np.linalg.norm(exact), rel=1e-3) != 0
    assert found["drifted_share"] == np.mean(w != exact)


def test_each_round_is_perturbed_as_its_own_settings_say() -> None:
    changing = make(
        "decomfl", revert="compensate", estimator={0: "forward", 2: "central"}, smoothing={0: 1e-3, 2: 2e-3}
    )
    for round, estimator, smoothing in ((1, "forward", 1e-3), (2, "central", 2e-3)):
        constant = make("decomfl", revert="compensate", estimator=estimator, smoothing=smoothing)
        assert _path(changing, round, 3) == _path(constant, round, 3)


def test_a_late_report_moves_the_drifted_vector_and_perturbs_it_no_second_time() -> None:
    algorithm = make("decomfl", revert="compensate", perturbations=3)
    replica = algorithm.replica(x0(D))
    late = LateReports(algorithm.plan(0, 0, seed_of(0)), {0: np.ones((1, 3), np.float32)}, 1.0)
    commit, _ = algorithm.aggregate(None, algorithm.plan(1, 0, seed_of(1)), {}, share=0.0, late=[late])
    algorithm.apply(replica, [commit])
    assert np.array_equal(replica.fields["drifted"], replica.x) and not np.array_equal(replica.x, x0(D))
