"""The contract of every algorithm. An algorithm joins this suite by being a file in the folder."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import algorithm_cases
import msgpack
import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, Log, Rehearsal, bits, make, objective, over_the_wire, x0
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seedbus.algorithms.contract import CommitGap, Replica, ReportRefused
from seedbus.algorithms.directions import set_threads
from seedbus.algorithms.directions.blocks import BLOCK
from seedbus.algorithms.scalar_only.precision import FORMATS
from seedbus.scenarios.schema.discovery import ALGORITHMS

CASES = [pytest.param(make(name), id=name) for name in ALGORITHMS.all()] + [
    pytest.param(make(name, **hyperparameters), id=f"{name}-{case}")
    for name, cases in CONFIGURATIONS.items()
    for case, hyperparameters in cases.items()
]
ROUNDS = 7
each_algorithm = pytest.mark.parametrize("algorithm", CASES)


@pytest.fixture(params=CASES, scope="module")
def run(request: pytest.FixtureRequest) -> Rehearsal:
    """Seven rounds of three clients, or of one client for single-client algorithms."""
    clients = min(3, getattr(request.param, "most_clients", None) or 3)
    return algorithm_cases.rehearse(request.param, ROUNDS, clients=clients)


@pytest.fixture
def blocks_and_threads() -> Iterator[None]:
    yield
    algorithm_cases.set_block(BLOCK)
    set_threads(1)


def newcomer(run: Rehearsal) -> Replica:
    replica: Replica = run.algorithm.replica(x0())
    return replica


def spoiled(algorithm: Any, report: Any, value: float) -> Any:
    """Return a copy of a report with one number replaced."""
    wrong = np.array(algorithm.values(report))
    wrong.flat[-1] = value
    return algorithm.with_values(report, wrong)


def of_shape(report: Any, values: Any) -> Any:
    if isinstance(report, np.ndarray):
        return values
    return dataclasses.replace(report, **{"scalars" if hasattr(report, "scalars") else "vectors": values})


# description and fields


def test_every_algorithm_of_the_papers_is_discovered() -> None:
    averaging = {"fedavg", "fedavgm", "fedprox", "fedacg", "feddyn", "fedcm", "feddc", "scaffold"}
    adaptive = {"fedadam", "fedyogi", "fedadagrad"}
    assert {"decomfl", "hiso", "mezo", "fedkseed", "fedzo", "dzopa", "zone-s"} | averaging | adaptive <= set(
        ALGORITHMS.all()
    )
    assert set(CONFIGURATIONS) <= set(ALGORITHMS.all())


@each_algorithm
def test_an_algorithm_is_frozen(algorithm: Any) -> None:
    for field in type(algorithm).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(algorithm, field, getattr(algorithm, field))


@each_algorithm
def test_an_algorithm_refuses_an_unknown_field(algorithm: Any) -> None:
    with pytest.raises(ValidationError, match=r"(?s)learning_rat\b.*Extra inputs"):
        type(algorithm)(learning_rat=0.1)


@each_algorithm
def test_an_algorithm_and_every_field_have_a_description(algorithm: Any) -> None:
    assert "arXiv" in (type(algorithm).__doc__ or "")
    assert algorithm.name in ALGORITHMS.all()
    for name, field in type(algorithm).model_fields.items():
        assert name == "name" or field.description, f"{name} has no description"


@each_algorithm
def test_fields_survive_a_round_trip_as_text(algorithm: Any) -> None:
    assert type(algorithm).model_validate_json(algorithm.model_dump_json()) == algorithm


# local work


@each_algorithm
def test_a_replica_begins_as_a_copy_of_x0_at_version_0(algorithm: Any) -> None:
    start = x0()
    replica = algorithm.replica(start)
    assert replica.version == 0
    if getattr(algorithm, "arithmetic", "float") == "float":
        assert bits(replica.x) == bits(x0())
    else:  # rounded to the grid of its sums
        assert np.abs(algorithm.point(replica) - x0()).max() <= 2.0 ** -(algorithm.grid.unit_bits + 12)
    assert {field.shape for field in replica.fields.values()} == {(DIMENSION,)}
    for field in replica.fields.values():
        field += 1
    assert bits(start) == bits(x0())


def test_local_work_leaves_the_replica_untouched_and_is_deterministic(run: Rehearsal) -> None:
    replica = run.replica.copy()
    before = bits(replica)
    plan = run.algorithm.plan(ROUNDS, replica.version, 2**64 - 1)
    first, _ = run.algorithm.local(replica, None, plan, objective(run.algorithm, 4, ROUNDS))
    again, _ = run.algorithm.local(replica, None, plan, objective(run.algorithm, 4, ROUNDS))
    assert bits(first) == bits(again)
    assert bits(replica) == before
    run.algorithm.check(plan, first)


def test_local_work_evaluates_the_loss_as_often_as_declared(run: Rehearsal) -> None:
    for plan in run.plans:
        own = objective(run.algorithm, 0, plan.round)
        run.algorithm.local(run.replica, None, plan, own)
        passes = own.steps_an_epoch if getattr(plan, "epochs", 0) else 1
        assert own.evaluations == run.algorithm.evaluations(plan.round) * passes


def test_diagnostics_are_figures_that_leave_the_replica_untouched(run: Rehearsal) -> None:
    before = bits(run.replica)
    assert all(np.isfinite(figure) for figure in run.algorithm.diagnostics(run.replica).values())
    assert bits(run.replica) == before


# apply


def test_every_round_moves_every_field(run: Rehearsal) -> None:
    """Otherwise the rest of this file would prove nothing."""
    replica, moving = newcomer(run), set()
    for commit in run.commits:
        before = replica.digests()
        run.algorithm.apply(replica, [commit])
        moving |= {name for name, digest in replica.digests().items() if digest != before[name]}
        assert replica.digests()["x"] != before["x"]
    assert moving == set(replica.fields) - ({"hessian"} if getattr(run.algorithm, "nu", None) == 0 else set())


@settings(deadline=None, max_examples=8)
@given(cuts=st.sets(st.integers(1, ROUNDS - 1)), seen_again=st.integers(0, 2))
def test_commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks(
    run: Rehearsal, cuts: set[int], seen_again: int
) -> None:
    replica = newcomer(run)
    edges = [0, *sorted(cuts), ROUNDS]
    for first, last in itertools.pairwise(edges):
        run.algorithm.apply(replica, run.commits[max(first - seen_again, 0) : last])
    assert bits(replica) == bits(run.replica)
    assert replica.digest() == run.replica.digest()


def test_a_commit_folded_twice_changes_nothing(run: Rehearsal) -> None:
    replica = run.replica.copy()
    for commit in run.commits:
        run.algorithm.apply(replica, [commit])
    assert bits(replica) == bits(run.replica)
    late = newcomer(run)
    run.algorithm.apply(late, [commit for commit in run.commits for _ in range(2)])
    assert bits(late) == bits(run.replica)


@pytest.mark.parametrize("offered", [[2], [1, 3], [1, 2, 4], [3, 1, 2]])
def test_a_gap_is_refused_and_leaves_the_replica_untouched(run: Rehearsal, offered: list[int]) -> None:
    replica = newcomer(run)
    if run.algorithm.is_dense:  # a dense commit is a complete replica and needs no predecessor
        run.algorithm.apply(replica, [run.commits[version - 1] for version in offered])
        assert replica.version == max(offered)
        return
    with pytest.raises(CommitGap, match="is missing"):
        run.algorithm.apply(replica, [run.commits[version - 1] for version in offered])
    assert bits(replica) == bits(newcomer(run))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block", [128, 384, BLOCK])
def test_neither_blocks_nor_threads_change_a_bit(
    run: Rehearsal, block: int, threads: int, blocks_and_threads: None
) -> None:
    algorithm_cases.set_block(block)
    set_threads(threads)
    replica = newcomer(run)
    run.algorithm.apply(replica, run.commits)
    assert bits(replica) == bits(run.replica)
    plan = run.algorithm.plan(0, 0, algorithm_cases.seed_of(0))
    report, _ = run.algorithm.local(newcomer(run), None, plan, objective(run.algorithm, 0, 0))
    assert bits(report) == bits(run.reports[0][0])


def test_a_catch_up_brings_a_laggard_to_the_same_bits(run: Rehearsal) -> None:
    for version in (0, 3, ROUNDS - 1, ROUNDS):
        replica = newcomer(run)
        run.algorithm.apply(replica, run.commits[:version])
        missed = run.algorithm.pending(version, run.commits[version:])
        run.algorithm.apply(
            replica, run.algorithm.unpack_commits(over_the_wire(run.algorithm.pack_commits(missed).body))
        )
        assert replica.digest() == run.replica.digest()


def test_a_client_is_never_handed_the_servers_own_vectors(run: Rehearsal) -> None:
    """A client's changes to its replica change no commit, and so no other replica."""
    before = bits(run.commits)
    replica = newcomer(run)
    run.algorithm.apply(replica, run.commits)
    for field in replica.fields.values():
        field += 1
    assert bits(run.commits) == before


