"""FeedSign, ZO-signSGD and rules with moments against their equations in float64, and what bits are on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, Quadratic, bits, make, over_the_wire, rehearse, seed_of, x0
from numpy.typing import NDArray
from scalar_cases import DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, direction_of, loss_at

from seedbus.algorithms.contract import BadPayload, Declined
from seedbus.scenarios.schema.discovery import ALGORITHMS

Array = NDArray[np.floating[Any]]
Step = Callable[[dict[str, Array], Array], None]
CLIENTS, STEPS, PERTURBATIONS = 4, 2, 3
SHAPE = {"local_steps": STEPS, "perturbations": PERTURBATIONS, "learning_rate": RATE, "smoothing": SMOOTHING}


def by_the_equations(step: Step, *, report: Any = lambda g: g, combine: Any = lambda rows: rows.mean(axis=0)) -> Array:
    """Return x after all rounds: each client's steps, the server's scalars and a follower's steps, in float64.

    Args:
        step: changes x, and fields that it keeps in the same dictionary, by a Δ.
        report: what a client sends of a central difference.
        combine: what a commit holds of the clients' scalars, [clients, K, P].
    """
    state: dict[str, Array] = {"x": x0(DIMENSION, np.float64)}
    for round in range(ROUNDS):
        z = [[direction_of(seed_of(round), k, p) for p in range(PERTURBATIONS)] for k in range(STEPS)]
        reports = []
        for client in range(CLIENTS):
            own = {name: field.copy() for name, field in state.items()}
            scalars = np.empty((STEPS, PERTURBATIONS))
            for k in range(STEPS):
                for p, direction in enumerate(z[k]):
                    ahead, behind = (
                        loss_at(client, round, k, own["x"] + s * direction) for s in (SMOOTHING, -SMOOTHING)
                    )
                    scalars[k, p] = report((ahead - behind) / (2 * SMOOTHING))
                step(own, np.mean([g * u for g, u in zip(scalars[k], z[k], strict=True)], axis=0))
            reports.append(scalars)
        committed = combine(np.array(reports))
        for k in range(STEPS):
            step(state, np.mean([g * u for g, u in zip(committed[k], z[k], strict=True)], axis=0))
    return state["x"]


def by_seedbus(algorithm: Any) -> Array:
    """Return x of a follower that folds all commits at the end; the clients fold each when it is made."""
    follower, client_replica = (algorithm.replica(x0(DIMENSION, np.float64)) for _ in range(2))
    log: Any = []
    for round in range(ROUNDS):
        plan = algorithm.plan(round, round, seed_of(round))
        algorithm.apply(client_replica, log)
        reports = {}
        for client in range(CLIENTS):
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            report, _ = algorithm.local(client_replica, None, plan, objective)
            reports[client] = algorithm.unpack_report(over_the_wire(algorithm.pack_report(plan, report).body), plan)
        commit, _ = algorithm.aggregate(None, plan, reports)
        log += algorithm.unpack_commits(over_the_wire(algorithm.pack_commits([commit]).body))
    algorithm.apply(follower, log)
    x: Array = follower.x
    return x


def descend(state: dict[str, Array], delta: Array) -> None:
    state["x"] -= RATE * delta


def sign(values: Any) -> Any:
    return np.where(np.asarray(values) >= 0, 1.0, -1.0)


def test_feedsign_is_its_equations_and_an_even_cohort_has_ties() -> None:
    votes: list[Array] = []

    def majority(rows: Array) -> Array:
        votes.append(rows.sum(axis=0))
        return np.asarray(sign(rows.sum(axis=0)))

    expected = by_the_equations(descend, report=sign, combine=majority)
    assert {0.0, 4.0} <= set(np.abs(votes).ravel()), "ties and unanimous votes"
    assert np.abs(expected - x0(DIMENSION, np.float64)).max() > 1e-2
    assert np.abs(by_seedbus(make("feedsign", **SHAPE)) - expected).max() < 1e-10


def test_zo_signsgd_is_its_equation() -> None:
    def step(state: dict[str, Array], delta: Array) -> None:
        state["x"] -= RATE * np.sign(delta)

    expected = by_the_equations(step)
    assert np.abs(expected - x0(DIMENSION, np.float64)).max() > 1e-2
    assert np.abs(by_seedbus(make("zo-signsgd", estimator="central", **SHAPE)) - expected).max() < 1e-10


@pytest.mark.parametrize("amsgrad", [False, True])
def test_zo_adam_is_its_equations(amsgrad: bool) -> None:
    def step(state: dict[str, Array], delta: Array) -> None:
        zero = np.zeros(DIMENSION)
        m = state["m"] = 0.8 * state.get("m", zero) + 0.2 * delta
        v = state["v"] = 0.6 * state.get("v", zero) + 0.4 * delta**2
        peak = state["peak"] = np.maximum(state.get("peak", zero), v) if amsgrad else v
        state["x"] -= RATE * m / (np.sqrt(peak) + 1e-3)

    adam = make("zo-adam", amsgrad=amsgrad, beta1=0.8, beta2=0.6, epsilon=1e-3, estimator="central", **SHAPE)
    expected = by_the_equations(step)
    assert np.abs(expected - x0(DIMENSION, np.float64)).max() > 1e-2
    assert np.abs(by_seedbus(adam) - expected).max() < 1e-10


def yogi(state: dict[str, Array], delta: Array) -> None:
    zero = np.zeros(DIMENSION)
    m = state["m"] = 0.8 * state.get("m", zero) + 0.2 * delta
    v = state.get("v", zero)
    v = state["v"] = v - 0.4 * np.sign(v - delta**2) * delta**2
    state["x"] -= RATE * m / (np.sqrt(v) + 1e-3)


def rmsprop(state: dict[str, Array], delta: Array) -> None:
    v = state["v"] = 0.6 * state.get("v", np.zeros(DIMENSION)) + 0.4 * delta**2
    state["x"] -= RATE * delta / (np.sqrt(v) + 1e-3)


def r_adazo(state: dict[str, Array], delta: Array) -> None:
    zero = np.zeros(DIMENSION)
    m = state["m"] = 0.8 * state.get("m", zero) + 0.2 * delta
    v = state["v"] = 0.6 * state.get("v", zero) + 0.4 * m**2
    state["x"] -= RATE * m / np.sqrt(v + 1e-3)


@pytest.mark.parametrize(
    ("name", "step", "fields"),
    [
        ("zo-yogi", yogi, {"beta1": 0.8, "beta2": 0.6, "epsilon": 1e-3}),
        ("zo-rmsprop", rmsprop, {"decay": 0.6, "epsilon": 1e-3}),
        ("r-adazo", r_adazo, {"beta1": 0.8, "beta2": 0.6, "zeta": 1e-3}),
    ],
)
def test_a_rule_with_moments_is_its_equations(name: str, step: Step, fields: dict[str, Any]) -> None:
    expected = by_the_equations(step)
    moved = np.abs(expected - x0(DIMENSION, np.float64)).max()
    error = np.abs(by_seedbus(make(name, estimator="central", **fields, **SHAPE)) - expected).max()
    assert error < 1e-10 * moved, f"relative error {error / moved:.1e}"


def test_reports_and_commits_of_signs_take_a_bit_a_scalar() -> None:
    run = rehearse(make("feedsign", perturbations=19))
    plan, report = run.plans[0], run.reports[0][0]
    (packed,) = run.algorithm.pack_report(plan, report).body
    assert len(packed) == 3
    ((segment,),) = run.algorithm.pack_commits(run.commits[:4]).body
    assert len(segment[-1]) == 10, "4 × 19 bits"
    with pytest.raises(BadPayload, match="scalars: bits after the last of 19 signs"):
        run.algorithm.unpack_report([b"\xff\xff\xff"], plan)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_client_whose_loss_is_not_finite_declines_because_it_has_no_sign(value: float) -> None:
    class Lost(Quadratic):
        def loss(self, step: int) -> float:
            return value

    algorithm = make("feedsign")
    with pytest.raises(Declined, match="sign holds no more than 1, and not nan") as declined:
        algorithm.local(algorithm.replica(x0()), None, algorithm.plan(0, 0, 7), Lost(x0().size, 0, 0))
    assert declined.value.reason == "overflow"


def test_decomfl_that_sends_signs_is_feedsign_and_integers_refuse_them() -> None:
    decomfl = make("decomfl", precision="sign", estimator="central", **SHAPE)
    assert np.array_equal(by_seedbus(decomfl), by_seedbus(make("feedsign", **SHAPE)))
    precisions, floats = "precision: float32, float16 or bfloat16", "arithmetic: float or bfloat16"
    expected = {"decomfl": f"{floats}, or {precisions}", "fedkseed": precisions, "feedsign": floats}
    for name, each in expected.items():
        with pytest.raises(ValueError, match=rf"precision is sign, and a majority .* no sum; expected {each}(?! or|,)"):
            make(name, precision="sign", arithmetic="integer")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (name, fields)
        for name in ALGORITHMS.all()
        for fields in ({}, *CONFIGURATIONS.get(name, {}).values())
        if not make(name).facts.is_dense
        and not name.startswith("fedscalar")  # of whose updates only projections are sent
        and "clipped" not in str(fields)
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_client_that_trains_has_the_model_that_its_report_alone_would_commit(
    name: str, fields: dict[str, Any]
) -> None:
    algorithm = make(name, **fields).sized(DIMENSION)
    replica, plan = algorithm.replica(x0(DIMENSION)), algorithm.plan(0, 0, seed_of(0))
    before = bits(replica)
    report, _ = algorithm.local(replica, None, plan, Quadratic(DIMENSION, 0, 0))
    trained = algorithm.trained(replica, None, plan, Quadratic(DIMENSION, 0, 0))
    assert bits(replica) == before
    algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
    moved = np.abs(trained - x0(DIMENSION)).max()
    # the same bits, but for one rounding in the place of several
    assert np.abs(algorithm.point(replica) - trained).max() <= max(2.0**-25, 1e-3 * moved) < moved


def test_a_client_that_cannot_report_trains_no_model() -> None:
    algorithm = make("decomfl", precision="float16", smoothing=1e-3)

    class Steep(Quadratic):
        def loss(self, step: int) -> float:
            return 1e9 * super().loss(step)

    for work in (algorithm.local, algorithm.trained):
        with pytest.raises(Declined, match="float16 holds no more than"):
            work(algorithm.replica(x0(DIMENSION)), None, algorithm.plan(0, 0, 7), Steep(DIMENSION, 0, 0))
