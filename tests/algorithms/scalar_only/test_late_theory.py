"""A late term changes the model as the dense formula says, and changes no other field.

Replicas are float64 and scalars and weights are exact in float32, so the comparison covers the algebra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, over_the_wire, seed_of, x0
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_cases import DIMENSION, RATE, direction_of

from seedbus.agents.client.replicas import Replicas
from seedbus.algorithms.contract import LateReports
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.algorithms.scalar_only.pool import PoolReport

SHAPES = {"local_steps": {0: 1, 1: 3, 2: 2}, "perturbations": {0: 2, 1: 4, 2: 1, 3: 8}}
ROUNDS = 5
VARIANTS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.75},
    {"momentum": 0.5, "dampening": False},
    {"learning_rate": {0: RATE / 4, 1: RATE / 2, 3: 8 * RATE}},
]
each_variant = pytest.mark.parametrize("momentum", VARIANTS, ids=str)


def decomfl(**fields: Any) -> Any:
    return make("decomfl", **{"learning_rate": RATE} | SHAPES | fields)


def plan_of(algorithm: Any, round: int, version: int) -> Any:
    return algorithm.plan(round, version, seed_of(round))


def scalars_of(plan: Any, client: int) -> Any:
    """Return a client's scalars, [K, P]: multiples of 2⁻⁸, so that sums and means over four clients are exact."""
    generator = np.random.default_rng([plan.round, client])
    return (generator.integers(-999, 999, plan.shape) / 2**8).astype(np.float32)


def direction(plan: Any, scalars: Any) -> list[Any]:
    """Δ[k] = (1/P) Σ_p g[k,p] z(k,p), for each k."""
    return [
        sum(g * direction_of(plan.seed, k, p) for p, g in enumerate(row)) / len(row)
        for k, row in enumerate(np.asarray(scalars, np.float64))
    ]


class Dense:
    """The model as a dense vector that is updated by the formula."""

    def __init__(self, beta: float, damping: float) -> None:
        self.x, self.m, self._beta, self._damping = x0(DIMENSION, np.float64), np.zeros(DIMENSION), beta, damping

    def own(self, plan: Any, reports: Mapping[int, Any], share: float = 1.0) -> None:
        for k in range(plan.steps):
            moves = [direction(plan, report)[k] for report in reports.values()]
            self.m = self._beta * self.m + self._damping * share * np.mean(moves, axis=0)
            self.x = self.x - plan.learning_rate * self.m

    def late(self, plan: Any, reports: Mapping[int, Any], weight: float) -> None:
        """Apply x ← x − η Σ_i weight·Δ(g_i) for each late client, with η of the round that it answers."""
        for report in reports.values():
            self.x = self.x - plan.learning_rate * weight * sum(direction(plan, report))


def dense(momentum: Mapping[str, Any]) -> Dense:
    beta = momentum.get("momentum", 0.0)
    return Dense(beta, 1 - beta if momentum.get("dampening", True) else 1.0)


@pytest.mark.few(3)
@each_variant
def test_late_terms_move_the_model_as_the_dense_formula_says(momentum: dict[str, Any]) -> None:
    """In every round four clients report in time; two reports of the round before and one from two rounds before are
    late."""
    algorithm, reference = decomfl(**momentum), dense(momentum)
    plans = [plan_of(algorithm, round, round) for round in range(ROUNDS)]
    log: list[ScalarCommit] = []
    for round, plan in enumerate(plans):
        fresh = {client: scalars_of(plan, client) for client in range(4)}
        overdue = []
        for since, who in ((2, (6,)), (1, (4, 5))):
            if round >= since:
                old = plans[round - since]
                overdue.append(LateReports(old, {client: scalars_of(old, client) for client in who}, 0.5**since / 8))
        log.append(algorithm.aggregate(None, plan, fresh, late=overdue)[0])
        reference.own(plan, fresh)
        for late in overdue:
            reference.late(late.plan, late.reports, late.weight)
    assert {term.scalars.shape for term in log[-1].terms} == {(2, 8), (2, 1)}
    assert {commit.terms[-1].scalars.shape for commit in log} == {(1, 2), (3, 4), (2, 1), (2, 8)}
    for received in (log, algorithm.unpack_commits(over_the_wire(algorithm.pack_commits(log).body))):
        replica = algorithm.replica(x0(DIMENSION, np.float64))
        algorithm.apply(replica, received)
        assert np.abs(reference.x - x0(DIMENSION, np.float64)).max() > 0.5
        np.testing.assert_allclose(replica.x, reference.x, rtol=0, atol=1e-10)
        if "momentum" in momentum:
            np.testing.assert_allclose(replica.fields["momentum"], reference.m, rtol=0, atol=1e-10)


