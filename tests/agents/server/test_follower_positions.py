"""The versions that followers really hold, by what they are given and by what they answer."""

from __future__ import annotations

from typing import Any

import pytest

from seedbus.agents.server.follower_positions import FollowerPositions
from seedbus.bus import Envelope, Kind, Tally, encode

CLIENT = 3


def frame(kind: Kind) -> bytes:
    return encode(Envelope(kind, CLIENT, 0, 0, []))[0]


JOIN, REPORT, PULL = map(frame, (Kind.JOIN, Kind.REPORT, Kind.PULL))


def at(version: int, **options: Any) -> FollowerPositions:
    """Return the positions of a run in which a client is at a version."""
    positions = FollowerPositions(**options)
    positions.restore({CLIENT: version}, {})
    return positions


@pytest.mark.parametrize(
    ("before", "base", "tally", "after", "repeated"),
    [
        (2, 5, Tally(seeds=1 + 6, since=2), 5, 0),
        (2, 5, Tally(seeds=1 + 10, since=0), 5, 4),
        (2, 5, Tally(seeds=1 + 10, since=0, is_sum=True), 2, 10),  # it has some of the sum
        (2, 5, Tally(seeds=1 + 6, since=2, is_sum=True), 5, 0),
        (1, 5, Tally(seeds=1 + 6, since=2), 1, 6),  # it lacks the one before
        (5, 5, Tally(seeds=1 + 10, since=0), 5, 10),
        (6, 5, Tally(seeds=1 + 10, since=0), 6, 10),
        (0, 0, Tally(seeds=1, since=0), 0, 0),
        (6, 5, Tally(since=0), 6, 0),
        (2, 5, Tally(seeds=1, since=0), 5, 0),  # commits without seeds
        (2, 5, Tally(since=0), 5, 0),
        (2, 5, Tally(seeds=1 + 1, since=0), 5, 0),  # and one with
    ],
)
def test_a_plan_that_is_delivered_brings_a_client_to_its_version_if_it_can_follow(
    before: int, base: int, tally: Tally, after: int, repeated: int
) -> None:
    positions = at(before, count_seeds=lambda version, later: 2 * (later - version))
    assert positions.delivered((Kind.PLAN, CLIENT, 0, 0, 0), base, tally) == repeated
    assert positions.delivered_versions == {CLIENT: after} and positions.actual_versions == {CLIENT: before}
    assert positions.lags([CLIENT, 0], 9) == [9 - after, 9]


@pytest.mark.parametrize("kind", [Kind.WAKE, Kind.REFUSE, Kind.COMMIT, Kind.SNAPSHOT, Kind.FETCH])
def test_only_a_wake_and_a_refusal_set_a_client_back_when_they_are_delivered(kind: Kind) -> None:
    for base, after in ((2, 2), (6, 4)):
        positions = at(4)
        assert positions.delivered((kind, CLIENT, 0, 0, 0), base, Tally(seeds=9, since=4)) == 0
        assert positions.delivered_versions == {CLIENT: after if kind in (Kind.WAKE, Kind.REFUSE) else 4}


@pytest.mark.parametrize(
    ("kind", "frames", "reaches"),
    [
        (Kind.PLAN, [REPORT], {5, 7}),
        (Kind.PLAN, [], {5, 7}),
        (Kind.PLAN, [JOIN], set()),  # it cannot follow
        (Kind.PLAN, [JOIN, JOIN], set()),
        (Kind.PLAN, [JOIN, REPORT], {5, 7}),
        (Kind.PLAN, [REPORT, JOIN], {5, 7}),
        (Kind.COMMIT, [], {5, 7}),
        (Kind.SNAPSHOT, [JOIN], {5, 7}),  # it has the last chunk
        (Kind.SNAPSHOT, [PULL], set()),
        (Kind.SNAPSHOT, [], set()),
        (Kind.FETCH, [PULL], set()),
        (Kind.WAKE, [JOIN], {3, 5}),
        (Kind.REFUSE, [JOIN], {3, 5}),
    ],
)
def test_an_answer_shows_the_version_that_a_client_has_reached(
    kind: Kind, frames: list[bytes], reaches: set[int]
) -> None:
    for base in (3, 5, 7):
        positions = at(5)
        assert not positions.answered((kind, CLIENT, 0, 0, 0), base, frames, [])
        after = base if base in reaches else 5
        assert positions.actual_versions == {CLIENT: after}
        assert positions.delivered_versions == {CLIENT: after if kind is Kind.SNAPSHOT else 5}
        assert positions.take_moved() == ([(CLIENT, after)], []) and positions.take_moved() == ([], [])


def test_the_newest_note_of_a_download_is_kept_until_it_has_ended() -> None:
    positions = FollowerPositions()

    def answered(kind: Kind, client: int, *notes: bytes) -> bool:
        return positions.answered((kind, client, 0, 0, 0), 1, [], list(notes))

    assert (
        answered(Kind.SNAPSHOT, 8, b"old", b"new") and answered(Kind.WAKE, 1, b"1") and answered(Kind.REFUSE, 0, b"0")
    )
    assert not answered(Kind.PLAN, 1, b"of a plan") and not answered(Kind.SNAPSHOT, 4) and not answered(Kind.PLAN, 8)
    versions = [(0, 0), (1, 1), (4, 0), (8, 1)]
    assert positions.take_moved() == (versions, [(0, b"0"), (1, b"1"), (8, b"new")])
    assert answered(Kind.SNAPSHOT, 8) and positions.partial_downloads[8] == b""
    assert positions.take_moved() == ([(8, 1)], [(8, b"")])
