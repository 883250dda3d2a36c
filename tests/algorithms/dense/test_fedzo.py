"""FedZO: its gradient estimate, its cost in loss evaluations, and directions that are private to a client."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, bits, make, seed_of
from dense_federation import START, N, federate
from zeroth_order_cases import Slope, equation4

from seedbus.algorithms.dense.methods.method import Local
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

DIMENSION = 6
TRIALS = 60


class Bowl:
    """½ Σ_j a_j (x_j − c_j)², with a key."""

    samples, steps_an_epoch = 1, 1
    curvature, centre = np.linspace(1, 3, DIMENSION), np.cos(np.arange(DIMENSION))

    def __init__(self, key: int) -> None:
        self.point, self.key, self.seen = np.zeros(DIMENSION, np.float32), key, list[Any]()

    def loss(self, step: int) -> float:
        self.seen.append(self.point.astype(np.float64))
        away = self.seen[-1] - self.centre
        return float(self.curvature @ away**2) / 2

    def gradient(self, step: int, criterion: Any = None) -> Any:
        raise AssertionError("there is no gradient")


@cache
def algorithm_of(**fields: Any) -> Any:
    return make("fedzo", learning_rate=1.0, local_steps=1, **fields).sized(DIMENSION)


def estimates(key: int, **fields: Any) -> tuple[Any, Bowl]:
    """Return the gradient estimate at x = 0 of one local step, float64 [d], and the objective."""
    algorithm = algorithm_of(**fields)
    bowl = Bowl(key)
    report, _ = algorithm.local(algorithm.replica(np.zeros(DIMENSION, np.float32)), None, algorithm.plan(0, 0, 0), bowl)
    return -report.vectors[0].astype(np.float64), bowl


@pytest.mark.few(3)
@pytest.mark.parametrize("sphere", ["unit", "sqrt-d"])
@pytest.mark.parametrize("estimator", ["forward", "central"])
def test_the_estimate_is_unbiased_for_the_smoothed_gradient(sphere: str, estimator: str) -> None:
    """A quadratic's smoothed gradient is its gradient because v is symmetric. The means of all trials are within five
    standard errors: by Student's t with 59 degrees of freedom, all six with a probability above 1 − 4·10⁻⁵."""
    fields: dict[str, Any] = {"sphere": sphere, "estimator": estimator, "perturbations": 60, "smoothing": 0.1}
    trials = np.array([estimates(seed_of(trial), **fields)[0] for trial in range(TRIALS)])
    gradient = -Bowl.curvature * Bowl.centre
    error = trials.std(axis=0, ddof=1) / math.sqrt(TRIALS)
    assert (np.abs(trials.mean(axis=0) - gradient) < 5 * error).all()
    assert error.max() < np.abs(gradient).max() / 10, "or it would show nothing"


@pytest.mark.parametrize(("sphere", "radius"), [("unit", 1.0), ("sqrt-d", math.sqrt(DIMENSION))])
def test_perturbations_are_uniform_on_the_sphere(sphere: str, radius: float) -> None:
    _, bowl = estimates(9, sphere=sphere, estimator="central", perturbations=2000, smoothing=0.01)
    v = np.array(bowl.seen) / 0.01
    assert np.abs(np.linalg.norm(v, axis=1) - radius).max() < 1e-4 * radius
    assert np.abs(v[::2] + v[1::2]).max() < 1e-5, "x + μv and x − μv"
    moments = v[::2].T @ v[::2] / 2000 * DIMENSION / radius**2
    assert np.abs(moments - np.eye(DIMENSION)).max() < 5 * math.sqrt(2 / 2000), "E[vvᵀ] = radius²/d"


@pytest.mark.parametrize("estimator", ["forward", "central"])
@pytest.mark.parametrize("sphere", ["unit", "sqrt-d"])
def test_an_estimate_follows_equation_4(sphere: str, estimator: str) -> None:
    fields: dict[str, Any] = {"sphere": sphere, "estimator": estimator, "perturbations": 3}
    estimate, _ = estimates(77, smoothing=0.5, **fields)

    def loss(at: Any) -> float:
        return float(Bowl.curvature @ (at - Bowl.centre) ** 2) / 2

    expected = equation4(loss, np.zeros(DIMENSION), 77, 0.5, **fields)
    assert np.abs(estimate - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("fields", "each"), [({}, 21), ({"estimator": "central", "perturbations": 4}, 8)])