@each_variant
def test_a_buffer_of_fresh_and_late_reports_is_their_weighted_mean(momentum: dict[str, Any]) -> None:
    """A buffer of four reports: two fresh with weight 1/4 each, two late with weight s/4 each."""
    algorithm, reference = decomfl(**momentum), dense(momentum)
    first, second = plan_of(algorithm, 1, 0), plan_of(algorithm, 2, 1)
    fresh, late = (
        {0: scalars_of(second, 0), 3: scalars_of(second, 3)},
        {1: scalars_of(first, 1), 2: scalars_of(first, 2)},
    )
    replica = algorithm.replica(x0(DIMENSION, np.float64))
    replica.version = 1
    overdue = [LateReports(first, late, 0.5 / 4)]
    algorithm.apply(replica, [algorithm.aggregate(None, second, fresh, share=0.5, late=overdue)[0]])
    reference.own(second, fresh, share=0.5)
    reference.late(first, late, 0.125)
    np.testing.assert_allclose(replica.x, reference.x, rtol=0, atol=1e-10)


@each_variant
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_momentum_does_not_advance_for_a_late_report(momentum: dict[str, Any], dtype: Any) -> None:
    algorithm = decomfl(**momentum)
    first, second, third = (plan_of(algorithm, round, round) for round in range(3))
    own = [algorithm.aggregate(None, plan, {0: scalars_of(plan, 0)})[0] for plan in (first, second)]
    late = [LateReports(first, {1: scalars_of(first, 1)}, 0.25)]
    plain, mixed = algorithm.replica(x0(DIMENSION, dtype)), algorithm.replica(x0(DIMENSION, dtype))
    algorithm.apply(plain, own)
    algorithm.apply(mixed, [own[0], algorithm.aggregate(None, second, {0: scalars_of(second, 0)}, late=late)[0]])
    assert mixed.digests()["x"] != plain.digests()["x"]
    before = mixed.copy()
    algorithm.apply(mixed, [algorithm.aggregate(None, third, {}, share=0.0, late=late)[0]])
    assert mixed.digests()["x"] != before.digests()["x"] and mixed.version == 3
    if "momentum" in momentum:
        for replica in (before, mixed):
            assert replica.digests()["momentum"] == plain.digests()["momentum"]


# commits of an asynchronous round, which may hold no report of that round


@st.composite
def logs(draw: st.DrawFn) -> tuple[Any, list[ScalarCommit]]:
    """Rounds with or without reports of their own, with late reports of any earlier ones, under changing K and P."""
    algorithm = decomfl(**draw(st.sampled_from(VARIANTS)))
    plans, log = list[Any](), list[ScalarCommit]()
    for round in range(draw(st.integers(1, 7))):
        plan = plan_of(algorithm, round, len(log))
        fresh = draw(st.integers(0, 3))
        overdue = [
            LateReports(
                plans[old],
                {client: scalars_of(plans[old], client) for client in range(draw(st.integers(1, 2)))},
                weight,
            )
            for old in sorted(draw(st.sets(st.integers(0, round - 1), max_size=3)) if round else ())
            for weight in [draw(st.sampled_from([0.5, 0.1, 1.0, 3**-0.5]))]
        ]
        plans.append(plan)
        if fresh or overdue:
            share = draw(st.sampled_from([1.0, 1 / 3])) if fresh and overdue else float(fresh > 0)
            reports = {client: scalars_of(plan, client) for client in range(fresh)}
            log.append(algorithm.aggregate(None, plan, reports, share=share, late=overdue)[0])
    return algorithm, log