def test_another_process_replays_to_the_same_digests(tmp_path: Path) -> None:
    expected, paths = [], []
    for number, (algorithm,) in enumerate(case.values for case in CASES):
        run = algorithm_cases.rehearse(algorithm, 3, clients=1)
        path = tmp_path / str(number)
        path.write_bytes(Log(algorithm, DIMENSION, run.commits).pack())
        expected.append(run.replica.digest())
        paths.append(str(path))
    command = [sys.executable, algorithm_cases.__file__, "2", "256", *paths]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == expected


# the server


def test_the_order_of_arrival_does_not_change_a_commit(run: Rehearsal) -> None:
    for plan, reports, commit, state in zip(run.plans, run.reports, run.commits, run.states, strict=True):
        backwards = dict(reversed(reports.items()))
        assert bits(run.algorithm.aggregate(state, plan, backwards)[0]) == bits(commit)


def test_the_servers_state_survives_a_checkpoint(run: Rehearsal) -> None:
    for plan, reports, commit, state in zip(run.plans, run.reports, run.commits, run.states, strict=True):
        restored = msgpack.unpackb(msgpack.packb(state))
        assert bits(restored) == bits(state)
        assert bits(run.algorithm.aggregate(restored, plan, reports)[0]) == bits(commit)


def test_aggregating_leaves_state_and_reports_untouched(run: Rehearsal) -> None:
    before = bits(run.states), bits(run.reports)
    run.algorithm.aggregate(run.states[-1], run.plans[-1], run.reports[-1])
    assert (bits(run.states), bits(run.reports)) == before


