"""Aggregation rules against their definitions on arbitrary rows, and their robustness against a minority of Byzantine
clients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgpack
import numpy as np
import pytest
from aggregation_cases import ALL, MIXING, ROBUST, Matrix, crowd, matrices, numbers
from algorithm_cases import bits, make, seed_of
from hypothesis import given, settings
from hypothesis import strategies as st
from promised import keep

from seedbus.algorithms.aggregation.rules import Clipped, Krum, Mean, Median, NearestMixing, TrimmedMean, checked
from seedbus.algorithms.contract import BadPayload
from seedbus.discovery import PluginError
from seedbus.studies.check import rule as conformance


def combined(rule: Any, rows: Any, state: Any = None) -> list[float]:
    aggregate: list[float] = rule.combine(np.array(rows, np.float64), state)[0].tolist()
    return aggregate


# definitions


@given(rows=matrices())
def test_the_mean_is_the_exact_sum_divided_by_the_number_of_rows(rows: Matrix) -> None:
    assert combined(Mean(), rows) == [math.fsum(column) / len(rows) for column in rows.T.tolist()]


@given(rows=matrices())
def test_the_median_is_the_middle_value_or_the_mean_of_the_two_middle_values(rows: Matrix) -> None:
    ordered = [sorted(column) for column in rows.T.tolist()]
    middle = [(column[(len(rows) - 1) // 2] + column[len(rows) // 2]) / 2 for column in ordered]
    assert combined(Median(), rows) == middle


@given(rows=matrices(), f=st.integers(0, 6))
def test_a_trimmed_mean_leaves_out_the_outermost_and_never_all(rows: Matrix, f: int) -> None:
    cut = min(f, (len(rows) - 1) // 2)
    kept = [sorted(column)[cut : len(rows) - cut] for column in rows.T.tolist()]
    assert combined(TrimmedMean(f=f), rows) == [math.fsum(column) / len(column) for column in kept]


@pytest.mark.parametrize(
    ("trim", "clients", "cut"), [(0.0, 10, 0), (0.07, 100, 7), (0.2, 10, 2), (0.1, 4, 1), (0.29, 100, 29), (0.49, 3, 1)]
)
def test_a_trimmed_fraction_is_rounded_up_to_whole_reports(trim: float, clients: int, cut: int) -> None:
    rows = np.arange(clients)[:, None] ** 2.0
    assert combined(TrimmedMean(trim=trim), rows) == combined(TrimmedMean(f=cut), rows)


@given(rows=matrices(3), multi=st.integers(1, 9), data=st.data())
def test_krum_agrees_with_its_definition(rows: Matrix, multi: int, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(rows) - 3) // 2))
    scores = []
    for i, row in enumerate(rows):
        others = [math.fsum(((row - other) ** 2).tolist()) for j, other in enumerate(rows) if j != i]
        scores.append(math.fsum(sorted(others)[: len(rows) - f - 2]))
    best = sorted(sorted(range(len(rows)), key=lambda i: (scores[i], i))[: min(multi, len(rows) - f)])
    assert combined(Krum(f=f, multi=multi), rows) == combined(Mean(), rows[best])


def test_krum_without_f_assumes_the_most_byzantine_clients_that_the_reports_allow() -> None:
    rows = crowd(9, 4, 1e6)
    assert combined(Krum(), rows) == combined(Krum(f=5), rows)
    assert combined(Krum(), rows[:1]) == rows[0].tolist()
    assert combined(Krum(), rows[:2]) == rows[0].tolist()
    assert combined(Krum(), [[0.0], [5.0], [5.5]]) == [5.0]


def test_krum_breaks_ties_in_favour_of_the_lower_client_number() -> None:
    assert combined(Krum(f=0), [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]) == [1.0, 0.0]


@given(rows=matrices(3), then=st.sampled_from(["median", "trimmed-mean", "krum"]), data=st.data())
def test_nearest_neighbour_mixing_agrees_with_its_definition(rows: Matrix, then: Any, data: st.DataObject) -> None:
    f = data.draw(st.integers(0, (len(rows) - (3 if then == "krum" else 1)) // 2))
    mixed = []
    for row in rows:
        distances = [math.fsum(((row - other) ** 2).tolist()) for other in rows]
        nearest = sorted(range(len(rows)), key=lambda i: (distances[i], i))[: len(rows) - f]
        mixed.append(combined(Mean(), rows[nearest]))
    rule: Any = {"median": Median(), "trimmed-mean": TrimmedMean(f=f), "krum": Krum(f=f)}[then]
    assert combined(NearestMixing(f=f, then=then), rows) == combined(rule, mixed)


def test_mixing_by_hand_keeps_what_a_minority_of_honest_clients_knows() -> None:
    """Five clients, one of whom lies; another one alone has the second feature, which the rules without mixing drop."""
    rows = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 8.0], [-40.0, 0.0]]
    assert combined(Median(), rows) == combined(TrimmedMean(f=1), rows) == combined(Krum(f=1), rows) == [1.0, 0.0]
    for then in ("median", "trimmed-mean", "krum"):
        assert combined(make("decomfl", aggregation={"rule": "nnm", "f": 1, "then": then}).aggregation, rows) == [
            1.0,
            2.0,
        ]
    without_f, too_large = combined(NearestMixing(), rows), combined(NearestMixing(f=9), rows)
    assert without_f == too_large == combined(NearestMixing(f=2), rows)
    assert [rule.fewest_reports for rule in (*MIXING, NearestMixing())] == [5, 5, 7, 1]


@pytest.mark.parametrize(
    ("rule", "fewest"),
    [
        *((rule, 1) for rule in (Mean(), Median(), Clipped(), TrimmedMean(), TrimmedMean(trim=0.3), Krum())),
        *((TrimmedMean(f=f), 2 * f + 1) for f in (0, 1, 5)),
        *((Krum(f=f), 2 * f + 3) for f in (0, 1, 5)),
        *((NearestMixing(f=5, then=then), 11) for then in ("median", "trimmed-mean")),
        (NearestMixing(f=5, then="krum"), 13),
    ],
    ids=repr,
)
def test_a_rule_says_how_many_reports_its_guarantee_needs(rule: Any, fewest: int) -> None:
    assert rule.fewest_reports == fewest
    f = getattr(rule, "f", None)
    if f is not None:
        assert rule.withstands(fewest) == f and (f == 0 or rule.withstands(fewest - 1) == f - 1)


def test_the_lowest_quantile_is_the_smallest_magnitude() -> None:
    for quantile in (0.1, 1e-9, 1e-11, 5e-324):
        assert Clipped(quantile=quantile).combine(np.array([[1.0], [-2.0], [1e12]]), None)[1] == [1.0]


def test_clipping_by_hand() -> None:
    rule = Clipped(quantile=0.5, window=2)
    first, state = rule.combine(np.array([[1.0, -2.0], [3.0, 8.0]]), None)
    assert state == [2.0] and first.tolist() == [1.5, 0.0], "clipped to its own quantile: nothing came before"
    second, state = rule.combine(np.array([[6.0, -9.0], [1.0, 8.0]]), state)
    assert state == [2.0, 6.0] and second.tolist() == [1.5, 0.0], "to 2, what the round before found"
    third, state = rule.combine(np.array([[5.0, -9.0], [1.0, 0.5]]), state)
    assert state == [6.0, 1.0] and third.tolist() == [2.5, -1.75], "to 4, the median of both; the oldest is forgotten"
    _, state = Clipped(quantile=0.28).combine(np.arange(1.0, 26.0).reshape(-1, 1), None)
    assert state == [7.0], "0.28 of 25 is 7"


@pytest.mark.slow
@given(rounds=st.lists(matrices(), min_size=1, max_size=12), window=st.integers(1, 4))
def test_clipping_remembers_a_number_for_each_of_the_last_rounds(rounds: list[Matrix], window: int) -> None:
    rule, state = Clipped(window=window), None
    for number, rows in enumerate(rounds, start=1):
        before = bits(state)
        clipped, later = rule.combine(rows, state)
        assert bits(state) == before and len(later) == min(number, window)
        limit = np.median(state) if state else later[-1]
        assert (np.abs(clipped) <= limit).all()
        assert msgpack.unpackb(msgpack.packb(later)) == later
        state = later


@pytest.mark.parametrize("state", ["1", 1.0, (1.0,), [1], [1.0, "a"], [1.0, None]])
def test_a_state_that_clipping_cannot_have_left_is_refused(state: Any) -> None:
    for sound in (None, [], [1.0, 2.0]):
        Clipped().check_state(sound)
    with pytest.raises(BadPayload, match="the state of the rule clipped is no list of numbers"):
        Clipped().check_state(state)


@pytest.mark.parametrize(
    "found", [None, np.zeros(3), [np.zeros(3), None], (np.zeros(3),), (np.zeros(3), None, 1), (np.zeros(2), None)]
)
def test_what_a_rule_of_a_plugin_returns_is_checked(found: Any) -> None:
    row = np.zeros(3)
    assert checked(Mean(), "combine", (row, "kept"), 3) == (row, "kept")
    with pytest.raises(PluginError, match="`combine` of the rule mean returned"):
        checked(Mean(), "combine", found, 3)


# properties of all rules


@pytest.mark.few(4)
@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_a_rule_keeps_its_promises(rule: Any) -> None:
    keep(repr(rule), conformance.CONTRACT, rule)


@pytest.mark.parametrize("f", [1, 2, 3])
@pytest.mark.parametrize(
    "kind", [lambda f: Median(), lambda f: TrimmedMean(f=f), lambda f: Krum(f=f), lambda f: NearestMixing(f=f)]
)
def test_f_byzantine_clients_do_not_move_a_robust_rule_beyond_honest_values(kind: Any, f: int) -> None:
    conformance.keeps_out(kind(f), f)
    with pytest.raises(AssertionError, match=f"with {f} of .* clients that send"):
        conformance.keeps_out(Mean(), f)


@pytest.mark.few(8)
@pytest.mark.parametrize("rule", ALL, ids=repr)
@settings(max_examples=30)
@given(row=st.lists(numbers, min_size=1, max_size=4), clients=st.integers(1, 9))
def test_identical_reports_aggregate_to_themselves(rule: Any, row: list[float], clients: int) -> None:
    unlimited = [1e13] if isinstance(rule, Clipped) else None
    assert combined(rule, [row] * clients, unlimited) == pytest.approx(row, rel=1e-15)


@pytest.mark.few(4)
@pytest.mark.parametrize("rule", ALL, ids=repr)
@settings(max_examples=40)
@given(rows=matrices(), state=st.none() | st.just([3.0, 1.0]))
def test_an_aggregate_lies_within_the_values_and_does_not_depend_on_the_memory_layout(
    rule: Any, rows: Matrix, state: Any
) -> None:
    aggregate = rule.combine(rows, state)
    assert bits(aggregate) == bits(rule.combine(np.asfortranarray(rows), state))
    slack = 1e-9 * (np.abs(rows).max() + 1)
    low, high = rows.min(axis=0), rows.max(axis=0)
    if not isinstance(rule, Clipped):
        assert (low - slack <= aggregate[0]).all() and (aggregate[0] <= high + slack).all()


@pytest.mark.parametrize("rule", [Mean(), Median(), TrimmedMean(f=1), Clipped()], ids=repr)
def test_a_coordinatewise_rule_does_not_depend_on_the_order_of_clients(rule: Any) -> None:
    rows = crowd(5, 1, -3.0, values=3)
    assert len({rule.combine(rows[list(order)], None)[0].tobytes() for order in itertools.permutations(range(6))}) == 1


@pytest.mark.parametrize("lie", [-1e12, 1e12, 50.0, -50.0])
@pytest.mark.parametrize("rule", ROBUST, ids=repr)
def test_two_byzantine_clients_of_eleven_move_a_robust_rule_little_and_the_mean_much(rule: Any, lie: float) -> None:
    rows, honest_mean = crowd(9, 2, lie), np.arange(1, 7)
    state = [10.0] if isinstance(rule, Clipped) else None
    robust, mean = rule.combine(rows, state)[0], Mean().combine(rows, None)[0]
    bound = 10.0 * 2 / 11 + 1.5 if isinstance(rule, Clipped) else 0.5
    assert np.abs(robust - honest_mean).max() < bound < np.abs(mean - honest_mean).max()


def test_byzantine_clients_cannot_raise_the_clipping_limit_beyond_honest_values() -> None:
    rule, state = Clipped(quantile=0.7), list[float]()
    for _ in range(30):
        _, state = rule.combine(crowd(9, 2, 1e12), state)
    assert max(state) < 7


# rules inside an algorithm


def committed(algorithm: Any, rows: Any) -> list[float]:
    reports = {client: np.array([row], np.float32) for client, row in enumerate(rows)}
    plan = algorithm.plan(0, 0, seed_of(0))
    scalars: list[float] = algorithm.aggregate(None, plan, reports)[0].terms[0].scalars[0].tolist()
    return scalars


@pytest.mark.parametrize(("precision", "expected"), [("float32", 1 + 2**-12), ("float16", 1.0), ("bfloat16", 1.0)])
def test_a_committed_scalar_is_rounded_once_to_the_wire_format(precision: str, expected: float) -> None:
    algorithm = make("decomfl", precision=precision, perturbations=1)
    assert committed(algorithm, [[1.0], [1 + 2**-11]]) == [expected]


def test_rounding_to_float16_does_not_go_through_float32() -> None:
    """The mean lies just above the midpoint of two float16 numbers. Rounded to float32 first, it would be a tie, which
    rounds down to even."""
    rows = [[1 + 2**-11], [1 + 2**-11 + 2**-23], *([[1 + 2**-11]] * 6)]
    mean = np.mean(np.array(rows, np.float32).astype(np.float64))
    assert mean > 1 + 2**-11 == np.float32(mean)
    assert committed(make("decomfl", precision="float16", perturbations=1), rows) == [1 + 2**-10]


@pytest.mark.parametrize("name", ["decomfl", "hiso", "mezo"])
@pytest.mark.parametrize("rule", ["mean", "median", "trimmed-mean", "krum", "clipped", "nnm"])
def test_a_rule_given_by_name_alone_has_its_defaults(name: str, rule: str) -> None:
    by_name, in_full = make(name, aggregation=rule), make(name, aggregation={"rule": rule})
    assert by_name == in_full and by_name.aggregation.rule == rule
