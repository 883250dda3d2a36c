"""The commits that a server keeps in memory: enough, and none that a snapshot or the journal can replace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.catch_up.commit_window import CommitWindow


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
