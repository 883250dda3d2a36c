"""Which version each client has, and which clients are members, over joins, moves, departures and restarts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.client_positions import ClientPositions, LowestVersion


def test_what_has_changed_is_taken_once_in_the_order_of_clients() -> None:
    positions = ClientPositions(200_000)
    positions.enter([(100_000, 2), (3, 1), (64, 2)])
    positions.leave(64)
    assert positions.take_moved() == [
        (3, MemberPosition(1, True)),
        (64, MemberPosition(2, False)),
        (100_000, MemberPosition(2, True)),
    ]
    assert positions.take_moved() == [] and positions.by_version == {1: 1, 2: 1}


def test_a_member_of_whom_a_checkpoint_says_nothing_is_at_the_beginning() -> None:
    positions = ClientPositions(8)
    positions.enter([(5, 3), (6, 4)])
    positions.restore({6: MemberPosition(2, True)}, with_members=False)
    assert (positions.versions, positions.by_version, positions.slowest(9)) == ({5: 0, 6: 2}, {0: 1, 2: 1}, 0)


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
