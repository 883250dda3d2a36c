"""Instruments on finished runs: H against a known diagonal, and clients apart."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from worlds import DECOMFL, HISO, go, scenario

from seedbus.agents.seeds import of_directions
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.hiso_curvature import HiSoCurvature
from seedbus.algorithms.scalar_only.hizoo import HiZOO
from seedbus.algorithms.scalar_only.lozo import LOZO
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.divergence import cka, divergence, gram
from seedbus.studies.analysis.hessian import hessian
from seedbus.studies.analysis.spectrum import spectrum
from seedbus.studies.analysis.subject import NotHere, Subject
from seedbus.studies.analysis.whitening import whitening

RING = {"kind": "gossip", "graph": "ring"}


def subject(folder: Path, what: Scenario, **effort: Any) -> Subject:
    """Run a scenario and return it as instruments see it."""
    go(folder, what)
    return Subject.of(folder, [], Effort(**effort), Meter(is_quiet=True))


@pytest.mark.slow
def test_an_h_that_is_the_diagonal_is_found_to_be_it_and_one_that_is_not_is_like_its_null(tmp_path: Path) -> None:
    run = subject(tmp_path / "run", scenario(algorithm=HISO), nulls=10)
    (model,) = run.models
    curvature: Any = run.problem
    fields = model.replayed.replica.fields

    fields["hessian"][:] = curvature.curvature
    (found,) = hessian(run).facts["rounds"]
    assert found["correlation_with_the_diagonal"] == pytest.approx(1)
    assert found["null"]["correlation_with_the_diagonal"]["high"] < 0.3
    (zetas,) = whitening(run).facts["rounds"]
    assert zetas["zeta"]["value"] == pytest.approx(300, rel=1e-5)  # a perfect H: ζ = d
    assert zetas["zeta_at_equal_lengths"]["value"] < 0.8 * zetas["null"]["low"]
    assert zetas["null"]["low"] < zetas["Lkappa"]["value"] < zetas["null"]["high"]

    fields["hessian"][:] = model.null_hessians[3]
    (found,) = hessian(run).facts["rounds"]
    for name, null in found["null"].items():
        assert null["low"] <= found[name] <= null["high"]


def test_what_h_does_to_a_quadratic_is_what_the_equations_say(tmp_path: Path) -> None:
    small: dict[str, Any] = {"task": {"name": "quadratic", "dimension": 40}, "stop": {"rounds": 3}, "verify": False}
    run = subject(tmp_path / "run", scenario(algorithm=HISO, **small), nulls=3)
    problem: Any = run.problem
    (model,) = run.models
    sizes, h = problem.curvature.astype(np.float64), model.replayed.replica.fields["hessian"].astype(np.float64)
    (zetas,) = whitening(run).facts["rounds"]

    def at_equal_lengths(h: Any) -> float:
        return float((sizes / h).sum() / (1 / h).mean())

    assert zetas["Ld"] == pytest.approx(40 * sizes.max()) and zetas["Lkappa"]["value"] == pytest.approx(sizes.sum())
    assert zetas["zeta"]["value"] == pytest.approx((sizes / h).sum(), rel=1e-5)
    assert zetas["zeta_at_equal_lengths"]["value"] == pytest.approx(at_equal_lengths(h), rel=1e-5)
    found = [at_equal_lengths(each) for each in model.null_hessians]
    assert tuple(zetas["null"].values()) == pytest.approx((np.mean(found), min(found), max(found)))

    (against,) = hessian(run).facts["rounds"]
    spreads = [each.std() / each.mean() for each in model.null_hessians]
    assert against["spread"] == pytest.approx(h.std() / h.mean())
    assert tuple(against["null"]["spread"].values()) == pytest.approx((np.mean(spreads), min(spreads), max(spreads)))
    with problem.derivatives(model.point, 1) as derivatives:
        squares = derivatives.gradient() ** 2
    for name, other in (("diagonal", sizes), ("squared_gradient", squares)):
        assert against[f"correlation_with_the_{name}"] == pytest.approx(spearmanr(h, other).statistic)
    assert against["spread_by_formula"] == run.results.lines[-1]["hessian_cv_null"]
    with pytest.raises(NotHere, match="--set nulls=1 or more"):
        hessian(Subject.of(run.folder, [], Effort(nulls=0), run.meter))


def test_h_without_a_signal_after_some_rounds_is_that_of_a_run_of_so_many(tmp_path: Path) -> None:
    small: dict[str, Any] = {"algorithm": HISO, "verify": False}
    short = subject(tmp_path / "short", scenario(stop={"rounds": 2}, **small), nulls=2)
    folder = go(tmp_path / "long", scenario(stop={"rounds": 20}, **small)).folder
    long = Subject.of(folder, [20, 2], Effort(nulls=2), Meter(is_quiet=True))
    assert [model.round for model in long.models] == [2, 20]
    (one, other), (same, another) = long.models[0].null_hessians, short.models[0].null_hessians
    assert np.array_equal(one, same) and np.array_equal(other, another) and not np.array_equal(one, other)
    for each in long.models[1].null_hessians:  # commits along one direction would spread by half as much again
        assert each.std() / each.mean() < 1.2 * long.results.lines[-1]["hessian_cv_null"]


@pytest.mark.slow
def test_h_without_a_signal_is_the_same_in_every_analysis_and_another_in_every_draw(tmp_path: Path) -> None:
    run = subject(tmp_path / "run", scenario(algorithm=HISO, stop={"rounds": 60}, verify=False), nulls=5)
    (model,) = run.models
    spreads = [each.std() / each.mean() for each in model.null_hessians]
    again = Subject.of(run.folder, [], run.effort, run.meter).models[0].null_hessians
    assert all(np.array_equal(one, other) for one, other in zip(model.null_hessians, again, strict=True))
    assert len({each.tobytes() for each in model.null_hessians}) == 5
    assert max(spreads) < 1.5 * min(spreads)


def test_a_model_that_is_not_finite_has_nothing_to_measure(tmp_path: Path) -> None:
    run = subject(tmp_path / "run", scenario(stop={"rounds": 2}, verify=False))
    run.models[0].replayed.replica.x[:] = np.nan
    with pytest.raises(NotHere, match="the model of round 2 are not finite numbers"):
        spectrum(run)
    with pytest.raises(NotHere, match="fewer than two clients can be trained from the model of round 2"):
        divergence(run)


def test_an_algorithm_need_not_tell_what_local_steps_lead_to(tmp_path: Path) -> None:
    class Untold(DeComFL):
        trained: ClassVar[Any] = None

    run = subject(tmp_path / "run", scenario(stop={"rounds": 2}, verify=False))
    run.algorithm = Untold()
    with pytest.raises(NotHere, match="decomfl does not tell what local steps lead to: it has no `trained`"):
        divergence(run)


def test_half_of_the_trace_of_a_hessian_of_zeros_needs_no_eigenvalue(tmp_path: Path) -> None:
    run = subject(tmp_path / "run", scenario(stop={"rounds": 2}, verify=False))
    curvature: Any = run.problem
    curvature.curvature[:] = 0
    (found,) = spectrum(run).facts["rounds"]
    assert (found["half_of_trace"], found["effective_rank"]["value"], found["absolute_trace"]["value"]) == (0, 0, 0)


def test_what_a_spectrum_and_clients_apart_say_is_what_their_definitions_say(tmp_path: Path) -> None:
    small: dict[str, Any] = {"task": {"name": "quadratic", "dimension": 60}, "stop": {"rounds": 2}, "verify": False}
    run = subject(tmp_path / "run", scenario(algorithm=DECOMFL | {"local_steps": 3}, **small))
    problem: Any = run.problem
    (model,) = run.models
    values = np.sort(problem.curvature.astype(np.float64))[::-1]
    (found,) = spectrum(run).facts["rounds"]
    assert (found["highest"], found["lowest"]) == pytest.approx((values[0], values[-1]), rel=1e-5)
    assert found["absolute_trace"]["value"] == found["trace"]["value"] == pytest.approx(values.sum(), rel=1e-5)
    assert found["effective_rank"]["value"] == pytest.approx(values.sum() / values[0], rel=1e-5)
    fewest = int((np.cumsum(values) < values.sum() / 2).sum()) + 1
    assert fewest - 1 < found["half_of_trace"] <= fewest < values.size / 2

    plan, cohort = run.algorithm.plan(2, 2, of_directions(run.scenario.seed, 2)), run.stored[-1].cohort
    objectives = [problem.objective(client, 2) for client in cohort]
    algorithm: Any = run.algorithm
    own = [algorithm.trained(model.replayed.replica, None, plan, objective) for objective in objectives]
    moves = np.array(own, np.float64) - np.asarray(model.point, np.float64)
    cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in combinations(moves, 2)]
    (found,) = divergence(run).facts["rounds"]
    assert found["clients"] == len(cohort) == 3
    assert found["cosine"] == pytest.approx(np.mean(cosines)) and -1 < found["cosine"] < 1
    assert found["move"] == pytest.approx(np.sqrt((moves.mean(axis=0) ** 2).sum()))
    apart = [np.sqrt(((move - moves.mean(axis=0)) ** 2).sum()) for move in moves]
    assert found["divergence"] == pytest.approx(np.mean(apart))
    (of_two,) = divergence(Subject.of(run.folder, [], Effort(clients=2), run.meter)).facts["rounds"]
    assert (of_two["clients"], of_two["cosine"]) == (2, pytest.approx(cosines[0]))


def test_linear_cka_knows_rotations_scales_and_strangers() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    features = rng.standard_normal((200, 12)) @ rng.standard_normal((12, 12)) + 5
    other = rng.standard_normal((200, 7))
    rotation = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    assert cka(gram(features), gram(features)) == pytest.approx(1)
    assert cka(gram(features), gram(-3 * features @ rotation + 2)) == pytest.approx(1)
    assert cka(gram(features), gram(other)) < 0.2
    one, two = (each - each.mean(axis=0) for each in (features, other))
    by_features = np.linalg.norm(two.T @ one) ** 2 / (np.linalg.norm(one.T @ one) * np.linalg.norm(two.T @ two))
    assert cka(gram(features), gram(other)) == pytest.approx(by_features)


@pytest.mark.parametrize(
    "algorithm",
    [
        DeComFL(perturbations=3, local_steps=3, momentum=0.5, learning_rate=0.05),
        DeComFL(perturbations=3, local_steps=2, arithmetic="integer", precision="int32"),
        HiSo(perturbations=4, local_steps=3),
        HiSoCurvature(perturbations=4, local_steps=3, estimator="curvature"),
        HiZOO(perturbations=4, alpha=0.1),
        LOZO(perturbations=3, local_steps=3, rank=1).sized(70, [(10, 7)]),
    ],
    ids=["decomfl", "integer", "hiso", "hiso-curvature", "hizoo", "lozo"],
)
def test_a_clients_own_model_is_what_a_commit_of_its_report_alone_makes(algorithm: Any) -> None:
    problem = Quadratic(dimension=70).bind(seed=1, clients=2, partition=Iid())
    replica = algorithm.replica(problem.x0())
    plan, objective = algorithm.plan(0, 0, 12345), problem.objective(1, 0)
    before = replica.digest()
    own = algorithm.trained(replica, None, plan, objective)
    assert replica.digest() == before
    report, _ = algorithm.local(replica, None, plan, objective)
    commit, _ = algorithm.aggregate(algorithm.first_state(problem.x0), plan, {1: report})
    algorithm.apply(replica, [commit])
    assert np.array_equal(own, algorithm.point(replica))


def test_a_dense_clients_own_model_is_its_start_and_its_update() -> None:
    problem = Quadratic(dimension=70).bind(seed=1, clients=2, partition=Iid())
    algorithm: Any = FedAvg(local_steps=4).sized(70)
    replica, objective = algorithm.replica(problem.x0()), problem.objective(1, 0)
    plan = algorithm.plan(0, 0, 1)
    report, _ = algorithm.local(replica, None, plan, objective)
    own = algorithm.trained(replica, None, plan, objective)
    assert np.array_equal(own - replica.x, report.vectors[0])


def test_clients_move_from_what_they_were_sent_and_not_from_what_was_evaluated(tmp_path: Path) -> None:
    quadratic: dict[str, Any] = {"task": {"name": "quadratic", "dimension": 60}, "verify": False}
    fedacg = {"name": "fedacg", "local_steps": 1, "learning_rate": 0.001, "proximal": 0}
    run = subject(tmp_path / "run", scenario(algorithm=fedacg, stop={"rounds": 5}, **quadratic))
    problem: Any = run.problem
    sent = run.models[0].replayed.replica.x
    cohort = run.stored[-1].cohort
    steps = [0.001 * problem.curvature * (problem.center(client) - sent) for client in cohort]
    (found,) = divergence(run).facts["rounds"]
    assert found["move"] == pytest.approx(np.linalg.norm(np.mean(steps, axis=0)), rel=1e-3)
    assert not np.allclose(run.models[0].point, sent, atol=1e-4)


@pytest.mark.parametrize("kind", ["shifted", "gossip", "mislabelled"])
def test_clients_move_as_the_directions_and_labels_of_the_run_moved_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean over clients of what one step moves is what the commits of that round have moved."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(b"0123456789abcdef")
    monkeypatch.setenv("SEEDBUS_SEED_SECRET", str(secret))
    integer = {"name": "decomfl", "arithmetic": "integer", "perturbations": 3, "learning_rate": 0.01}
    there: dict[str, Any] = {"algorithm": DECOMFL | {"momentum": 0}, "seed_shift": True}
    between = {"algorithm": integer, "participation": {"clients": 4}, "topology": RING, "network": {}}
    digits = {"name": "digits", "model": "softmax", "batch_size": 8}
    wrong = {"task": digits, "algorithm": DECOMFL | {"momentum": 0}, "faults": [{"fault": "label-flip"}]}
    changes = {"shifted": there, "gossip": between | {"verify": False}, "mislabelled": wrong}
    what = scenario(stop={"rounds": 3}, **changes[kind])
    folder = go(tmp_path / "run", what).folder
    run = Subject.of(folder, [0, 1, 2], Effort(), Meter(is_quiet=True))
    points = [np.asarray(model.point, np.float64) for model in run.models]
    for found, (before, after) in zip(divergence(run).facts["rounds"], pairwise(points), strict=False):
        assert found["clients"] == len(run.stored[found["round"]].reported) > 1
        assert found["move"] == pytest.approx(np.linalg.norm(after - before), rel=1e-3)


@pytest.mark.slow
def test_a_masked_run_has_curvature_by_its_coordinates_and_cka_by_its_whole_network(tmp_path: Path) -> None:
    digits = {"task": {"name": "digits", "model": "cnn"}, "mask": {"rule": "random", "density": 0.01}}
    run = subject(tmp_path / "run", scenario(stop={"rounds": 2}, **digits), samples=60, test_samples=40)
    assert spectrum(run).facts["dimension"] == 19
    (found,) = divergence(run).facts["rounds"]
    problem: Any = run.problem
    (model,) = run.models
    plan, inside = run.algorithm.plan(2, 2, of_directions(run.scenario.seed, 2)), problem.inside
    chosen = np.linspace(0, inside.splits["test"].labels.size - 1, 40).astype(np.int64)
    inputs, _ = inside.tensors(inside.splits["test"], chosen)
    logits = []
    for client in run.stored[-1].cohort:
        algorithm: Any = run.algorithm
        own = algorithm.trained(model.replayed.replica, None, plan, problem.objective(client, 2))
        with torch.no_grad(), inside.flat.at(problem.whole(own)):
            logits.append(gram(inside.flat.module(inputs).double().numpy()))
    assert found["cka"][-1] == pytest.approx(np.mean([cka(*pair) for pair in combinations(logits, 2)]), abs=1e-6)
    assert len(found["cka"]) == 3
