"""Which version each client has, and which clients are members, over joins, moves, departures and restarts."""

from __future__ import annotations

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.client_positions import ClientPositions


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
