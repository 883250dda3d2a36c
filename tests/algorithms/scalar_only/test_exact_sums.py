"""`arithmetic: integer`: x is a function of x₀ and the multiset of commits, and nothing overflows in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from algorithm_cases import Quadratic, Rehearsal, bits, make, over_the_wire, rehearse, seed_of, x0
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seedbus.algorithms.contract import BadPayload, Declined, LateReports, Replica, ReportRefused, Total
from seedbus.algorithms.directions import exact_directions, exact_reference, merged
from seedbus.algorithms.scalar_only import base as scalar
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.exact import BUDGET, Grid, add_terms, default_unit_bits, terms_of
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term

DIMENSION, ROUNDS = 1_003, 12
each_kind = pytest.mark.parametrize("kind", ["gaussian", "rademacher"])


def integers(**fields: Any) -> Any:
    return make("decomfl", **({"arithmetic": "integer", "learning_rate": 0.3, "perturbations": 3} | fields))


@pytest.fixture(params=["gaussian", "rademacher"], scope="module")
def run(request: pytest.FixtureRequest) -> Rehearsal:
    return rehearse(integers(directions=request.param, local_steps=2), ROUNDS)


def folded(algorithm: Any, commits: Sequence[ScalarCommit]) -> Replica:
    """Fold commits whatever their versions, in the order given."""
    replica: Replica = algorithm.replica(x0())
    for number, commit in enumerate(commits):
        algorithm.apply(replica, [ScalarCommit(number + 1, commit.round, commit.learning_rate, commit.terms)])
    return replica


# the multiset of commits


@settings(max_examples=20)
@given(order=st.permutations(range(ROUNDS)))
def test_commits_in_any_order_lead_to_one_digest(run: Rehearsal, order: list[int]) -> None:
    assert folded(run.algorithm, [run.commits[at] for at in order]).digest() == run.replica.digest()


@settings(max_examples=20)
@given(parts=st.lists(st.integers(0, 3), min_size=ROUNDS, max_size=ROUNDS), data=st.data())
def test_partial_sums_of_any_groups_of_commits_lead_to_the_same_bits(
    run: Rehearsal, parts: list[int], data: st.DataObject
) -> None:
    groups = [[commit for commit, part in zip(run.commits, parts, strict=True) if part == group] for group in range(4)]
    sums = [merged(terms_of(group)) for group in data.draw(st.permutations(groups))]
    replica = run.algorithm.replica(x0())
    add_terms(replica.x, exact_directions(run.algorithm.directions), sums)
    assert bits(replica.x) == bits(run.replica.x)


def test_a_late_term_is_another_term(run: Rehearsal) -> None:
    """A late report in one commit, or alone in another, is the same number, and moves x by the same."""
    algorithm, (first, second, *_) = run.algorithm, run.plans
    late = [LateReports(first, run.reports[0], 0.25 / 3)]
    joint, _ = algorithm.aggregate(None, second, run.reports[1], late=late)
    alone, _ = algorithm.aggregate(None, second, {}, late=late)
    own, _ = algorithm.aggregate(None, second, run.reports[1])
    assert folded(algorithm, [joint]).digest() != folded(algorithm, [own]).digest()
    assert bits(folded(algorithm, [joint]).x) == bits(folded(algorithm, [alone, own]).x)
    packed = algorithm.pack_commits([joint])
    assert bits(algorithm.unpack_commits(packed.body)) == bits([joint])


# the arithmetic


@each_kind
def test_the_reference_folds_and_measures_to_the_same_bits(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = integers(directions=kind, local_steps=3)
    fast = rehearse(algorithm, 3)
    monkeypatch.setattr(scalar, "exact_directions_for", lambda kind, x: exact_reference(kind))
    slow = rehearse(algorithm, 3)
    assert bits(fast.commits) == bits(slow.commits)
    assert bits(fast.replica) == bits(slow.replica)


@each_kind
def test_the_model_is_that_of_the_equation(kind: Any) -> None:
    """x = x₀ − Σ η ḡ z / P in float64, up to the rounding of x₀ and of n, in two digits of the bound."""
    run = rehearse(integers(directions=kind), ROUNDS)
    source, expected = exact_reference(kind), x0().astype(np.float64)
    for plan, reports in zip(run.plans, run.reports, strict=True):
        mean: Any = np.mean([reports[client] for client in sorted(reports)], axis=0, dtype=np.float64)
        for p, scalar_ in enumerate(mean[0]):
            z = np.empty(DIMENSION, np.float32)
            source.fill(z, seed=plan.seed, step=0, perturbation=p)
            expected -= plan.learning_rate * scalar_ / 3 * z
    unit = 2.0**-run.algorithm.grid.unit_bits
    error = np.abs(run.algorithm.point(run.replica) - expected).max()
    assert 0 < error < unit * ROUNDS * 3 / 2 * 4.4 + 2**-22
    assert np.abs(expected - x0()).max() > 1e-3


def test_a_single_client_that_commits_alone_holds_the_model_of_its_own_local_steps() -> None:
    """Local and global steps are one definition, so nothing but the commit's version tells the two apart."""
    algorithm = integers(local_steps=4)
    plan, replica = algorithm.plan(0, 0, seed_of(0)), algorithm.replica(x0())
    points: list[Any] = []

    class Watched(Quadratic):
        def loss(self, step: int) -> float:
            if step == 3:
                points.append(self.point.copy())
            return super().loss(step)

    report, _ = algorithm.local(replica, None, plan, Watched(DIMENSION, 0, 0))
    commit, _ = algorithm.aggregate(None, plan, {0: report})
    cut = ScalarCommit(1, 0, commit.learning_rate, (Term(0, plan.seed, commit.terms[0].scalars[:3]),))
    algorithm.apply(replica, [cut])
    assert bits(points[0]) == bits(algorithm.point(replica))


