"""The index of members against a sorted list, and its cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.server.member_index import MemberIndex

CLIENTS = 40
clients = st.integers(0, CLIENTS - 1)
steps = st.one_of(
    st.tuples(st.just("add"), clients),
    st.tuples(st.just("discard"), clients),
    st.tuples(st.just("update"), st.lists(clients, max_size=10)),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("without"), st.lists(clients, max_size=10)),
)


def assert_alike(members: MemberIndex, expected: set[int], size: int = CLIENTS) -> None:
    ordered = sorted(expected)
    assert len(members) == len(ordered)
    assert [members[place] for place in range(len(ordered))] == list(members) == members[:] == ordered
    assert [client in members for client in range(-1, size + 1)] == [
        client in expected for client in range(-1, size + 1)
    ]
    for outside in (len(ordered), -1):
        with pytest.raises(IndexError):
            members[outside]


@given(st.lists(steps, max_size=20))
def test_members_equal_a_sorted_list_after_any_operations(history: list[tuple[str, object]]) -> None:
    members, expected = MemberIndex(CLIENTS), set[int]()
    for operation, client_ in history:
        if isinstance(client_, int):
            {"add": members.add, "discard": members.discard}[operation](client_)
            {"add": expected.add, "discard": expected.discard}[operation](client_)
        elif operation == "update" and isinstance(client_, list):
            members.update(client_)
            expected.update(client_)
        elif isinstance(client_, list):
            with members.without(client_) as rest:
                assert_alike(rest, expected - set(client_))
        else:
            assert_alike(members, expected)
    assert_alike(members, expected)


@given(st.integers(1, 70), st.data())
def test_any_number_of_clients_is_supported(size: int, data: st.DataObject) -> None:
    members, expected = MemberIndex(size), data.draw(st.sets(st.integers(0, size - 1)))
    members.update(expected)
    assert_alike(members, expected, size)


def test_members_that_were_left_out_are_back_even_after_a_failure() -> None:
    members = MemberIndex(5)
    members.update([0, 2, 3])
    with pytest.raises(KeyError), members.without([2, 4]) as rest:
        assert list(rest) == [0, 3]
        raise KeyError
    assert members[:] == [0, 2, 3]


class _Counted(list[int]):
    """A list that counts accesses."""

    looks = 0

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().__getitem__(place)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda members: members[49_999], id="the n-th"),
        pytest.param(lambda members: members.discard(7), id="leaving"),
        pytest.param(lambda members: members.add(50_001), id="joining"),
        pytest.param(lambda members: members.update([3, 7]), id="coming back"),
    ],
)
def test_operations_among_a_hundred_thousand_members_cost_a_few_steps(act: Callable[[MemberIndex], object]) -> None:
    members = MemberIndex(100_000)
    members.update(client for client in range(100_000) if client != 50_001)
    assert members[50_001] == 50_002
    tree = members._tree = _Counted(members._tree or [])
    act(members)
    assert members._tree is tree and tree.looks <= 4 * 17
    assert members[49_990:50_010] == list(members)[49_990:50_010]
