"""Updates of whole numbers: their sum is all that a commit needs, and a report may tell nothing else."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, over_the_wire
from dense_federation import START, Bowl, D

from seedbus.algorithms.contract import Declined, Total
from seedbus.algorithms.dense.compression.fixed_point import FixedPoint, whole_numbers
from seedbus.algorithms.dense.server import aggregate

SUMMED = {"compression": "fixed-point", "weighting": "uniform", "learning_rate": 0.1, "local_steps": 2}
METHODS = ["fedavg", "fedacg", "fedavgm", "fedadam", "fedadagrad", "fedyogi", "fedcm", "fedprox", "feddyn"]


def of(name: str, **fields: Any) -> Any:
    return make(name, **SUMMED | fields).sized(D)


def reports_of(algorithm: Any, plan: Any, clients: int = 5) -> dict[int, Any]:
    replica = algorithm.replica(START)
    return {client: algorithm.local(replica, None, plan, Bowl(client, 0))[0] for client in range(clients)}


@pytest.mark.parametrize("name", METHODS)
def test_a_commit_follows_from_the_sum_of_whole_numbers_to_the_bit(name: str) -> None:
    algorithm = of(name)
    assert algorithm.facts.adds_up
    plan, state = algorithm.plan(0, 0, 7), algorithm.first_state(lambda: START)
    reports = reports_of(algorithm, plan)
    total = sum(algorithm.numbers(report).astype(np.int64) for report in reports.values())
    commit, after = algorithm.aggregate(state, plan, reports, members=9)
    of_sum, after_sum = algorithm.aggregate(state, plan, Total(total, len(reports)), members=9)
    backwards, _ = algorithm.aggregate(state, plan, dict(reversed(reports.items())), members=9)
    for other in (of_sum, backwards):
        assert list(map(bits, other.fields)) == list(map(bits, commit.fields))
    assert after == after_sum
    in_floats, _ = aggregate(algorithm, state, plan, reports, share=1.0, late=(), members=9)
    for exact, rounded in zip(commit.fields, in_floats.fields, strict=True):
        np.testing.assert_allclose(exact, rounded, rtol=1e-5, atol=1e-6)


def test_the_mean_is_rounded_once() -> None:
    algorithm = of("fedavg")
    plan = algorithm.plan(0, 0, 7)
    reports = reports_of(algorithm, plan, 3)
    commit, _ = algorithm.aggregate(algorithm.first_state(lambda: START), plan, reports)
    for j in range(D):
        mean = Fraction(sum(int(algorithm.numbers(each)[j]) for each in reports.values()), 3 * 2**20)
        assert commit.fields[0][j] == START[j] + np.float32(float(mean))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("fedavg", {"compression": None}),
        ("fedavg", {"compression": "qsgd"}),
        ("fedavg", {"weighting": "samples"}),
        ("fedavg", {"also": [{"name": "mifa"}]}),
        ("fednova", {"local_steps": None, "epochs": 1}),
        ("fedexp", {}),
        ("scaffold", {}),
    ],
)
def test_what_needs_more_than_a_sum_does_not_add_up(name: str, fields: dict[str, Any]) -> None:
    assert not of(name, **fields).facts.adds_up


def test_a_report_of_numbers_tells_nothing_else_of_its_client() -> None:
    algorithm = of("fedavg")
    plan = algorithm.plan(0, 0, 7)
    report = reports_of(algorithm, plan, 4)[3]
    numbers = algorithm.numbers(report)
    bare = algorithm.of_numbers(plan, numbers)
    assert report.samples > 1 == bare.samples and bits(bare.vectors) == bits(report.vectors)
    silent = algorithm.pack_report(plan, algorithm.of_numbers(plan, 0))
    there = algorithm.unpack_report(over_the_wire(algorithm.pack_report(plan, bare).body), plan)
    assert (algorithm.numbers(there) == numbers).all()
    assert len(over_the_wire(silent.body)) == len(over_the_wire(algorithm.pack_report(plan, bare).body))
    assert not algorithm.numbers(algorithm.of_numbers(plan, 0)).any() and silent.scalars == D


def test_an_update_that_is_not_finite_has_no_numbers() -> None:
    algorithm = of("fedavg", learning_rate=1e30)
    plan = algorithm.plan(0, 0, 7)
    report = reports_of(algorithm, plan, 1)[0]
    with pytest.raises(Declined, match="not finite, or too large"):
        algorithm.numbers(report)


@pytest.mark.parametrize(
    ("values", "decoded"),
    [
        ([1.0, np.nan], np.nan),
        ([np.inf, 1.0], np.nan),
        ([2.0**31, 1.0], np.finfo(np.float32).max),  # one more than fits
        ([1.0, -(2.0**40)], np.finfo(np.float32).max),
    ],
)
def test_an_update_that_is_not_finite_and_one_that_is_too_large_are_told_apart(
    values: list[float], decoded: float
) -> None:
    codec = FixedPoint(unit_bits=0)
    body = codec.encode(np.array(values, np.float32), key=0)
    np.testing.assert_array_equal(codec.decode(body, 2), np.full(2, decoded, np.float32))
    assert whole_numbers(body) is None
    largest = np.array([2**31 - 128, -(2**31 - 128)], np.float32)  # the float32 before 2³¹
    np.testing.assert_array_equal(codec.decode(codec.encode(largest, key=0), 2), largest)