def test_a_step_evaluates_losses_and_no_gradient(fields: dict[str, Any], each: int) -> None:
    algorithm = make("fedzo", local_steps=3, **fields).sized(7)
    own = Quadratic(7, 0, 0)
    algorithm.local(algorithm.replica(np.zeros(7, np.float32)), None, algorithm.plan(0, 0, 0), own)
    assert own.evaluations == algorithm.work(0).evaluations == 3 * each
    assert make("fedprox", local_steps=3, also=[{"name": "fedzo", **fields}]).work(0).evaluations == 3 * each
    assert make("fedavg", local_steps=3).work(0).evaluations == 9


@pytest.mark.parametrize(("name", "other"), [("fedzo", "fedlc"), ("moon", "zone-s")])
def test_a_changed_loss_that_no_estimate_would_take_is_refused(name: str, other: str) -> None:
    with pytest.raises(ValueError, match=r"also: (fedlc|moon) changes the loss .* and (fedzo|zone-s) takes none"):
        make(name, also=[{"name": other}])


def test_directions_differ_by_client_and_by_step() -> None:
    assert bits(estimates(1)[0]) == bits(estimates(1)[0])
    assert np.abs(estimates(1)[0] - estimates(2)[0]).max() > 1e-3
    algorithm = make("fedzo", local_steps=2, perturbations=1, learning_rate=1e-30).sized(DIMENSION)
    bowl = Bowl(3)
    algorithm.local(algorithm.replica(np.zeros(DIMENSION, np.float32)), None, algorithm.plan(0, 0, 5), bowl)
    assert np.abs(bowl.seen[1] - bowl.seen[3]).max() > 1e-5


@pytest.mark.slow
def test_many_directions_approximate_gradient_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dense_federation.Bowl", Slope)
    models = federate("fedzo", perturbations=100, estimator="central").models
    monkeypatch.undo()
    fedavg = federate("fedavg", weighting="uniform").models
    assert N == 5 and np.abs(models[-1] - fedavg[-1]).max() < 0.25 * np.abs(fedavg[-1] - START).max()


@pytest.mark.slow
def test_softmax_regression_learns_without_gradients(tmp_path: Path) -> None:
    fields = ["algorithm={name: fedzo, local_steps: 5, perturbations: 20, learning_rate: 0.05}", "stop.rounds=8"]
    results = run(load("quickstart", [*fields, "participation.clients=10", "participation.cohort=5"]), tmp_path / "run")
    assert results.summary["metrics"]["accuracy"] > 0.5


def test_dzopa_steps_from_the_mean_along_estimates_at_each_clients_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is x_i ← x̄ − η·e_i(x_i) with all clients in every round."""
    monkeypatch.setattr("dense_federation.Bowl", Slope)
    everybody = [tuple(range(N))] * 4
    estimator: dict[str, Any] = {"perturbations": 5, "estimator": "central", "sphere": "unit"}
    fields: dict[str, Any] = {"local_steps": 1, "learning_rate": 0.1, "smoothing": 0.1, **estimator}
    federation = federate("dzopa", everybody, **fields)
    mean, own = START.astype(np.float64), [START.astype(np.float64)] * N
    for round in range(4):
        steps = []
        for client in range(N):
            loss, key = Slope(client, round).at, seed_of(100 * round + client)
            steps.append(0.1 * equation4(loss, own[client], key, 0.1, **estimator))
        own = [mean - step for step in steps]
        mean = np.mean(own, axis=0)
        assert np.abs(federation.models[round] - mean).max() < 1e-4
    assert np.abs(federate("fedzo", everybody, **fields).models[-1] - mean).max() > 1e-2
    assert np.abs(np.frombuffer(federation.memory[2]["dzopa.x"], "<f4") - own[2]).max() < 1e-4


def test_dzopas_further_local_steps_take_estimates_where_they_are() -> None:
    algorithm = make("dzopa")
    (method,), kept, here = algorithm.methods, START + 1, START + 2
    no_objective: Any = None
    local = Local({"x": START}, here, no_objective, algorithm.plan(0, 0, 0), 2, {"dzopa.x": kept})
    assert method.estimation_point(local) is kept
    local.step = 1
    assert method.estimation_point(local) is here
    local.step, local.memory = 0, {}
    assert method.estimation_point(local) is START, "a client without memory begins at the mean"
