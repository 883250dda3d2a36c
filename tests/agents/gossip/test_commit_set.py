"""The set of commits that a node has, its summary, and the model that is its sum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.gossip.commit_set import CommitSet, Record
from seedbus.agents.gossip.node import Steps, fold
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.quadratic import Quadratic

NODES, EACH = 4, 5
IDENTITIES = [(origin, number) for origin in range(NODES) for number in range(EACH)]
SUBSETS = st.lists(st.sampled_from(IDENTITIES))


def set_of(identities: Sequence[tuple[int, int]]) -> CommitSet:
    held = CommitSet(NODES)
    for origin, number in identities:
        held.add([origin, number, 0, b""])
    return held


@settings(max_examples=100)
@given(SUBSETS, SUBSETS)
def test_a_summary_tells_exactly_what_another_set_lacks(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    us, them = set_of(ours), set_of(theirs)
    assert {(origin, number) for origin, number, *_ in us.beyond(them.summary())} == set(ours) - set(theirs)
    assert us.lacks(them.summary()) == bool(set(theirs) - set(ours))
    assert us.size == len(set(ours))
    assert [tuple(record[:2]) for record in us] == sorted(set(ours))


def test_a_commit_that_is_there_already_changes_nothing() -> None:
    held = set_of([(1, 0)])
    assert not held.add([1, 0, 0, b"another"])
    assert list(held) == [[1, 0, 0, b""]]


@pytest.mark.parametrize(
    ("count", "width", "next_width"), [(254, 1, 1), (255, 1, 2), (256, 2, 2), (65_535, 2, 4), (65_536, 4, 4)]
)
def test_a_summary_holds_large_numbers_in_no_more_bytes_than_they_need(count: int, width: int, next_width: int) -> None:
    held, none = set_of([(1, number) for number in range(count)]), CommitSet(NODES)
    held.add([2, count, 0, b""])  # the range of it ends at count + 1
    assert [len(column) for column in held.summary()] == [1 + NODES * width, 1 + 3 * next_width]
    assert not held.lacks(held.summary()) and not held.beyond(held.summary())
    assert none.lacks(held.summary()) and len(held.beyond(none.summary())) == count + 1


@cache
def steps_and_records() -> tuple[Steps, list[Record]]:
    """Return twenty steps of four nodes, each from the sum of those before it."""
    algorithm = DeComFL(arithmetic="integer", perturbations=3, learning_rate=0.01)
    problem = Quadratic(dimension=40).bind(seed=1, clients=NODES, partition=Iid())
    steps, records = Steps(algorithm, problem, NODES, seed=1), []
    replica = algorithm.replica(problem.x0())
    for round, number in zip(count(), range(EACH), strict=False):
        new = [steps.measure(node, number, round, replica) for node in range(NODES)]
        fold(replica, steps, new)
        records += new
    return steps, records


@settings(max_examples=60)
@given(st.permutations(range(NODES * EACH)), st.lists(st.integers(0, NODES * EACH), max_size=6))
def test_any_order_and_any_grouping_of_commits_lead_to_one_digest(order: list[int], cuts: list[int]) -> None:
    steps, records = steps_and_records()
    start = steps.algorithm.replica(Quadratic(dimension=40).bind(seed=1, clients=NODES, partition=Iid()).x0())
    expected, found = start.copy(), start.copy()
    fold(expected, steps, records)
    ends = [0, *sorted(cuts), len(order)]
    for first, end in pairwise(ends):
        fold(found, steps, [records[index] for index in order[first:end]])
    assert found.digest() == expected.digest()
    assert (found.x != start.x).any()
