"""ZONE-S against its equations in float64: every z_i and λ_i, and the minimum that the server computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import make, seed_of
from dense_federation import COHORTS, START, Array, D, N, federate
from zeroth_order_cases import Slope, equation4

ETA = 0.1
ESTIMATOR: dict[str, Any] = {"perturbations": 5, "estimator": "central", "sphere": "unit"}
FIELDS: dict[str, Any] = {"learning_rate": ETA, "local_steps": 1, "smoothing": 0.1, **ESTIMATOR}
EACH_ONE = [(i * i % N,) for i in range(12)]


@pytest.fixture(autouse=True)
def losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dense_federation.Bowl", Slope)


def estimate(client: int, round: int, at: Array, step: int = 0) -> Array:
    slope, key = Slope(client, round), seed_of(100 * round + client)
    gradient: Array = equation4(lambda x: slope.at(x, step), at, key, 0.1, step=step, **ESTIMATOR)
    return gradient


def lagrangian(cohorts: Any, local_steps: int = 1, rho: float = 1 / ETA) -> tuple[Array, Array]:
    """Return z after every round, [rounds, D], and the final λ_i, [N, D]."""
    z, multipliers, models = START.astype(np.float64), np.zeros((N, D)), []
    for round, cohort in enumerate(cohorts):
        alpha = len(cohort) / N
        copies, new = np.tile(z, (N, 1)), multipliers.copy()
        for i in cohort:
            w = z
            for step in range(local_steps):
                toward = multipliers[i] + estimate(i, round, w, step)
                w = z - toward / rho
            copies[i] = z - toward / (alpha * rho)
            new[i] = multipliers[i] + alpha * rho * (copies[i] - z)
        # 0 = Σ −λ_i + ρ(z − z_i)
        z = (rho * copies + multipliers).sum(axis=0) / (N * rho)
        multipliers = new
        models.append(z)
    return np.array(models), multipliers


@pytest.mark.few(5)
@pytest.mark.parametrize("cohorts", [COHORTS, EACH_ONE, [tuple(range(N))] * 5], ids=["some", "one", "all"])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_zone_s_minimises_the_augmented_lagrangian(cohorts: Any, local_steps: int) -> None:
    expected, multipliers = lagrangian(cohorts, local_steps)
    federation = federate("zone-s", cohorts, **FIELDS | {"local_steps": local_steps})
    assert np.abs(federation.models - expected).max() < 2e-4
    for client in {client for cohort in cohorts for client in cohort}:
        remembered = np.frombuffer(federation.memory[client]["zone-s.lambda"], "<f4")
        assert np.abs(remembered - multipliers[client]).max() < 1e-3 * np.abs(multipliers).max()
    plain = federate("fedzo", cohorts, **FIELDS | {"local_steps": local_steps}).models
    assert (local_steps == 1 and len(cohorts) == 5) or np.abs(plain[-1] - expected[-1]).max() > 1e-2


def test_zone_s_with_one_client_a_round_is_saga() -> None:
    """The reference keeps each client's last estimate; a step is the new estimate minus the old one plus the table's
    mean."""
    z, table, models = START.astype(np.float64), np.zeros((N, D)), []
    for round, (client,) in enumerate(EACH_ONE):
        fresh = estimate(client, round, z)
        z = z - ETA * (fresh - table[client] + table.mean(axis=0))
        table[client] = fresh
        models.append(z)
    assert np.abs(federate("zone-s", EACH_ONE, **FIELDS).models - np.array(models)).max() < 2e-4


def test_zone_s_with_all_clients_is_one_step_along_the_mean_estimate() -> None:
    everybody = [tuple(range(N))] * 6
    zone_s, fedzo = (federate(name, everybody, **FIELDS).models for name in ("zone-s", "fedzo"))
    assert np.abs(zone_s - fedzo).max() < 1e-5
    assert np.abs(zone_s[-1] - START).max() > 0.1


def test_halving_the_server_learning_rate_halves_the_step_and_keeps_the_multipliers() -> None:
    full, half = (federate("zone-s", COHORTS[:2], server_learning_rate=rate, **FIELDS) for rate in (1.0, 0.5))
    assert np.abs(full.models[0] - START - 2 * (half.models[0] - START)).max() < 1e-6
    assert half.memory[0] == full.memory[0]


def test_a_client_sends_and_receives_one_vector() -> None:
    algorithm = make("zone-s", **FIELDS).sized(D)
    replica, plan = algorithm.replica(START), algorithm.plan(0, 0, 0)
    report, _ = algorithm.local(replica, None, plan, Slope(0, 0))
    assert algorithm.pack_report(plan, report).scalars == D
    commit, _ = algorithm.aggregate(algorithm.first_state(START.copy), plan, {0: report})
    assert algorithm.pack_commits([commit]).scalars == D


def test_zone_s_has_the_defaults_of_fedzos_authors() -> None:
    algorithm = make("zone-s")
    assert (1 / algorithm.learning_rate, algorithm.smoothing, algorithm.local_steps, algorithm.weighting) == (
        500,
        1e-3,
        1,
        "uniform",
    )