@pytest.mark.parametrize(
    ("learning_rate", "bits_"), [(1e-3, 28), (5e-6, 36), (1.0, 18), (1e6, 0), (1e-9, 36), ({0: 1e-3, 5: 0.3}, 20)]
)
def test_the_unit_goes_with_the_largest_learning_rate(learning_rate: Any, bits_: int) -> None:
    assert default_unit_bits(learning_rate) == bits_
    assert make("decomfl", arithmetic="integer", learning_rate=learning_rate, unit_bits=7).grid == Grid(7)
    assert make("decomfl", arithmetic="integer", learning_rate=learning_rate).grid == Grid(bits_)


def test_numbers_are_rounded_once_to_nearest_even() -> None:
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 3.4999])
    assert Grid(0).numbers(halves[:, None], 1.0).ravel().tolist() == [0, -2, -2, 0, 2, -3]
    most = 2.0**31 - 1
    assert Grid(0).numbers(np.array([[most], [-most]]), 1.0).ravel().tolist() == [-most, most]
    with pytest.raises(OverflowError, match=re.escape(f"of which {most:.6g} makes the largest")):
        Grid(0).numbers(np.array([[7.0], [most + 1]]), 1.0)


def test_coordinates_are_made_by_one_rounding() -> None:
    sums = np.array([2**24 + 1, 2**24 + 3, -(2**61) - 1, 0, 1], np.int64)
    expected = [float(np.float32(int(each))) * 2.0**-32 for each in sums]
    assert Grid(20).coordinates(sums).tolist() == expected


# the wire


def test_a_commit_has_the_bytes_of_a_float32_commit() -> None:
    fields = {"learning_rate": 0.3, "perturbations": 3}
    whole, real = (rehearse(make("decomfl", arithmetic=kind, **fields), 5) for kind in ("integer", "float"))
    for count in range(6):
        sizes = [
            [
                len(part) if isinstance(part, bytes) else 0
                for part in run.algorithm.pack_commits(run.commits[:count], whole=True).body
            ]
            for run in (whole, real)
        ]
        assert sizes[0] == sizes[1]
        assert (
            whole.algorithm.pack_commits(whole.commits[:count], whole=True)[1:]
            == real.algorithm.pack_commits(real.commits[:count], whole=True)[1:]
        )


