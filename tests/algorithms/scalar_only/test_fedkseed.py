"""FedKSeed: the draws, the commits, and sums that take a client from any version to any other."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgpack
import numpy as np
import pytest
from algorithm_cases import DIMENSION, Rehearsal, bits, make, over_the_wire, rehearse, x0
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.contract import BadPayload, CommitGap, LateReports, Replica, ReportRefused
from seedbus.algorithms.directions import exact_reference
from seedbus.algorithms.scalar_only.exact import BUDGET
from seedbus.algorithms.scalar_only.fedkseed import drawn
from seedbus.algorithms.scalar_only.pool import (
    PoolCommit,
    PoolReport,
    added,
    pack_sum,
    summed,
    unpack_commits,
    width_of,
)

ROUNDS, POOL, POOL_SEED = 40, 32, 2**40 + 7


FIELDS: dict[str, Any] = {"pool": POOL, "seed": POOL_SEED, "perturbations": 5, "local_steps": 2}


@pytest.fixture(scope="module")
def run() -> Rehearsal:
    return rehearse(make("fedkseed", **FIELDS, learning_rate=0.3), ROUNDS)


def reached(run: Rehearsal, *versions: int) -> Replica:
    """Return a replica that catches up to each of these versions, each time by what it would be sent."""
    replica: Replica = run.algorithm.replica(x0())
    for version in versions:
        missed = run.algorithm.pack_commits(run.commits[replica.version : version]).body
        run.algorithm.apply(replica, run.algorithm.unpack_commits(over_the_wire(missed)))
        assert replica.version == version
    return replica


def direction(index: int) -> Any:
    """Return a direction of the pool, [d]."""
    z = np.empty(DIMENSION, np.float32)
    exact_reference("gaussian").fill(z, seed=POOL_SEED, step=0, perturbation=index)
    return z.astype(np.float64)


@settings(max_examples=30)
@given(stops=st.sets(st.integers(1, ROUNDS - 1)))
def test_a_client_that_was_sent_sums_holds_the_bits_of_one_that_folded_every_commit(
    run: Rehearsal, stops: set[int]
) -> None:
    assert bits(reached(run, *sorted(stops), ROUNDS)) == bits(run.replica)


def test_what_was_missed_never_takes_more_than_a_number_for_each_direction(run: Rehearsal) -> None:
    sizes = [len(msgpack.packb(run.algorithm.pack_commits(run.commits[:lag]).body)) for lag in range(1, ROUNDS + 1)]
    alone = [
        len(msgpack.packb(run.algorithm.pack_commits(run.commits[:lag], whole=True).body))
        for lag in range(1, ROUNDS + 1)
    ]
    assert all(size <= log for size, log in zip(sizes, alone, strict=True))
    assert alone[-1] > 10 * sizes[-1]
    largest = width_of(summed(run.commits).numbers)
    assert max(sizes) <= -(-POOL // 8) + POOL * largest + 32 < run.algorithm.facts.most_catch_up_bytes


@pytest.mark.parametrize("pool", [1, 96, 97, 4096, 65_535])
def test_no_sum_takes_more_bytes_than_the_bound_says(pool: int) -> None:
    last, indices = 2**32 - 1, np.arange(pool).astype(np.uint16)
    longest = PoolCommit(last - 1, last, last, indices, np.full(pool, -(2**63), np.int64))
    size = len(msgpack.packb(pack_sum(longest, pool)))
    assert size <= make("fedkseed", pool=pool).facts.most_catch_up_bytes <= size + 32


def commits(*moves: dict[int, int]) -> list[PoolCommit]:
    """Return commits that follow each other, from the numbers of each."""
    return [
        PoolCommit(at, at + 1, at, np.array(list(each), np.uint16), np.array(list(each.values()), np.int64))
        for at, each in enumerate(moves)
    ]


def test_commits_are_sent_as_they_are_where_their_sum_has_more_bytes_or_there_is_one() -> None:
    algorithm = make("fedkseed")
    wider = commits(dict.fromkeys(range(99), 127), {0: 1})  # of the sum each number takes two bytes
    for missed in ([], wider[:1], wider):
        assert algorithm.pack_commits(missed) == algorithm.pack_commits(missed, whole=True)


@pytest.mark.parametrize(
    ("moves", "scalars", "seeds"),
    [
        ([{0: 1}, {0: 1}, {0: 1}, {0: 1, 1: 5}], 2, 2),  # 4 commits of 5 numbers are 1.6 of 2 numbers
        ([{0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1, 1: 1}], 2, 1),
        ([{0: 1}, {0: -1}], 0, 1),
        ([{}, {}], 0, 1),
    ],
)
def test_a_sum_counts_as_the_seeds_of_so_many_numbers(moves: list[dict[int, int]], scalars: int, seeds: int) -> None:
    packed = make("fedkseed").pack_commits(commits(*moves))
    assert (packed.scalars, packed.seeds) == (scalars, seeds) and type(packed.body[0]) is int


def test_clients_measure_along_the_directions_that_they_drew(run: Rehearsal) -> None:
    for estimator in ("central", "forward", "projection"):
        algorithm = make("fedkseed", **FIELDS, estimator=estimator, learning_rate=20.0)
        plan, objective = algorithm.plan(0, 0, 7), run.objective(0, 0)
        report, _ = algorithm.local(algorithm.replica(x0()), None, plan, objective)
        assert bits(report.indices) == bits(drawn(objective.key, (2, 5), POOL))
        x = x0().astype(np.float64)
        for step in range(2):
            objective.point[:] = x
            gradient = objective.gradient(step).astype(np.float64)
            slopes = [float(gradient @ direction(index)) for index in report.indices[step]]
            assert report.scalars[step] == pytest.approx(slopes, rel=0.02, abs=0.02), estimator
            for index, g in zip(report.indices[step], report.scalars[step], strict=True):
                x -= 20 / 5 * float(g) * direction(index)


def test_a_sum_is_folded_from_the_version_before_it_and_from_no_other(run: Rehearsal) -> None:
    missed = [summed(run.commits[4:9])]
    replica = reached(run, 4)
    run.algorithm.apply(replica, missed)
    assert bits(replica) == bits(reached(run, 9))
    run.algorithm.apply(replica, missed)  # again: it is contained already
    assert bits(replica) == bits(reached(run, 9))
    with pytest.raises(CommitGap, match="commit 4 is missing"):
        run.algorithm.apply(reached(run, 3), missed)
    with pytest.raises(CommitGap, match="a sum of commits from 5 on: it holds some of them already"):
        run.algorithm.apply(reached(run, 6), missed)


def test_a_commit_is_the_mean_of_the_reports_along_the_directions_that_they_drew(run: Rehearsal) -> None:
    algorithm, plan, reports, commit = run.algorithm, run.plans[0], run.reports[0], run.commits[0]
    expected = np.zeros(POOL)
    for report in reports.values():
        for index, g in zip(report.indices.flat, report.scalars.flat, strict=True):
            expected[index] -= plan.learning_rate * float(g) / 5 / len(reports)
    found = np.zeros(POOL)
    found[commit.indices] = commit.numbers * 2.0**-algorithm.grid.unit_bits
    assert np.abs(found - expected).max() <= 2.0 ** -(algorithm.grid.unit_bits + 1)
    x = x0().astype(np.float64)
    for index, step in enumerate(found):
        x += step * direction(index)
    replica = reached(run, 1)
    assert np.abs(algorithm.point(replica) - x).max() < 2**-20


def test_late_reports_are_more_pairs_of_the_commit(run: Rehearsal) -> None:
    algorithm, (first, second, *_) = run.algorithm, run.plans
    late = [LateReports(first, run.reports[0], 1 / 3)]
    whole, _ = algorithm.aggregate(None, second, {}, late=late)
    assert bits((whole.indices, whole.numbers)) == bits((run.commits[0].indices, run.commits[0].numbers))
    both, _ = algorithm.aggregate(None, second, run.reports[1], late=late)
    _, together = added(
        np.concatenate([whole.indices, run.commits[1].indices]), np.concatenate([whole.numbers, run.commits[1].numbers])
    )
    assert np.abs(both.numbers - together).max() <= 1  # one rounding in the place of two


def test_numbers_that_cancel_are_no_part_of_a_commit_and_the_example_has_one_unit_along_each(run: Rehearsal) -> None:
    algorithm, plan = run.algorithm, run.plans[0]
    example = algorithm.example(plan)
    alone, _ = algorithm.aggregate(None, plan, {3: example})
    assert alone.indices.tolist() == list(range(10)) and (alone.numbers == -1).all()
    scalars = np.where(np.arange(10).reshape(plan.shape) == 4, 3.0, -1.0) * example.scalars
    both, _ = algorithm.aggregate(None, plan, {3: example, 4: PoolReport(example.indices, scalars)})
    assert (both.indices.tolist(), both.numbers.tolist()) == ([4], [-2])
    assert [each.tolist() for each in added(np.array([3, 3, 5, 6]), np.array([1, -1, 1, 2]))] == [[5, 6], [1, 2]]


def test_the_server_makes_no_commit_that_might_overflow_the_sums(run: Rehearsal) -> None:
    algorithm, plan = run.algorithm, run.plans[0]
    groups = [LateReports(plan, run.reports[0], 1 / 3)]
    for reports, late in ((run.reports[0], ()), (None, groups)):
        aggregate = partial(algorithm.aggregate, late=late)
        commit, spent = aggregate(None, plan, reports)
        assert spent == algorithm.grid.most_q * int(np.abs(commit.numbers).sum())
        for before in (5, BUDGET - 1 - spent):
            assert aggregate(before, plan, reports)[1] == before + spent
        with pytest.raises(OverflowError, match="63 bits"):
            aggregate(BUDGET - spent, plan, reports)
    scalars = run.reports[0][0].scalars.astype(np.float64)
    scalars[1, 4] = 1e18
    huge = PoolReport(np.arange(10).reshape(plan.shape), scalars)
    with pytest.raises(OverflowError, match=r"beyond 62 bits; a smaller algorithm\.unit_bits"):
        algorithm.aggregate(None, plan, {0: huge})


@pytest.mark.parametrize("state", [-1, BUDGET, 1.0, True, [None, 0], "7"])
def test_a_state_that_no_commit_can_have_led_to_is_refused(run: Rehearsal, state: Any) -> None:
    for sound in (None, 0, BUDGET - 1):
        run.algorithm.check_state(sound)
    with pytest.raises(BadPayload, match="no whole number below"):
        run.algorithm.check_state(state)


def test_clients_draw_indices_of_their_own_uniformly() -> None:
    many = drawn(7, (100, 100), 10)
    assert np.bincount(many.ravel(), minlength=10).min() > 900 and many.max() == 9
    assert bits(many) == bits(drawn(7, (100, 100), 10))
    assert (many != drawn(8, (100, 100), 10)).mean() > 0.8


def test_an_index_beyond_the_pool_is_refused(run: Rehearsal) -> None:
    report = run.reports[0][0]
    indices = report.indices.copy()
    indices[-1, -1] = POOL
    wrong = PoolReport(indices, report.scalars)
    with pytest.raises(ReportRefused, match="a pool of 32") as refused:
        run.algorithm.check(run.plans[0], wrong)
    assert refused.value.reason == "absurd"
    with pytest.raises(ReportRefused, match=r"its indices have shape \(1, 5\)"):
        run.algorithm.check(run.plans[0], PoolReport(report.indices[:1], report.scalars))


@pytest.mark.parametrize(
    "change",
    [
        {0: 9},
        {1: 0},
        {1: -1},
        {3: 0},
        {3: 9},
        {3: 2},
        {4: b"\x01"},
        {4: b"\x05\x00\x01\x00"},
        {4: b"\x01\x00\x63\x00"},
        {5: b"\x01"},
        {5: "text"},
        {5: None},
        {2: None},
    ],
)
def test_a_sum_that_nobody_packed_is_refused(change: dict[int, Any]) -> None:
    body: list[Any] = [3, 9, 12, 1, b"\x01\x00\x05\x00", b"\x07\xff"]
    assert unpack_commits(body, 99)[0].numbers.tolist() == [7, -1]
    for place, value in change.items():
        body[place] = value
    with pytest.raises(BadPayload):
        unpack_commits(body, 99)


@pytest.mark.parametrize(
    "body", [7, [[7]], [[], 7], [[[1, b"", b"", b"", b""]]], [[[0, b"\0\0\0\0", b"\0\0", b"", b""]]]]
)
def test_commits_that_nobody_packed_are_refused(body: Any) -> None:
    with pytest.raises(BadPayload):
        unpack_commits(body, 99)
