"""Reports that commit as they come: any order and any grouping of the same reports leads to one model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.contract import LateReports
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.fedkseed import FedKSeed, drawn
from seedbus.algorithms.scalar_only.pool import PoolReport

WORK: dict[str, Any] = {"perturbations": 3, "local_steps": 2, "learning_rate": {0: 0.3, 2: 0.1}}
KINDS: dict[str, Any] = {
    "scalars": DeComFL(arithmetic="integer", **WORK),
    "numbers": DeComFL(arithmetic="integer", precision="int32", **WORK),
    "pool": FedKSeed(pool=16, **WORK),
}
SHARE = 1 / 3
X0 = np.linspace(-1, 1, 101, dtype=np.float32)


def reports_of(kind: str) -> list[LateReports]:
    """Return nine reports, each alone: of three clients for three plans, the last with another learning rate."""
    algorithm, values, found = KINDS[kind], np.random.default_rng(5), []
    for round in range(3):
        plan = algorithm.plan(round, round, 1000 + round)
        for client in range(3):
            report: Any = values.normal(size=plan.shape).astype(np.float32)
            if kind == "numbers":
                report = values.integers(-(2**20), 2**20, plan.shape, np.int32)
            if kind == "pool":
                report = PoolReport(drawn(10 * round + client, plan.shape, 16), report)
            found.append(LateReports(plan, {client: report}, SHARE))
    return found


def model(kind: str, groups: list[list[LateReports]]) -> bytes:
    """Return x after a commit of each group, which the wire has carried."""
    algorithm, state, replica = KINDS[kind], None, KINDS[kind].replica(X0)
    for version, group in enumerate(groups):
        plan = algorithm.plan(len(groups) + version, version, 7)
        commit, state = algorithm.aggregate(state, plan, None, late=group)
        (unpacked,) = algorithm.unpack_commits(algorithm.pack_commits([commit]).body)
        assert unpacked.version == commit.version == version + 1
        algorithm.apply(replica, [unpacked])
    return bytes(replica.x.tobytes())


@settings(max_examples=40)
@given(
    order=st.permutations(range(9)),
    cuts=st.sets(st.integers(1, 8)),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_any_order_and_any_grouping_of_reports_lead_to_the_same_bits(
    order: list[int], cuts: set[int], kind: str
) -> None:
    each = reports_of(kind)
    edges = [0, *sorted(cuts), 9]
    groups = [[each[at] for at in order[start:end]] for start, end in pairwise(edges)]
    assert model(kind, groups) == model(kind, [[report] for report in each])


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_weighs_what_its_group_says_at_the_learning_rate_of_its_own_plan(kind: str) -> None:
    algorithm, reports = KINDS[kind], reports_of(kind)
    assert algorithm.facts.is_order_free
    early, late = reports[0], reports[-1]
    plan = replace(late.plan, learning_rate=0.3)
    moved = [
        np.frombuffer(model(kind, [[each]]), np.int64) - algorithm.replica(X0).x
        for each in (early, early._replace(weight=1.0), late, late._replace(plan=plan))
    ]
    np.testing.assert_allclose(moved[1], 3 * moved[0], rtol=1e-3, atol=2**20)
    if kind != "numbers":  # a client that rounds its own n has multiplied it by the learning rate already
        np.testing.assert_allclose(moved[3], 3 * moved[2], rtol=1e-3, atol=2**20)


class Own(DeComFL):
    """An algorithm with a way of its own to aggregate, which says nothing of reports that count alone."""

    def aggregate(self, *arguments: Any, **named: Any) -> Any:
        return super().aggregate(*arguments, **named)


@pytest.mark.parametrize(
    ("algorithm", "is_order_free"),
    [
        (make("decomfl", arithmetic="integer"), True),
        (make("decomfl"), False),
        (make("decomfl", arithmetic="integer", aggregation="median"), False),
        (make("feedsign"), False),
        (make("fedkseed"), True),
        (make("fedscalar"), False),
        (Own(arithmetic="integer"), False),
    ],
    ids=["whole numbers", "floats", "a median", "a majority", "fedkseed", "fedscalar", "a plug-in"],
)
def test_only_means_of_whole_numbers_do_not_depend_on_the_order(algorithm: Any, is_order_free: bool) -> None:
    assert algorithm.facts.is_order_free == is_order_free
