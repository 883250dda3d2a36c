"""The replicas of a process: shared by version, exact, and folded as rarely as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seedbus.agents.client.replicas import Replicas
from seedbus.algorithms.contract import CommitGap, Replica
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.dense.payloads import DenseCommit
from seedbus.algorithms.scalar_only.decomfl import DeComFL

X0 = np.linspace(-1, 1, 300, dtype=np.float32)


class Counting(DeComFL):
    """Counts the commits that are really folded."""

    def apply(self, replica: Replica, commits: Sequence[Any]) -> None:
        before = replica.version
        super().apply(replica, commits)
        FOLDED.append(replica.version - before)


FOLDED: list[int] = []
ALGORITHM = Counting(perturbations=2, momentum=0.5)


def log(length: int) -> list[Any]:
    commits: list[Any] = []
    for round in range(length):
        scalars = np.array([[round + 1.0, -2.0]], np.float32)
        commits.append(ALGORITHM.aggregate(None, ALGORITHM.plan(round, round, 7 * round), {0: scalars})[0])
    return commits


def replicas(*, private: bool = False) -> Replicas:
    FOLDED.clear()
    return Replicas(ALGORITHM, lambda: ALGORITHM.replica(X0), shares=not private)


def direct(commits: Sequence[Any]) -> str:
    replica = ALGORITHM.replica(X0)
    ALGORITHM.apply(replica, commits)
    return replica.digest()


@pytest.mark.parametrize("private", [False, True])
def test_a_client_gets_its_own_version_to_the_bit_beside_other_versions(private: bool) -> None:
    shared, commits = replicas(private=private), log(6)
    for client, version in ((0, 4), (1, 3), (2, 5), (3, 4), (1, 6), (4, 1), (0, 5)):
        replica = shared.advance(client, commits[:version], version)
        assert (replica.version, replica.digest()) == (version, direct(commits[:version]))
        assert shared.version(client) == version
    for client, version in ((1, 6), (2, 5), (3, 4), (4, 1), (0, 5)):  # it keeps its version when others advance
        assert shared.get(client).digest() == direct(commits[:version])


def test_a_client_that_lagged_starts_from_the_nearest_replica() -> None:
    shared, commits = replicas(), log(50)
    for version in range(1, 51):  # every round asks a new client
        shared.advance(version, commits[:version], version)
    assert sum(FOLDED) == 50


def test_clients_at_one_version_share_one_replica_unless_they_are_private() -> None:
    commits = log(3)
    shared, private = replicas(), replicas(private=True)
    assert shared.advance(0, commits, 3) is shared.advance(1, commits, 3)
    assert private.advance(0, commits, 3) is not private.advance(1, commits, 3)


def test_a_gap_leaves_a_client_where_it_was() -> None:
    shared, commits = replicas(), log(5)
    shared.advance(0, commits[:2], 2)
    for missed, version in ((commits[3:], 5), (commits[2:4], 5)):
        with pytest.raises(CommitGap):
            shared.advance(0, missed, version)
    assert shared.get(0).digest() == direct(commits[:2])


@pytest.mark.parametrize("private", [False, True])
def test_clients_are_reset_to_the_given_versions(private: bool) -> None:
    shared, commits = replicas(private=private), log(6)
    shared.advance(0, commits[:3], 3)
    shared.advance(1, commits[:5], 5)
    shared.advance(7, commits[:2], 2)
    shared.reset({0: 3, 1: 4, 2: 6, 3: 0}, commits)
    assert {client: shared.version(client) for client in range(4)} == {0: 3, 1: 4, 2: 6, 3: 0}
    for client, version in ((0, 3), (1, 4), (2, 6), (3, 0)):
        assert shared.get(client).digest() == direct(commits[:version])
        assert shared.advance(client, commits, 6).digest() == direct(commits)


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_client_that_has_lost_its_state_starts_from_x0_wherever_it_was_reset_to(is_in_memory: bool) -> None:
    shared, commits = replicas(), log(4)
    shared.reset({0: 3}, commits)
    if is_in_memory:
        shared.get(0)
    shared.forget(0)
    assert (shared.version(0), shared.get(0).digest()) == (0, direct([]))


def test_a_client_that_stays_at_its_version_keeps_its_replica() -> None:
    shared, commits = replicas(), log(4)
    replica = shared.advance(0, commits, 4)
    FOLDED.clear()
    shared.reset({0: 4, 1: 4}, commits)
    assert shared.get(0) is replica and shared.get(1) is replica
    assert FOLDED == []


def test_a_process_hosts_the_clients_that_it_was_given() -> None:
    shared, commits = replicas(), log(4)
    assert 0 not in shared and shared.version(0) == 0
    shared.reset({0: 2, 5: 4}, commits)
    assert 0 in shared and 5 in shared and 1 not in shared
    shared.advance(5, commits, 4)
    shared.reset({0: 2}, commits)
    assert 5 not in shared and shared.version(5) == 0


def test_the_log_is_folded_only_for_clients_that_are_asked() -> None:
    shared, commits = replicas(), log(40)
    shared.reset({client: 40 for client in range(100)}, commits)
    assert FOLDED == []
    for client in range(100):
        shared.get(client)
    assert sum(FOLDED) == 40


def test_each_version_of_a_log_is_folded_from_the_newest_before_it() -> None:
    shared, commits = replicas(), log(40)
    shared.reset({0: 10, 1: 30, 2: 40}, commits)
    for client in range(3):
        shared.get(client)
    assert FOLDED == [10, 20, 10]


STEPS = st.lists(
    st.tuples(st.sampled_from(["advance", "forget", "install", "get", "reset"]), st.integers(0, 3), st.integers(0, 5)),
    max_size=20,
)
LOG = log(5)
DIGESTS = [direct(LOG[:version]) for version in range(6)]


@pytest.mark.parametrize("private", [False, True])
@settings(max_examples=60)
@given(steps=STEPS)
@example(steps=[("advance", 0, 3), ("install", 1, 3), ("install", 0, 4)])
def test_whatever_happens_a_client_has_the_bits_of_its_version_and_there_is_one_replica_for_each(
    private: bool, steps: list[tuple[str, int, int]]
) -> None:
    shared, versions = replicas(private=private), dict[int, int]()
    for step, client, version in steps:
        if step == "advance":
            versions[client] = max(version, versions.get(client, 0))
            shared.advance(client, LOG[:version], versions[client])
        elif step == "forget":
            versions[client] = 0
            shared.forget(client)
        elif step == "install":
            versions[client] = version
            replica = ALGORITHM.replica(X0)
            ALGORITHM.apply(replica, LOG[:version])
            shared.install(client, replica)
        elif step == "get":
            versions.setdefault(client, 0)
            shared.get(client)
        else:
            shared.reset(versions, LOG)
        assert all(shared.version(each) == versions.get(each, 0) for each in range(4))
        assert all(each in shared for each in versions)
        held = shared._by_client
        assert len(set(map(id, held.values()))) == (len(held) if private else len({versions[each] for each in held}))
        assert set(shared._by_version) == (set() if private else {versions[each] for each in held}), "and no others"
    assert all(shared.get(client).digest() == DIGESTS[version] for client, version in versions.items())


def test_a_gap_after_a_reset_leaves_a_client_at_its_version() -> None:
    shared, commits = replicas(), log(5)
    shared.reset({0: 2}, commits[:2])
    with pytest.raises(CommitGap):
        shared.advance(0, commits[3:], 5)
    assert shared.get(0).digest() == direct(commits[:2])
    assert shared.advance(0, commits[2:], 5).digest() == direct(commits)


@pytest.mark.parametrize("private", [False, True])
def test_a_dense_commit_is_a_replica_even_for_a_process_that_has_no_other(private: bool) -> None:
    """The process replaces another one whose client was at version 2 and is asked there again; the log has version
    3."""
    dense: Any = FedAvg().sized(2)
    commits = [DenseCommit(version, version - 1, (np.full(2, version, np.float32),)) for version in (1, 2, 3)]
    shared = Replicas(dense, lambda: dense.replica(np.zeros(2, np.float32)), shares=not private)
    shared.reset({0: 2, 1: 3}, commits[2:])
    with pytest.raises(CommitGap):
        shared.advance(0, [], 2)
    for misleading in ([commits[0]], [commits[2]]):
        with pytest.raises(CommitGap):
            shared.advance(0, misleading, 2)
    for _ in range(2):
        assert shared.advance(0, [commits[1]], 2).x.tolist() == [2, 2]
    assert shared.advance(1, [], 3).x.tolist() == [3, 3]
    assert shared.get(0).x.tolist() == [2, 2]
