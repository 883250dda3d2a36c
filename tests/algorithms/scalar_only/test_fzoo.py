"""FZOO against its equations in float64, which are of losses and not of scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, bits, make, over_the_wire, rehearse, seed_of, x0
from numpy.typing import NDArray
from scalar_cases import DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, loss_at

from seedbus.algorithms.contract import ReportRefused
from seedbus.algorithms.directions import reference
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.fzoo import FZOO

CLIENTS, STEPS, P = 4, 2, 5
SETTINGS = {"local_steps": STEPS, "perturbations": P, "learning_rate": RATE, "smoothing": SMOOTHING}


def signs_of(round: int, step: int, perturbation: int) -> NDArray[np.float64]:
    u = np.empty(DIMENSION)
    reference("rademacher").fill(u, seed=seed_of(round), step=step, perturbation=perturbation)
    return u


def stepped(x: NDArray[Any], losses: NDArray[np.float64], u: Any) -> NDArray[Any]:
    """The paper's step from losses [l_0, l_1 … l_P] along u_1 … u_P."""
    differences = losses[1:] - losses[0]
    moved: NDArray[Any] = x - RATE / (P * np.std(losses[1:])) * sum(
        each * direction for each, direction in zip(differences, u, strict=True)
    )
    return moved


def test_fzoo_is_its_equations_of_losses() -> None:
    x = x0(DIMENSION, np.float64)
    for round in range(ROUNDS):
        u = [[signs_of(round, k, p) for p in range(P)] for k in range(STEPS)]
        found = np.empty((CLIENTS, STEPS, 1 + P))
        for client in range(CLIENTS):
            own = x
            for k in range(STEPS):
                points = [own, *(own + SMOOTHING * each for each in u[k])]
                found[client, k] = [loss_at(client, round, k, point) for point in points]
                own = stepped(own, found[client, k], u[k])
        for k in range(STEPS):  # what the cohort measured at its own points, along the same directions
            x = stepped(x, found[:, k].mean(axis=0), u[k])

    algorithm = make("fzoo", **SETTINGS)
    replica, log = algorithm.replica(x0(DIMENSION, np.float64)), []
    for round in range(ROUNDS):
        plan, reports = algorithm.plan(round, round, seed_of(round)), {}
        for client in range(CLIENTS):
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            reports[client], _ = algorithm.local(replica, None, plan, objective)
        commit, _ = algorithm.aggregate(None, plan, reports)
        log += algorithm.unpack_commits(over_the_wire(algorithm.pack_commits([commit]).body))
        algorithm.apply(replica, log)
    moved = np.abs(x - x0(DIMENSION, np.float64)).max()
    error = np.abs(replica.x - x).max()
    assert error < 1e-10 * moved, f"relative error {error / moved:.1e}"


def test_its_messages_are_decomfls() -> None:
    mine, theirs = (rehearse(make(name, perturbations=8, directions="rademacher")) for name in ("fzoo", "decomfl"))
    assert bits(mine.reports[0]) == bits(theirs.reports[0])
    assert bits(mine.commits[0]) == bits(theirs.commits[0])


def test_the_compiled_replay_is_the_definition_in_numpy() -> None:
    class Slow(FZOO):
        def step(self, block: Any, learning_rate: float) -> None:  # overridden, so that NumPy folds
            ScalarOnly.step(self, block, learning_rate)

    fields: dict[str, Any] = {"perturbations": 4, "local_steps": 3, "weight_decay": 0.1, "learning_rate": 0.1}
    run = rehearse(FZOO(**fields))
    replica = Slow(**fields).replica(x0())
    Slow(**fields).apply(replica, run.commits)
    assert bits(replica.x) == bits(run.replica.x)


class Growing(Quadratic):
    """Every loss is so many times the one before."""

    factor, value = 1.0, 1.0

    def loss(self, step: int) -> float:
        self.value *= self.factor
        return self.value


def test_there_is_no_step_if_all_losses_are_equal() -> None:
    algorithm = make("fzoo", local_steps=2)
    replica, plan = algorithm.replica(x0()), algorithm.plan(0, 0, 7)
    report, _ = algorithm.local(replica, None, plan, Growing(x0().size, 0, 0))
    algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
    assert not report.any() and bits(replica.x) == bits(x0()) and replica.version == 1


def test_the_report_of_a_client_that_diverges_in_its_local_steps_is_refused() -> None:
    algorithm = make("fzoo", local_steps=2)
    plan, diverging = algorithm.plan(0, 0, 7), Growing(x0().size, 0, 0)
    diverging.factor = float("inf")
    with np.errstate(all="ignore"):
        report, _ = algorithm.local(algorithm.replica(x0()), None, plan, diverging)
    with pytest.raises(ReportRefused, match="not a finite number"):
        algorithm.check(plan, report)
