"""Late reports and buffered aggregation of dense updates: FedBuff's equation, and the same bits in one process and in
two."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make
from numpy.typing import NDArray
from worlds import scenario

from seedbus.algorithms.contract import BadPayload, LateReports, ReportRefused
from seedbus.algorithms.dense.payloads import DenseReport
from seedbus.algorithms.dense.server import State
from seedbus.bus import EVALUATOR, Kind, read_ledger
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.running.run import run

D = 11


def report_of(client: int, round: int, samples: int = 3) -> DenseReport:
    vectors = np.random.default_rng([client, round]).normal(size=(1, D)).astype(np.float32)
    return DenseReport(samples, vectors, [[]], np.zeros(0, np.float32))


def test_a_buffer_of_updates_is_fedbuffs_step() -> None:
    """Algorithm 1 of Nguyen et al. (arXiv:2106.06639): w ← w + η_g·(1/K) Σ s(τ_i)·Δ_i, s(τ) = (1 + τ)^−½, K = 5.

    Two reports are fresh, two are one commit old and one is four commits old.
    """
    algorithm = make("fedavg", weighting="uniform", server_learning_rate=0.7).sized(D)
    start = np.linspace(-1, 1, D).astype(np.float32)
    fresh, one, four = (
        {3: report_of(3, 9), 0: report_of(0, 9)},
        {5: report_of(5, 8), 1: report_of(1, 8)},
        {2: report_of(2, 5)},
    )
    stale: list[tuple[int, dict[int, DenseReport]]] = [(1, one), (4, four)]
    late = [LateReports(algorithm.plan(9 - t, 9 - t, 0), each, (1 + t) ** -0.5 / 5) for t, each in stale]
    plan = algorithm.plan(9, 9, 0)
    commit, _ = algorithm.aggregate(algorithm.first_state(start.copy), plan, fresh, share=2 / 5, late=late, members=8)
    expected: NDArray[np.float64] = start.astype(np.float64)
    for staleness, reports in [(0, fresh), *stale]:
        for report in reports.values():
            expected = expected + 0.7 / 5 / math.sqrt(1 + staleness) * report.vectors[0].astype(np.float64)
    assert np.abs(commit.fields[0] - expected).max() < 1e-6
    backwards = dict(reversed(fresh.items()))
    again, _ = algorithm.aggregate(algorithm.first_state(start.copy), plan, backwards, share=2 / 5, late=late)
    assert bits(again) == bits(commit)


def test_a_late_report_has_its_weight_and_that_of_its_samples_beside_the_mean_number() -> None:
    fresh, late = {i: report_of(i, 1, samples) for i, samples in ((0, 1), (1, 3), (2, 4))}, {4: report_of(4, 0, 12)}
    rows = {client: report.vectors[0].astype(np.float64) for client, report in (fresh | late).items()}
    for weighting, own, relative in (
        ("samples", (rows[0] + 3 * rows[1] + 4 * rows[2]) / 8, 12 / 5),
        ("uniform", (rows[0] + rows[1] + rows[2]) / 3, 1),
    ):
        algorithm = make("fedavg", weighting=weighting).sized(D)
        plan, overdue = algorithm.plan(1, 1, 0), [LateReports(algorithm.plan(0, 0, 0), late, 0.25)]
        state = algorithm.first_state(lambda: np.zeros(D, np.float32))
        commit, _ = algorithm.aggregate(state, plan, fresh, late=overdue)
        assert np.abs(commit.fields[0] - (own + 0.25 * relative * rows[4])).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "memory", "kept", "scale"),
    [
        ("feddyn", "feddyn.h", "feddyn.s", 0.1),
        ("feddc", "feddc.h", "feddc.h", 1),
        ("zone-s", "zone-s.lambda", "zone-s.s", 1),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [{}, {"compression": {"kind": "qsgd", "levels": 3}}, {"weighting": "samples"}],
    ids=["whole", "compressed", "by samples"],
)
def test_what_the_server_tracks_is_the_mean_of_what_clients_remember(
    name: str, memory: str, kept: str, scale: float, fields: dict[str, Any]
) -> None:
    """Four clients, of which one is late in every other round; with a codec the memories are of what it brings."""
    algorithm: Any = make(name, local_steps=2, **fields).sized(D)
    problem = Quadratic(dimension=D).bind(seed=1, clients=4, partition=Iid())
    replica, state = algorithm.replica(problem.x0()), algorithm.first_state(problem.x0)
    memories: list[Any] = [None] * 4
    overdue: list[LateReports] = []
    for round in range(6):
        plan, reports = algorithm.plan(round, round, round), {}
        for client in range(4):
            report, memories[client] = algorithm.local(
                replica, memories[client], plan, problem.objective(client, round)
            )
            reports[client] = replace(report, samples=1 + client)
        late, overdue = overdue, [LateReports(plan, {3: reports.pop(3)}, 0.125)] if round % 2 else []
        commit, state = algorithm.aggregate(state, plan, reports, share=len(reports) / 4, late=late, members=4)
        algorithm.apply(replica, [commit])
    commit, state = algorithm.aggregate(state, algorithm.plan(6, 6, 6), {}, late=overdue, members=4)
    remembered = np.mean([np.frombuffer(each[memory], "<f4") for each in memories], axis=0)
    found = scale * State.unpack(state).own[kept]
    assert np.abs(found - remembered).max() < 1e-4 * np.abs(remembered).max() and np.abs(remembered).max() > 1e-3


@pytest.mark.parametrize("compression", [None, {"kind": "top-k", "fraction": 0.3}], ids=["whole", "compressed"])
def test_scaffolds_c_is_the_mean_of_the_clients(compression: Any) -> None:
    algorithm: Any = make("scaffold", compression=compression, local_steps=2).sized(D)
    problem = Quadratic(dimension=D).bind(seed=1, clients=3, partition=Iid())
    replica, state, memories = algorithm.replica(problem.x0()), algorithm.first_state(problem.x0), [None] * 3
    for round in range(4):
        plan, reports = algorithm.plan(round, round, round), {}
        for client in range(3):
            reports[client], memories[client] = algorithm.local(
                replica, memories[client], plan, problem.objective(client, round)
            )
        commit, state = algorithm.aggregate(state, plan, reports, members=3)
        algorithm.apply(replica, [commit])
    remembered: Any = np.mean([np.frombuffer(each["scaffold.c"], "<f4") for each in memories], axis=0)  # type: ignore[index]
    assert np.abs(replica.fields["scaffold.c"] - remembered).max() < 1e-5 and np.abs(remembered).max() > 1e-3


def test_a_number_beside_a_late_update_has_its_weight() -> None:
    """FedNova's step is the mean work of all reports times Σ ω_i Δ_i/‖a_i‖₁, whatever the sum of all ω_i."""
    algorithm = make("fednova", weighting="uniform").sized(D)
    work = {0: 2.0, 1: 5.0, 2: 9.0}
    reports = {client: replace(report_of(client, 9), measured=np.array([work[client]], np.float32)) for client in work}
    old = {2: reports.pop(2)}
    plan, late = algorithm.plan(9, 9, 0), [LateReports(algorithm.plan(8, 8, 0), old, 0.25)]
    start = np.zeros(D, np.float32)
    commit, _ = algorithm.aggregate(algorithm.first_state(start.copy), plan, reports, share=2 / 3, late=late, members=8)
    weights = {0: 1 / 3, 1: 1 / 3, 2: 0.25}
    mean = sum(weights[client] * work[client] for client in work) / sum(weights.values())
    step = sum(weights[client] * report.vectors[0].astype(np.float64) for client, report in (reports | old).items())
    assert np.abs(commit.fields[0] - mean * step).max() < 1e-5


