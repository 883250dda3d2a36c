"""FedScalar: the abstract's recursion with directions of the clients' own, ours with the round's, and whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, bits, make, x0
from worlds import outcome, scenario

from seedbus.algorithms.contract import BadPayload, Declined, LateReports
from seedbus.algorithms.directions import reference
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

DIMENSION, CLIENTS = 40, (0, 1, 4)
FIELDS: dict[str, Any] = {"perturbations": 2, "local_steps": 3, "local_learning_rate": 0.05, "learning_rate": 0.5}
BOTH = ("fedscalar", "fedscalar-shared")


def direction(seed: int, perturbation: int) -> Any:
    z = np.empty(DIMENSION)
    reference("gaussian").fill(z, seed=seed, step=0, perturbation=perturbation)
    return z


def pulled(x: Any, client: int, round: int) -> Any:
    """Return minus a client's update by three steps of SGD, in float64."""
    objective = Quadratic(DIMENSION, client, round, np.float64)
    y = x.copy()
    for step in range(3):
        objective.point[:] = y
        y = y - float(np.float32(0.05)) * objective.gradient(step)
    return x - y


@pytest.mark.parametrize("name", BOTH)
def test_a_step_is_the_mean_of_updates_projected_onto_directions(name: str) -> None:
    algorithm = make(name, **FIELDS)
    replica = algorithm.replica(x0(DIMENSION, np.float64))
    for round in range(3):
        plan = algorithm.plan(round, replica.version, 70 + round)
        before, step, reports, seeds = replica.x.copy(), np.zeros(DIMENSION), {}, set()
        for client in CLIENTS:
            objective = Quadratic(DIMENSION, client, round, np.float64)
            reports[client], _ = algorithm.local(replica, None, plan, objective)
            assert objective.evaluations == algorithm.work(round).evaluations == 9
            assert algorithm.work(round).scalars == algorithm.directions_of_report(round) == 2
            seed = getattr(reports[client], "seed", plan.seed)
            seeds.add(seed)
            update = pulled(before, client, round)
            for p in range(2):
                z = direction(seed, p)
                assert algorithm.values(reports[client])[0, p] == pytest.approx(update @ z, rel=1e-5)
                step += (update @ z) * z / (2 * len(CLIENTS))
        assert len(seeds) == (3 if name == "fedscalar" else 1)
        commit, _ = algorithm.aggregate(None, plan, reports)
        packed = algorithm.pack_commits([commit])
        assert (packed.seeds, packed.scalars) == ((3, 6) if name == "fedscalar" else (1, 2))
        algorithm.apply(replica, algorithm.unpack_commits(packed.body))
        assert np.allclose(before - replica.x, 0.5 * step, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
def test_with_many_directions_a_step_is_that_of_fedavg(name: str) -> None:
    """The projections are unbiased, and their noise is that of P directions, of each client's update or of the mean."""
    algorithm = make(name, **FIELDS | {"perturbations": 15_000, "learning_rate": 1.0})
    replica = algorithm.replica(x0(DIMENSION))
    start = replica.x.copy()
    plan = algorithm.plan(0, 0, 7)
    reports = {client: algorithm.local(replica, None, plan, Quadratic(DIMENSION, client, 0))[0] for client in CLIENTS}
    algorithm.apply(replica, [algorithm.aggregate(None, plan, reports)[0]])
    updates = np.array([pulled(start.astype(np.float64), client, 0) for client in CLIENTS])
    fedavg = updates.mean(axis=0)
    norm = np.linalg.norm(fedavg if name == "fedscalar-shared" else updates / len(CLIENTS))
    error = np.linalg.norm((start - replica.x) - fedavg)
    assert error == pytest.approx(norm * np.sqrt((DIMENSION + 1) / 15_000), rel=0.4)


def test_late_reports_move_x_along_their_own_directions_by_their_weight() -> None:
    algorithm = make("fedscalar", **FIELDS | {"learning_rate": {0: 0.5, 1: 0.25}})
    replica = algorithm.replica(x0(DIMENSION, np.float64))
    plans = [algorithm.plan(round, 0, 70 + round) for round in (0, 1)]
    report = {
        (round, client): algorithm.local(replica, None, plans[round], Quadratic(DIMENSION, client, round, np.float64))[
            0
        ]
        for round, client in ((0, 2), (0, 3), (1, 1))
    }
    late = LateReports(plans[0], {2: report[0, 2], 3: report[0, 3]}, 0.125)
    for own, share in (({1: report[1, 1]}, 0.75), ({1: report[1, 1]}, 0.0), ({}, 0.75)):
        found = replica.copy()
        commit, _ = algorithm.aggregate(None, plans[1], own, share=share, late=[late])
        assert commit.terms[0].round == commit.round == 1
        algorithm.apply(found, [commit])
        weights = {(0, 2): 0.5 * 0.125, (0, 3): 0.5 * 0.125} | ({(1, 1): 0.25 * share} if own else {})
        expected = sum(
            weight / 2 * float(scalar) * direction(report[which].seed, p)
            for which, weight in weights.items()
            for p, scalar in enumerate(report[which].scalars[0])
        )
        assert np.allclose(replica.x - found.x, expected, rtol=1e-5, atol=1e-9)
    later_first = LateReports(plans[0], {3: report[0, 3], 2: report[0, 2]}, 0.125)
    first, second = report[1, 1], report[0, 2]
    one, _ = algorithm.aggregate(None, plans[1], {1: first, 4: second}, late=[late])
    other, _ = algorithm.aggregate(None, plans[1], {4: second, 1: first}, late=[later_first])
    assert bits(one) == bits(other), "the order of arrival"


@pytest.mark.slow
def test_a_commit_of_more_reports_than_its_payload_counts_is_refused_in_a_sentence() -> None:
    algorithm = make("fedscalar", **FIELDS)
    plan = algorithm.plan(0, 0, 7)
    fresh = dict.fromkeys(range(2**16 - 3), algorithm.example(plan))
    late = [LateReports(plan, dict.fromkeys(range(2), algorithm.example(plan)), 0.5)]
    most, _ = algorithm.aggregate(None, plan, fresh, late=late)
    assert len(algorithm.unpack_commits(algorithm.pack_commits([most]).body)[0].terms) == 2**16 - 1
    with pytest.raises(OverflowError, match="it would have 65536 reports; a commit of fedscalar has at most 65535"):
        algorithm.aggregate(None, plan, fresh | {70_000: algorithm.example(plan)}, late=late)


def test_a_report_without_a_seed_of_64_bits_is_no_report() -> None:
    algorithm = make("fedscalar", **FIELDS)
    plan = algorithm.plan(0, 0, 7)
    report, _ = algorithm.local(algorithm.replica(x0(DIMENSION)), None, plan, Quadratic(DIMENSION, 0, 0))
    packed = algorithm.pack_report(plan, report)
    seed, scalars = packed.body
    assert (packed.seeds, packed.scalars) == (1, algorithm.work(0).scalars) == (1, 2)
    for sound in (seed, 0, 2**64 - 1):
        assert algorithm.unpack_report([sound, scalars], plan).seed == sound
    for body in (
        [2**64, scalars],
        [-1, scalars],
        [True, scalars],
        [b"", scalars],
        [scalars],
        [seed],
        [seed, scalars, 1],
    ):
        with pytest.raises(BadPayload):
            algorithm.unpack_report(body, plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.usefixtures("warm_workers")
def test_runs_with_loss_lag_late_reports_and_workers_have_the_same_bits(name: str, tmp_path: Path) -> None:
    what = scenario(
        algorithm={"name": name, "perturbations": 3, "local_steps": 2, "local_learning_rate": 0.01},
        participation={"clients": 8, "cohort": 4, "deadline_s": 0.4, "late": {"discount": 0.5}},
        faults=[{"fault": "drop", "probability": 0.1}, {"fault": "crash", "probability": 0.1}],
        lag={"snapshot_after_commits": 5},
    )
    alone = run(what, tmp_path / "alone")
    assert outcome(run(what, tmp_path / "workers", placement=Placement("ipc", 2))) == outcome(alone)
    assert replay(tmp_path / "alone").replica.digest() == alone.summary["digest"]
    assert alone.rounds["late"].sum() > 5 and alone.summary["refusals"] == {}


@pytest.mark.slow
def test_shared_directions_take_robust_rules_exact_sums_and_masks(tmp_path: Path) -> None:
    fields = {"name": "fedscalar-shared", "perturbations": 4, "local_learning_rate": 0.01}
    everybody: dict[str, Any] = {"participation": {"clients": 4, "cohort": 4, "quorum": 3}, "stop": {"rounds": 3}}
    whole = fields | {"arithmetic": "integer", "precision": "int32"}
    plain = run(scenario(algorithm=whole, **everybody), tmp_path / "plain")
    masked = run(scenario(algorithm=whole, secure_aggregation={"threshold": 0.6}, **everybody), tmp_path / "masked")
    assert masked.summary["digest"] == plain.summary["digest"]
    median = run(scenario(algorithm=fields | {"aggregation": "median"}, **everybody), tmp_path / "median")
    assert median.summary["version"] == 3


@pytest.mark.parametrize("name", BOTH)
def test_a_client_declines_a_projection_that_its_format_cannot_hold(name: str) -> None:
    algorithm = make(name, **FIELDS | {"precision": "float16", "local_learning_rate": 1e7, "local_steps": 1})
    with pytest.raises(Declined, match="float16 holds no more than"):
        algorithm.local(algorithm.replica(x0(DIMENSION)), None, algorithm.plan(0, 0, 7), Quadratic(DIMENSION, 0, 0))


def test_an_objective_without_a_gradient_is_named() -> None:
    class Steep:
        point, key = np.zeros(DIMENSION, np.float32), 7

    algorithm = make("fedscalar", **FIELDS)
    with pytest.raises(TypeError, match="Steep has no gradient, which algorithm fedscalar needs"):
        algorithm.local(algorithm.replica(x0(DIMENSION)), None, algorithm.plan(0, 0, 7), Steep())