def test_scalars_are_rounded_to_the_wire_format_everywhere(run: Rehearsal) -> None:
    """Reports and commits contain only numbers that the wire format represents exactly."""
    if run.algorithm.is_dense:
        received = [
            run.algorithm.unpack_report(over_the_wire(run.algorithm.pack_report(plan, r).body), plan)
            for plan, reports in zip(run.plans, run.reports, strict=True)
            for r in reports.values()
        ]
        sent = [report for reports in run.reports for report in reports.values()]
        assert [bits(report.vectors) for report in received] == [bits(report.vectors) for report in sent]
        return
    form = FORMATS[run.algorithm.precision]
    sent = [run.algorithm.values(report) for reports in run.reports for report in reports.values()]
    if run.algorithm.arithmetic == "integer":
        committed = []
        for commit in run.commits:
            numbers = [commit.numbers] if hasattr(commit, "numbers") else [term.scalars for term in commit.terms]
            assert {each.dtype.kind for each in numbers} == {"i"}
    else:
        committed = [term.scalars for commit in run.commits for term in commit.terms]
    for scalars in sent + committed:
        assert bits(form.widen(form.narrow(scalars))) == bits(scalars)


def test_a_commit_is_the_next_version_of_its_round(run: Rehearsal) -> None:
    assert [commit.version for commit in run.commits] == list(range(1, ROUNDS + 1))
    assert [commit.round for commit in run.commits] == list(range(ROUNDS))


@pytest.mark.parametrize(
    ("value", "reason"),
    [(np.nan, "not-finite"), (np.inf, "not-finite"), (-np.inf, "not-finite"), (1e38, "absurd"), (-1e38, "absurd")],
)
def test_a_report_that_would_poison_the_model_is_refused_with_its_reason(
    run: Rehearsal, value: float, reason: str
) -> None:
    wrong = spoiled(run.algorithm, run.reports[0][0], value)
    received = run.algorithm.unpack_report(
        over_the_wire(run.algorithm.pack_report(run.plans[0], wrong).body), run.plans[0]
    )
    with pytest.raises(ReportRefused) as refusal:
        run.algorithm.check(run.plans[0], received)
    is_narrow = getattr(run.algorithm, "precision", None) == "float16"
    assert refusal.value.reason == ("not-finite" if is_narrow else reason)


def test_a_report_of_another_shape_is_refused(run: Rehearsal) -> None:
    report = run.reports[0][0]
    values = run.algorithm.values(report)
    for wrong in (values[:-1], values.reshape(-1), np.concatenate([values, values])):
        with pytest.raises(ReportRefused) as refusal:
            run.algorithm.check(run.plans[0], of_shape(report, wrong))
        assert refusal.value.reason == "shape"


# the wire


def test_plans_reports_and_commits_survive_a_round_trip(run: Rehearsal) -> None:
    algorithm = run.algorithm
    for plan, reports in zip(run.plans, run.reports, strict=True):
        received_plan = algorithm.unpack_plan(over_the_wire(algorithm.pack_plan(plan).body), plan.round, plan.version)
        assert algorithm.pack_plan(received_plan) == algorithm.pack_plan(plan)
        assert (received_plan.round, received_plan.version) == (plan.round, plan.version)
        for report in reports.values():
            received_report = algorithm.unpack_report(
                over_the_wire(algorithm.pack_report(plan, report).body), received_plan
            )
            assert bits(received_report) == bits(report)
    for first in range(ROUNDS + 1):
        packed = algorithm.pack_log(run.commits[first:])
        assert bits(algorithm.unpack_commits(over_the_wire(packed.body))) == bits(run.commits[first:])


def test_a_flipped_bit_changes_the_digest_of_its_field(run: Rehearsal) -> None:
    for name in run.replica.fields:
        replica = run.replica.copy()
        replica.fields[name].view(np.uint32)[DIMENSION - 1] ^= 1
        differing = {key for key, digest in replica.digests().items() if digest != run.replica.digests()[key]}
        assert differing == {name}
        assert replica.digest() != run.replica.digest()
    assert dataclasses.replace(run.replica, version=1).digest() != run.replica.digest()