WEIGHTS = pytest.mark.parametrize(("share", "weight"), [(1.0, 0.25), (3 / 4, 1 / 8)], ids=["late", "buffer"])


def with_a_late_one(algorithm: Any, share: float, weight: float, numbers: int = 0) -> tuple[Any, NDArray[np.float64]]:
    """Return the commit of three reports and a late one, from zeros, and Σ ω_i Δ_i. Their `numbers` are ‖Δ_i‖²."""
    reports = {client: report_of(client, 9) for client in range(4)}
    rows = {client: report.vectors[0].astype(np.float64) for client, report in reports.items()}
    reports = {
        client: replace(report, measured=np.array([rows[client] @ rows[client]] * numbers, np.float32))
        for client, report in reports.items()
    }
    late = [LateReports(algorithm.plan(8, 8, 0), {3: reports.pop(3)}, weight)]
    state = algorithm.first_state(lambda: np.zeros(D, np.float32))
    commit, _ = algorithm.aggregate(state, algorithm.plan(9, 9, 0), reports, share=share, late=late, members=8)
    return commit, share / 3 * (rows[0] + rows[1] + rows[2]) + weight * rows[3]


@WEIGHTS
def test_fedcms_direction_is_a_mean_whatever_the_sum_of_the_weights(share: float, weight: float) -> None:
    """A sum of weights above 1/(1 − α) would multiply the direction by more than 1 in every round."""
    commit, step = with_a_late_one(make("fedcm", weighting="uniform", learning_rate=0.5).sized(D), share, weight)
    assert np.abs(commit.fields[0] - step).max() < 1e-6
    assert np.abs(commit.fields[1] + step / (share + weight) / 0.5).max() < 1e-6


