"""LOZO: the paper's recursion by matrices, V by windows of rounds, runs on a network, and what has no layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from worlds import scenario

from seedbus.algorithms.directions import reference
from seedbus.keyed import keyed_bits
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.prepare import bind, followed
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run

M, N, R = 6, 5, 2


class Bowl:
    """½‖X − C‖² of a matrix X."""

    def __init__(self) -> None:
        self.point = np.zeros(M * N)

    def loss(self, step: int) -> float:
        difference = self.point - np.cos(np.arange(M * N))
        return float(difference @ difference) / 2


def test_a_run_in_float64_is_the_recursion_of_the_paper() -> None:
    """The paper's ε, with μ = ε√r: g = (f(X+εUVᵀ) − f(X−εUVᵀ))/2ε, X ← X − η g UVᵀ/r."""
    epsilon, eta = float(np.float32(1e-3)) / np.sqrt(R), float(np.float32(0.05))
    algorithm = make("lozo", rank=R, interval=2, perturbations=1, learning_rate=0.05).sized(M * N, [(M, N)])
    replica, x = algorithm.replica(np.sin(np.arange(M * N))), np.sin(np.arange(M * N)).reshape(M, N)
    bowl = Bowl()
    for round in range(5):
        plan = algorithm.plan(round, replica.version, 70 + round)
        report, _ = algorithm.local(replica, None, plan, bowl)
        u, v = np.empty(R * M), np.empty(R * N)
        reference("gaussian").fill(u, seed=70 + round, step=0, perturbation=0)
        reference("gaussian").fill(v, seed=keyed_bits("lozo", round // 2), step=0, perturbation=0)
        product = u.reshape(M, R) @ v.reshape(R, N)
        losses = []
        for sign in (1, -1):
            bowl.point[:] = (x + sign * epsilon * product).ravel()
            losses.append(bowl.loss(0))
        g = (losses[0] - losses[1]) / (2 * epsilon)
        assert report[0, 0] * np.sqrt(R) == pytest.approx(g, rel=1e-5)
        x = x - eta * (float(report[0, 0]) * np.sqrt(R)) * product / R
        algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
        assert np.allclose(replica.x, x.ravel(), rtol=0, atol=1e-7)


def test_a_matrix_has_directions_of_the_rank_and_a_vector_is_no_matrix() -> None:
    shaped = make("lozo", rank=R).sized(M * N, [(M, N)])
    found = []
    for algorithm in (shaped, make("lozo", rank=R).sized(M * N)):
        z = np.empty(M * N)
        algorithm.directions_of(reference("gaussian"), 0).fill(z, seed=7, step=0, perturbation=0)
        found.append(z.reshape(M, N))
    assert [np.linalg.matrix_rank(z) for z in found] == [R, N]
    with pytest.raises(RuntimeError, match="before `sized`"):
        make("lozo").directions_of(reference("gaussian"), 0)


@pytest.mark.slow
def test_a_run_on_a_network_is_replayed_and_light_has_its_bits(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "task": {"name": "digits"},
        "participation": {"clients": 4, "cohort": 2},
        "stop": {"rounds": 4},
        "verify": True,
    }
    lozo = {"name": "lozo", "interval": 2, "local_steps": 2, "perturbations": 3}
    alone = run(scenario(**fields, algorithm=lozo), tmp_path / "alone")
    light = run(scenario(**fields, algorithm=lozo | {"revert": "light"}), tmp_path / "light")
    assert alone.summary["digest"] == light.summary["digest"] == replay(tmp_path / "alone").replica.digest()
    assert alone.summary["refusals"] == {}
    after = replay(tmp_path / "alone")
    begin, end = (after.problem.state_dict(x) for x in (after.problem.x0(), after.point))
    ranks = [np.linalg.matrix_rank(end[name] - begin[name], tol=1e-5) for name in begin if begin[name].ndim == 2]
    assert ranks and set(ranks) <= {2 * 2}  # two windows of rank 2, of four rounds of two steps


def test_what_lozo_cannot_be_combined_with_is_refused() -> None:
    with pytest.raises(ScenarioError, match="algorithm lozo needs layers, and digits has none"):  # as a plug-in's task
        followed(scenario(task={"name": "digits"}, algorithm={"name": "lozo"}), bind(scenario()))
    assert scenario(task={"name": "null"}, algorithm={"name": "lozo"}).task.has_layers, "its problem has one vector"
    for fields in ({"arithmetic": "integer"}, {"revert": "compensate"}):
        with pytest.raises(ValueError, match="no plain sum of random directions"):
            make("lozo", **fields)
