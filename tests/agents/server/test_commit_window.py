"""The commits that a server keeps in memory: enough, and none that a snapshot or the journal can replace."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.client_positions import ClientPositions
from seedbus.agents.server.commit_window import CommitWindow, LowestVersion


class Archive:
    """An archive of all commits, like the journal; only the newest may be missing."""

    def __init__(self) -> None:
        self.all: list[int] = []
        self.asked: list[tuple[int, int]] = []

    def __call__(self, after: int, last: int) -> list[Any]:
        assert last < max(2, len(self.all)), "the newest is on its way to the disk"
        self.asked.append((after, last))
        return self.all[after:last]


def new_window(commits: int | None = None, size: int | None = None) -> tuple[CommitWindow, Archive]:
    archive = Archive()
    return CommitWindow(archive, commits, size), archive


def append(window: CommitWindow, archive: Archive, size: int = 1) -> None:
    archive.all.append(len(archive.all) + 1)
    window.append(archive.all[-1], size)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), max_size=40),
    st.one_of(st.none(), st.integers(1, 10)),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_any_range_of_commits_is_available_after_pruning(
    steps: list[tuple[int, int]], commits: int | None, size: int | None
) -> None:
    window, archive = new_window(commits, size)
    for bytes_, slowest in steps:
        append(window, archive, bytes_)
        window.prune(min(slowest, window.version))
        assert 1 <= len(window) <= window.version
        if commits is not None:
            assert len(window) <= max(1, commits)
    for after in range(window.version + 1):
        assert window.since(after) == archive.all[after:]
        for last in range(after, window.version + 1):
            assert window.between(after, last) == archive.all[after:last]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 10)),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_a_follower_is_beyond_the_budget_if_it_misses_too_many_commits_or_bytes(
    sizes: list[int], commits: int | None, size: int | None
) -> None:
    window, archive = new_window(commits, size)
    assert window.is_limited == (commits is not None or size is not None) and window.counts_bytes == (size is not None)
    for bytes_ in sizes:
        append(window, archive, bytes_)
    for version in range(len(sizes) + 1):
        missed = sizes[version:]
        is_beyond = len(missed) > (commits or len(missed)) or sum(missed) > (size or sum(missed))
        assert window.is_beyond(version) == (len(missed) > 1 and is_beyond)


@pytest.mark.parametrize("slowest", [0, 3])
def test_without_a_budget_the_slowest_client_pins_the_window(slowest: int) -> None:
    window, archive = new_window()
    for _ in range(50):
        append(window, archive)
        window.prune(slowest)
    assert not window.is_beyond(0) and len(window) == 50 - slowest
    assert window.since(slowest) == archive.all[slowest:] and archive.asked == []
    assert window.since(0) == archive.all and archive.asked == ([(0, 3)] if slowest else [])


def test_of_dense_commits_the_newest_is_kept_and_sent_to_whoever_lacks_it() -> None:
    window = CommitWindow(lambda after, last: pytest.fail("the newest is all that is needed"), is_dense=True)
    for version in (2, 3):  # a resumed run reads no older ones
        newest = SimpleNamespace(version=version)
        window.append(newest)
        assert (window.version, window.first, len(window)) == (version, version - 1, 1)
    window.prune(3)
    found = {(after, last): window.between(after, last) for after in range(4) for last in range(5)}
    assert found == {(after, last): [newest] if after < 3 <= last else [] for after, last in found}


def test_with_a_budget_a_client_that_never_took_part_pins_nothing() -> None:
    window, archive = new_window(commits=10)
    for _ in range(500):
        append(window, archive)
        window.prune(0)
    assert len(window) == 10


def test_without_an_archive_all_commits_are_kept() -> None:
    window = CommitWindow()
    for number in range(9):
        window.append(number)
        window.prune(window.version)
    assert window.since(0) == list(range(9))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_the_slowest_position_is_the_lowest_version_of_a_member(steps: list[tuple[bool, int]]) -> None:
    lowest, model = LowestVersion(), Counter[int]()
    for is_more, version in steps:
        if is_more:
            lowest.add(version)
            model[version] += 1
        elif model[version]:
            lowest.discard(version)
            model[version] -= 1
        assert lowest.get(77) == min((version for version, count in model.items() if count), default=77)


@given(
    st.lists(st.tuples(st.sampled_from(["enter", "move", "leave"]), st.integers(0, 5), st.integers(0, 9)), max_size=60)
)
def test_positions_track_the_slowest_member_for_any_moves(steps: list[tuple[str, int, int]]) -> None:
    positions, stored = ClientPositions(6), dict[int, MemberPosition]()
    for step, client, version in steps:
        if step == "enter":
            positions.enter([(client, version)])
        elif step == "leave":
            positions.leave(client)
        elif client in positions.versions:
            positions.move(client, version)
        stored.update(positions.take_moved())
        assert positions.slowest(77) == min((positions.versions[member] for member in positions.members), default=77)
        restored = ClientPositions(6)
        restored.restore(stored, with_members=True)
        assert (restored.versions, list(restored.members)) == (positions.versions, list(positions.members))
        assert restored.slowest(77) == positions.slowest(77)


def test_a_hundred_thousand_at_one_version_cost_as_much_as_one() -> None:
    places = ClientPositions(100_000)
    places.enter((client, 0) for client in range(100_000))
    for version in range(1, 200):
        for client in range(5):
            places.move(client, version)
        assert places.slowest(0) == 0
        assert len(places._lowest._heap) <= version + 1
        assert len(places._lowest._counts) == 2