@WEIGHTS
def test_fedexps_rate_is_that_of_means_whatever_the_sum_of_the_weights(share: float, weight: float) -> None:
    commit, step = with_a_late_one(make("fedexp", epsilon=1e-6).sized(D), share, weight, numbers=1)
    rows = [report_of(client, 9).vectors[0].astype(np.float64) for client in range(4)]
    square = (share / 3 * sum(row @ row for row in rows[:3]) + weight * rows[3] @ rows[3]) / (share + weight)
    mean = step / (share + weight)
    rate = square / (2 * (mean @ mean + 1e-6))
    assert rate > 1.1
    assert np.abs(commit.fields[0] - rate * step).max() < 1e-5


def test_a_method_gets_each_report_with_its_plan_and_a_late_one_is_its_clients_last() -> None:
    """Client 0 answers rounds 0 and 2 in one commit: round 2 is its last. Client 1 is late, and client 2 is away."""
    algorithm = make("mifa", learning_rate=0.5, decay=0.5).sized(D)
    plans = [algorithm.plan(round, round, round) for round in range(3)]
    first = {2: report_of(2, 0)}
    _, state = algorithm.aggregate(
        algorithm.first_state(lambda: np.zeros(D, np.float32)), plans[0], first, share=1 / 3, members=3
    )
    late = [LateReports(plans[0], {0: report_of(0, 0)}, 0.25), LateReports(plans[1], {1: report_of(1, 1)}, 0.5)]
    commit, state = algorithm.aggregate(state, plans[2], {0: report_of(0, 2)}, share=0.25, late=late, members=3)
    rates = [0.5, 0.25, 0.125]
    last = [report_of(client, round).vectors[0] / rates[round] for client, round in ((0, 2), (1, 1), (2, 0))]
    expected = report_of(2, 0).vectors[0] + rates[2] * np.mean(last, axis=0, dtype=np.float64)
    assert np.abs(commit.fields[0] - expected).max() < 1e-6
    assert len(State.unpack(state).own) == 3


def test_a_late_report_replaces_no_newer_one_of_its_client() -> None:
    """The report of round 0 is overtaken by that of round 1, and comes into the commit of round 2."""
    algorithm = make("mifa", learning_rate=0.5).sized(D)
    plans = [algorithm.plan(round, round, round) for round in range(9, 12)]  # 9 is before 10, and not after it
    commits: list[NDArray[np.float64]] = []
    state = algorithm.first_state(lambda: np.zeros(D, np.float32))
    for reports, late in (
        ({0: report_of(0, 1)}, []),
        ({1: report_of(1, 2)}, [LateReports(plans[0], {0: report_of(0, 0)}, 0.25)]),
    ):
        plan = plans[1 + len(commits)]
        commit, state = algorithm.aggregate(state, plan, reports, late=late, members=2)
        commits.append(commit.fields[0].astype(np.float64))
    last = [report_of(0, 1).vectors[0], report_of(1, 2).vectors[0]]
    assert np.abs(commits[1] - commits[0] - np.mean(last, axis=0, dtype=np.float64)).max() < 1e-6
    assert len(State.unpack(state).own) == 2


@pytest.mark.parametrize(("number", "why"), [(math.inf, "not finite"), (math.nan, "not finite"), (-2e12, "of 2e")])
def test_an_impossible_number_is_refused_and_a_forged_length_is_a_bad_payload(number: float, why: str) -> None:
    algorithm = make("fedexp").sized(D)
    plan, report = algorithm.plan(0, 0, 0), report_of(0, 0)
    body = algorithm.pack_report(plan, replace(report, measured=np.ones(1, np.float32))).body
    assert algorithm.work(0).scalars == D + 1
    with pytest.raises(ReportRefused, match=why):
        algorithm.check(plan, replace(report, measured=np.array([number], np.float32)))
    for forged in (body[:-1], [*body[:-1], b""], [*body[:-1], bytes(8)], [*body, bytes(4)]):
        with pytest.raises(BadPayload):
            algorithm.unpack_report(forged, plan)


# bytes


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("fedavg", 1, 1),
        ("fedacg", 1, 1),
        ("fedadam", 1, 1),
        ("feddyn", 1, 1),
        ("fednova", 1, 1),
        ("fedcm", 2, 1),
        ("feddc", 2, 2),
        ("scaffold", 2, 2),
    ],
)
def test_every_vector_that_is_sent_is_in_the_ledger(tmp_path: Path, name: str, down: int, up: int) -> None:
    """Four clients, ten rounds, 300 coordinates. No model is sent in the first round because all clients have x₀."""
    run(
        scenario(algorithm={"name": name}, participation={"clients": 4}, stop={"rounds": 10}, verify=False),
        tmp_path / "run",
    )
    rows = read_ledger(tmp_path / "run" / "messages")
    size, own = rows["payload_bytes"], (rows["sender"] != EVALUATOR) & (rows["recipient"] != EVALUATOR)
    plans, reports = (int(size[own & (rows["kind"] == kind)].sum()) for kind in (Kind.PLAN, Kind.REPORT))
    assert plans == pytest.approx(down * 4 * 9 * 1200, rel=0.03)
    assert reports == pytest.approx(up * 4 * 10 * 1200, rel=0.03)
