"""FedKSeed: the draws, the commits, and sums that take a client from any version to any other."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from algorithm_cases import DIMENSION, Rehearsal, bits, make, over_the_wire, rehearse, x0
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seedbus.algorithms.contract import BadPayload, CommitGap, LateReports, Replica, ReportRefused
from seedbus.algorithms.directions import exact_reference
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

ROUNDS, POOL = 40, 32


@pytest.fixture(scope="module")
def run() -> Rehearsal:
    return rehearse(make("fedkseed", pool=POOL, perturbations=5, local_steps=2, learning_rate=0.3), ROUNDS)


def reached(run: Rehearsal, *versions: int) -> Replica:
    """Return a replica that catches up to each of these versions, each time by what it would be sent."""
    replica: Replica = run.algorithm.replica(x0())
    for version in versions:
        missed = run.algorithm.pack_commits(run.commits[replica.version : version]).body
        run.algorithm.apply(replica, run.algorithm.unpack_commits(over_the_wire(missed)))
        assert replica.version == version
    return replica


@settings(max_examples=30, deadline=None)
@given(stops=st.sets(st.integers(1, ROUNDS - 1)))
def test_a_client_that_was_sent_sums_holds_the_bits_of_one_that_folded_every_commit(
    run: Rehearsal, stops: set[int]
) -> None:
    assert bits(reached(run, *sorted(stops), ROUNDS)) == bits(run.replica)


def test_what_was_missed_never_takes_more_than_a_number_for_each_direction(run: Rehearsal) -> None:
    sizes = [len(msgpack.packb(run.algorithm.pack_commits(run.commits[:lag]).body)) for lag in range(1, ROUNDS + 1)]
    alone = [len(msgpack.packb(run.algorithm.pack_log(run.commits[:lag]).body)) for lag in range(1, ROUNDS + 1)]
    assert all(size <= log for size, log in zip(sizes, alone, strict=True))
    assert alone[-1] > 10 * sizes[-1]
    largest = width_of(summed(run.commits).numbers)
    assert max(sizes) <= -(-POOL // 8) + POOL * largest + 32 < run.algorithm.most_catch_up_bytes


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
    x, z = x0().astype(np.float64), np.empty(DIMENSION, np.float32)
    for index, step in enumerate(found):
        exact_reference("gaussian").fill(z, seed=0, step=0, perturbation=index)
        x += step * z
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


def test_clients_draw_indices_of_their_own_uniformly() -> None:
    many = drawn(7, (100, 100), 10)
    assert np.bincount(many.ravel(), minlength=10).min() > 900 and many.max() == 9
    assert bits(many) == bits(drawn(7, (100, 100), 10))
    assert (many != drawn(8, (100, 100), 10)).mean() > 0.8


def test_an_index_beyond_the_pool_is_refused(run: Rehearsal) -> None:
    report = run.reports[0][0]
    wrong = PoolReport(report.indices + np.uint16(POOL), report.scalars)
    with pytest.raises(ReportRefused, match="a pool of 32") as refused:
        run.algorithm.check(run.plans[0], wrong)
    assert refused.value.reason == "absurd"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"aggregation": "median"}, "directions of its own; mean is accepted"),
        ({"local_steps": 101, "perturbations": 100}, "at most 10000 pairs"),
        ({"pool": 65_536}, "less than 65536"),
        ({"arithmetic": "float"}, "'integer'"),
    ],
)
def test_what_a_pool_cannot_do_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make("fedkseed", **fields)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    numbers=st.dictionaries(st.integers(0, 99), st.integers(-(2**63), 2**63 - 1).filter(bool), max_size=100),
    shift=st.integers(0, 62),
)
@example(numbers={0: 127, 1: -128}, shift=0)
@example(numbers={0: 128}, shift=0)
@example(numbers={0: 127}, shift=0)
@example(numbers={0: 2**63 - 1}, shift=0)
@example(numbers={0: -(2**63)}, shift=0)
@example(numbers={0: -128}, shift=0)
def test_a_sum_survives_the_wire_in_the_fewest_bytes(numbers: dict[int, int], shift: int) -> None:
    small = {index: number >> shift for index, number in numbers.items() if number >> shift}
    indices = np.array(sorted(small), np.uint16)
    commit = PoolCommit(3, 9, 12, indices, np.array([small[index] for index in sorted(small)], np.int64))
    body = pack_sum(commit, 100)
    assert bits(unpack_commits(over_the_wire(body), 100)) == bits([commit])
    width = body[3]
    assert all(-(2 ** (8 * width - 1)) <= number < 2 ** (8 * width - 1) for number in small.values())
    fits_less = all(-(2 ** (8 * width - 9)) <= n < 2 ** (8 * width - 9) for n in small.values()) if width > 1 else False
    assert not fits_less
    assert len(body[4]) <= 13


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