# what is refused


class Doubled(DeComFL):
    """An algorithm with a step of its own (arXiv:0000.00000)."""

    name: Literal["decomfl"] = "decomfl"

    def step(self, block: Block, learning_rate: float) -> None:
        super().step(block, 2 * learning_rate)


def test_an_algorithm_with_a_step_of_its_own_is_no_sum() -> None:
    with pytest.raises(ValidationError, match="no plain sum of random directions"):
        Doubled(arithmetic="integer")


@pytest.mark.parametrize("steps", [1, 2])
def test_a_client_declines_and_a_server_refuses_a_step_of_more_than_32_bits(steps: int) -> None:
    algorithm = integers(unit_bits=40, local_steps=steps)
    plan = algorithm.plan(0, 0, 1)

    class Steep(Quadratic):
        def loss(self, step: int) -> float:
            return super().loss(step) * 1e6

    for each in (algorithm, integers(unit_bits=40, local_steps=steps, precision="int32")):
        with pytest.raises(Declined, match="a smaller unit_bits") as declined:
            each.local(each.replica(x0()), None, plan, Steep(DIMENSION, 0, 0))
        assert declined.value.reason == "overflow"
    with pytest.raises(ReportRefused, match="beyond 32 bits") as refused:
        algorithm.check(plan, np.full((steps, 3), 1e5, np.float32))
    assert refused.value.reason == "absurd"
    largest = (2**31 - 1) * 2.0**-40 * 3 / 0.3
    algorithm.check(plan, np.full((steps, 3), largest * 0.999999, np.float32))
    later = integers(unit_bits=40, local_steps=steps, learning_rate={0: 1e-3, 4: 0.3})  # with which it may be late
    with pytest.raises(ReportRefused, match="beyond 32 bits"):
        later.check(later.plan(0, 0, 1), np.full((steps, 3), largest * 1.000001, np.float32))


def test_a_commit_of_whole_numbers_with_a_weight_is_refused(run: Rehearsal) -> None:
    (term,) = run.commits[0].terms
    for weight in (0.5, 0.0, 2.0):
        commit = ScalarCommit(1, 0, 0.3, (Term(0, term.seed, term.scalars), Term(0, 7, term.scalars, weight)))
        with pytest.raises(BadPayload, match="whole numbers with weights"):
            run.algorithm.unpack_commits(over_the_wire(run.algorithm.pack_commits([commit]).body))


def test_a_scalar_that_is_no_number_is_sent_and_refused_and_declined_where_numbers_are_sent() -> None:
    class Broken(Quadratic):
        def loss(self, step: int) -> float:
            return math.nan

    algorithm, whole = integers(), integers(precision="int32")
    plan, replica = algorithm.plan(0, 0, 1), algorithm.replica(x0())
    report, _ = algorithm.local(replica, None, plan, Broken(DIMENSION, 0, 0))
    with pytest.raises(ReportRefused, match="not a finite number"):
        algorithm.check(plan, report)
    with pytest.raises(Declined, match="a scalar of nan"):
        whole.local(replica, None, plan, Broken(DIMENSION, 0, 0))


def test_the_server_makes_no_commit_that_might_overflow_the_sums() -> None:
    algorithm = integers(unit_bits=40)
    plan, report = algorithm.plan(0, 0, 1), np.full((1, 3), 0.019, np.float32)
    commit, state = algorithm.aggregate(None, plan, {0: report})
    assert state == [None, 17_715 * int(np.abs(commit.terms[0].scalars.astype(np.int64)).sum())]
    almost = [None, BUDGET - state[1]]
    with pytest.raises(OverflowError, match="63 bits"):
        algorithm.aggregate(almost, plan, {0: report})
    _, last = algorithm.aggregate([None, BUDGET - state[1] - 1], plan, {0: report})
    assert last[1] == BUDGET - 1
    groups = [LateReports(plan, {0: report}, 1.0)]
    each, alone = algorithm.aggregate([None, 5], plan, None, late=groups)
    assert (each.version, each.round, len(each.terms)) == (1, 0, 1) and alone == [None, 5 + state[1]]
    with pytest.raises(OverflowError, match="63 bits"):
        algorithm.aggregate(almost, plan, None, late=groups)