@pytest.mark.slow
@settings(max_examples=60)
@given(logs(), st.sets(st.integers(0, 7)), st.booleans())
def test_a_log_with_late_terms_folds_to_the_same_bits_for_every_split_and_lag(
    case: tuple[Any, list[ScalarCommit]], cuts: set[int], private: bool
) -> None:
    algorithm, log = case
    assert bits(algorithm.unpack_commits(over_the_wire(algorithm.pack_commits(log).body))) == bits(log)
    direct = algorithm.replica(x0(DIMENSION))
    for commit in log:
        algorithm.apply(direct, [commit])
    assert [direct.version, *(commit.version for commit in log)] == [len(log), *range(1, len(log) + 1)]
    replicas = Replicas(algorithm, lambda: algorithm.replica(x0(DIMENSION)), shares=not private)
    for client, version in enumerate([*sorted(cut for cut in cuts if cut < len(log)), len(log)]):
        for stop in (version, len(log)):
            sent = algorithm.pack_commits(log[replicas.version(client) : stop]).body
            replicas.advance(client, algorithm.unpack_commits(over_the_wire(sent)), stop)
        assert bits(replicas.get(client)) == bits(direct)


def test_a_commit_of_late_reports_alone_names_its_round() -> None:
    algorithm = decomfl()
    old, now = plan_of(algorithm, 0, 0), plan_of(algorithm, 4, 1)
    commit, _ = algorithm.aggregate(None, now, {}, share=0.0, late=[LateReports(old, {0: scalars_of(old, 0)}, 0.5)])
    (received,) = algorithm.unpack_commits(over_the_wire(algorithm.pack_commits([commit]).body))
    assert bits(received) == bits(commit)
    assert (received.round, received.version, [term.round for term in received.terms]) == (4, 2, [4, 0])


def test_a_late_term_costs_a_seed_its_scalars_and_a_weight() -> None:
    """Twenty ordinary commits of ten scalars, and the same with a late term each."""
    algorithm = decomfl(local_steps=1, perturbations=10)
    plans = [plan_of(algorithm, round, round) for round in range(21)]
    plain = [algorithm.aggregate(None, plan, {0: scalars_of(plan, 0)})[0] for plan in plans]
    late = [
        algorithm.aggregate(None, now, {0: scalars_of(now, 0)}, late=[LateReports(old, {1: scalars_of(old, 1)}, 0.5)])[
            0
        ]
        for old, now in pairwise(plans)
    ]
    sizes = [size(algorithm.pack_commits(commits).body) for commits in (plain[1:], late)]
    per_commit = 8 + 40 + (2 + 2 * 4 + 2 * 4)  # seed and scalars; how many terms, and each one's round and weight
    assert 0 <= sizes[1] - sizes[0] - 20 * per_commit <= 12


def size(value: Sequence[Any]) -> int:
    import msgpack

    return len(msgpack.packb(value))


@pytest.mark.parametrize(("name", "weight"), [("decomfl", 0.25), ("fedkseed", 0.5)])
def test_whole_numbers_of_a_late_report_are_of_the_rate_of_its_round(name: str, weight: float) -> None:
    """As those of reports that are committed one by one."""
    rates = {"arithmetic": "integer"} if name == "decomfl" else {}
    algorithm = make(name, learning_rate={0: 2.0**-3, 1: 2.0**-6}, perturbations=2, **rates).sized(DIMENSION)
    plans = [plan_of(algorithm, round, round) for round in range(2)]
    report = scalars_of(plans[0], 4)
    if name == "fedkseed":
        report = PoolReport(np.array([[3, 8]]), report)
    late = [LateReports(plans[0], {4: report}, weight)]
    together, _ = algorithm.aggregate(None, plans[1], {}, late=late)
    alone, _ = algorithm.aggregate(None, plans[1], None, late=late)
    assert numbers_of(together).any() and numbers_of(together).tolist() == numbers_of(alone).tolist()


def numbers_of(commit: Any) -> Any:
    """Return the whole numbers of a commit's last term, or of all its terms in a pool."""
    return commit.terms[-1].scalars if isinstance(commit, ScalarCommit) else commit.numbers
