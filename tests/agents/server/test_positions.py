"""Which clients are members, the version that the server believes each at, and those that followers really hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.positions import LowestVersion, Positions
from seedbus.bus import Envelope, Kind, Tally, encode
from seedbus.pieces import Frame

CLIENT = 3


def frame(kind: Kind) -> bytes:
    return encode(Envelope(kind, CLIENT, 0, 0, []))[0]


JOIN, REPORT, PULL = map(frame, (Kind.JOIN, Kind.REPORT, Kind.PULL))


def at(version: int, **options: Any) -> Positions:
    """Return the positions of a run in which a client is at a version."""
    positions = Positions(9, **options)
    positions.restore_actual({CLIENT: version}, {})
    return positions


def test_what_has_changed_is_taken_once_in_the_order_of_clients() -> None:
    positions = Positions(200_000)
    positions.enter([(100_000, 2), (3, 1), (64, 2)])
    positions.leave(64)
    assert positions.take_believed() == [
        (3, MemberPosition(1, True)),
        (64, MemberPosition(2, False)),
        (100_000, MemberPosition(2, True)),
    ]
    assert positions.take_believed() == [] and positions.by_version == {1: 1, 2: 1}


def test_a_member_of_whom_a_checkpoint_says_nothing_is_at_the_beginning() -> None:
    positions = Positions(8)
    positions.enter([(5, 3), (6, 4)])
    positions.restore_believed({6: MemberPosition(2, True)}, with_members=False)
    assert (positions.believed, positions.by_version, positions.slowest(9)) == ({5: 0, 6: 2}, {0: 1, 2: 1}, 0)


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
    positions, stored = Positions(6), dict[int, MemberPosition]()
    for step, client, version in steps:
        if step == "enter":
            positions.enter([(client, version)])
        elif step == "leave":
            positions.leave(client)
        elif client in positions.believed:
            positions.move(client, version)
        stored.update(positions.take_believed())
        assert positions.slowest(77) == min((positions.believed[member] for member in positions.members), default=77)
        restored = Positions(6)
        restored.restore_believed(stored, with_members=True)
        assert (restored.believed, list(restored.members)) == (positions.believed, list(positions.members))
        assert restored.slowest(77) == positions.slowest(77)


def test_a_hundred_thousand_at_one_version_cost_as_much_as_one() -> None:
    places = Positions(100_000)
    places.enter((client, 0) for client in range(100_000))
    for version in range(1, 200):
        for client in range(5):
            places.move(client, version)
        assert places.slowest(0) == 0
        assert len(places._lowest._heap) <= version + 1
        assert len(places._lowest._counts) == 2


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
    assert positions.on_delivery((Kind.PLAN, CLIENT, 0, 0, 0), base, tally) == repeated
    assert positions.delivered == {CLIENT: after} and positions.actual == {CLIENT: before}
    assert positions.lags([CLIENT, 0], 9) == [9 - after, 9]


@pytest.mark.parametrize("kind", [Kind.WAKE, Kind.REFUSE, Kind.COMMIT, Kind.SNAPSHOT, Kind.FETCH])
def test_only_a_wake_and_a_refusal_set_a_client_back_when_they_are_delivered(kind: Kind) -> None:
    for base, after in ((2, 2), (6, 4)):
        positions = at(4)
        assert positions.on_delivery((kind, CLIENT, 0, 0, 0), base, Tally(seeds=9, since=4)) == 0
        assert positions.delivered == {CLIENT: after if kind in (Kind.WAKE, Kind.REFUSE) else 4}


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
    kind: Kind, frames: list[Frame], reaches: set[int]
) -> None:
    for base in (3, 5, 7):
        positions = at(5)
        assert not positions.on_answer((kind, CLIENT, 0, 0, 0), base, frames, [])
        after = base if base in reaches else 5
        assert positions.actual == {CLIENT: after}
        assert positions.delivered == {CLIENT: after if kind is Kind.SNAPSHOT else 5}
        assert positions.take_actual() == ([(CLIENT, after)], []) and positions.take_actual() == ([], [])


def test_the_newest_note_of_a_download_is_kept_until_it_has_ended() -> None:
    positions = Positions(9)

    def answered(kind: Kind, client: int, *notes: bytes) -> bool:
        return positions.on_answer((kind, client, 0, 0, 0), 1, [], list(notes))

    assert (
        answered(Kind.SNAPSHOT, 8, b"old", b"new") and answered(Kind.WAKE, 1, b"1") and answered(Kind.REFUSE, 0, b"0")
    )
    assert not answered(Kind.PLAN, 1, b"of a plan") and not answered(Kind.SNAPSHOT, 4) and not answered(Kind.PLAN, 8)
    versions = [(0, 0), (1, 1), (4, 0), (8, 1)]
    assert positions.take_actual() == (versions, [(0, b"0"), (1, b"1"), (8, b"new")])
    assert answered(Kind.SNAPSHOT, 8) and positions.partial_downloads[8] == b""
    assert positions.take_actual() == ([(8, 1)], [(8, b"")])