def test_commits_of_whole_numbers_are_their_weighted_sums_rounded_once() -> None:
    algorithm = integers(precision="int32")
    plan, replica = algorithm.plan(4, 0, 1), algorithm.replica(x0())
    reports = {client: algorithm.local(replica, None, plan, Quadratic(DIMENSION, client, 4))[0] for client in (1, 2, 5)}
    for client, unit_bits in ((1, None), (2, 32), (5, 34)):  # in small units it shows that scalars are float32
        fields = {"unit_bits": unit_bits}
        objective = Quadratic(DIMENSION, client, 4)
        scalars, _ = integers(**fields).local(replica, None, plan, objective)
        numbers, _ = integers(precision="int32", **fields).local(replica, None, plan, objective)
        assert bits(numbers) == bits(integers(**fields).grid.numbers(scalars, plan.learning_rate))
    algorithm.check(plan, np.full(plan.shape, 2**31 - 1, np.int32))
    total = sum(report.astype(np.int64) for report in reports.values())
    late = [LateReports(plan, dict(reversed(reports.items())), 0.25)]

    def spent(commit: ScalarCommit) -> int:
        return 17_715 * sum(int(np.abs(term.scalars.astype(np.int64)).sum()) for term in commit.terms)

    for before in (None, [None, 7]):
        mean, state = algorithm.aggregate(before, plan, reports)
        assert bits(mean.terms[0].scalars) == bits(np.rint(total / 3).astype(np.int32))
        assert bits(algorithm.aggregate(before, plan, Total(total, 3))) == bits((mean, state))
        both, _ = algorithm.aggregate(before, plan, reports, share=0.5, late=late)
        assert [term.scalars.tolist() for term in both.terms] == [
            np.rint(total / 6).tolist(),
            np.rint(total / 4).tolist(),
        ]
        none, _ = algorithm.aggregate(before, plan, {}, late=late)
        assert none.terms[0].scalars.tolist() == [[0]] and bits(none.terms[1]) == bits(both.terms[1])
        each, after = algorithm.aggregate(before, plan, None, late=late)
        quarters = [np.rint(report / 4).tolist() for report in reports.values()]
        assert [term.scalars.tolist() for term in each.terms] == quarters
        used = 0 if before is None else 7
        assert (state, after) == ([None, used + spent(mean)], [None, used + spent(each)])


def test_numbers_that_are_put_in_the_place_of_a_clients_are_whole_and_fit_into_32_bits() -> None:
    algorithm, most = integers(precision="int32"), 2**31 - 1
    report = np.array([[2**20, -3, 0]], np.int32)
    assert algorithm.values(report).dtype == np.float32 and algorithm.values(report).tolist() == report.tolist()
    for false, expected in (([2.5, 1e30, np.nan], [2, most, 0]), ([-np.inf, np.inf, -3.5], [-most, most, -4])):
        found = algorithm.with_values(report, np.array([false], np.float32))
        assert found.dtype == np.int32 and found.tolist() == [expected]


def test_a_state_that_no_commit_can_have_led_to_is_refused() -> None:
    algorithm = integers(aggregation={"rule": "clipped"})
    for sound in (None, [None, 0], [[0.5], BUDGET - 1]):
        algorithm.check_state(sound)
    for state in ([None], [None, 0, 0], "ab", 7, [None, -1], [None, BUDGET], [None, 1.0], ["momentum", 0]):
        with pytest.raises(BadPayload):
            algorithm.check_state(state)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**30])
def test_an_x0_beyond_the_range_is_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="x₀ holds") as refused:
        integers().replica(np.array([0.0, value], np.float32))
    limit = float(str(refused.value).split("less than ")[1])
    integers().replica(np.array([-0.9999 * limit], np.float32))
    with pytest.raises(OverflowError, match="x₀ holds"):
        integers().replica(np.array([-1.0001 * limit], np.float32))
