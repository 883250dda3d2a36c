"""Who is let in: the proof that a process shows, the clients that it may speak for, and where it is told to stand."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hall import Hall, joining

from seedbus.agents import messages
from seedbus.agents.messages import Span
from seedbus.bus import EVALUATOR, HOST, SERVER, Declined, Envelope, HostRequest, Kind, decode, encode
from seedbus.bus.envelope import FORMAT


def test_who_joins_with_all_its_clients_is_a_member() -> None:
    hall = Hall(clients=3, processes=1)
    offer = hall.offered(HostRequest())
    assert hall.registration.missing == {0, 1, 2, EVALUATOR} and hall.registration.hosts == []
    assert hall.stands(offer.host, Span(0, 2, 0)) == ([0, 0, 0, 0], 0)
    assert hall.registration.missing == set() and hall.registration.hosts == [HOST]
    assert hall.coordinator.versions == {0: 0, 1: 0, 2: 0}
    assert [row[:3] for row in hall.rows] == [("JOIN", HOST, SERVER), ("WELCOME", SERVER, HOST)]
    ((event, facts),) = hall.told.notes
    assert (event, facts["host"], facts["missing"]) == ("joined", HOST, 0) and "0…2" in facts["clients"]
    assert hall.told.refusals == []


def test_who_only_evaluates_joins_with_no_client_at_all() -> None:
    hall = Hall(processes=1)
    hall.comes(HostRequest(evaluates=False))
    assert hall.registration.missing == {EVALUATOR}
    assert hall.stands(hall.offered(HostRequest()).host) == ([0], 0)
    assert hall.registration.missing == set()


def test_a_long_join_comes_in_parts_and_is_answered_once() -> None:
    hall = Hall(clients=6, processes=1)
    hall.offered(HostRequest())
    for part in (Span(0, 1, 0), Span(3, 4, 0)):
        assert hall.joins(HOST, part) == ([], False)
        assert hall.registration.hosts == [] and len(hall.registration.missing) == 7
    (welcome,), is_member = hall.joins(HOST, Span(2, 2, 0), Span(5, 5, 0))
    assert (welcome.kind, is_member) == (Kind.WELCOME, True) and hall.registration.missing == set()


OTHERS = [
    (Span(0, 2, 0),),
    (Span(2, 2, 0),),
    (Span(0, 1, 0), Span(5, 5, 0)),
    (Span(0, 2**32 - 1, 0),),
]


@pytest.mark.parametrize("spans", OTHERS, ids=str)
def test_a_join_for_the_clients_of_others_is_refused(spans: tuple[Span, ...]) -> None:
    hall = Hall()
    hall.offered(HostRequest(count=2))
    (refuse,), is_member = hall.joins(HOST, *spans)
    assert messages.unpack_refuse(refuse) == ("claims-another", f"host {HOST} joins for clients that are not its own")
    assert not is_member and hall.coordinator.versions == {} and hall.changes == []
    assert [(row[0], row[4]) for row in hall.rows] == [("JOIN", "REFUSED"), ("REFUSE", "DELIVERED")]
    assert hall.told.refusals == ["claims-another"]
    assert hall.joins(HOST, Span(0, 1, 0))[1]


FAR = 2**20
LONG = [
    [Span(0, FAR, 0)] * 4,
    [Span(FAR, 0, 0), Span(0, FAR, 0)],  # of which one span takes back what the other asks for
]


@pytest.mark.parametrize("spans", LONG, ids=["long", "forth and back"])
def test_a_join_of_very_long_spans_costs_no_memory(spans: list[Span]) -> None:
    hall = Hall()
    hall.offered(HostRequest(count=2))
    tracemalloc.start()
    try:
        (refuse,), _ = hall.joins(HOST, *spans)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert refuse.kind is Kind.REFUSE


def test_nobody_joins_twice_with_one_client() -> None:
    hall = Hall(clients=6, processes=1)
    hall.offered(HostRequest())
    hall.joins(HOST, Span(0, 3, 0))
    assert hall.joins(HOST, Span(3, 5, 0))[0][0].kind is Kind.REFUSE
    assert hall.joins(HOST, Span(4, 5, 0))[1]


BAD: dict[str, tuple[bytes, str]] = {
    "junk": (b"\xc1" * 9, "bad-join"),
    "another kind": (encode(Envelope(Kind.REPORT, HOST, 0, 0, [b""]))[0], "bad-join"),
    "another host": (joining(HOST - 1, Span(0, 1, 0)), "bad-join"),
    "a client": (joining(0, Span(0, 0, 0)), "bad-join"),
    "a header past the limit": (msgpack.packb([FORMAT * 16 + Kind.JOIN, *[2**32 - 1] * 3, []]), "bad-join"),
    "other fields": (encode(Envelope(Kind.JOIN, HOST, 0, 0, [[], b"s"]))[0], "bad-join"),
    "another build": (joining(HOST, Span(0, 1, 0), selftest=b"other"), "selftest"),
    "another task": (joining(HOST, Span(0, 1, 0), x0=b"other"), "x0"),
    "a later version": (joining(HOST, Span(0, 1, 1)), "foreign-version"),
}


@pytest.mark.parametrize("name", BAD)
def test_who_is_not_what_it_should_be_is_refused_by_reason(name: str) -> None:
    frame, reason = BAD[name]
    hall = Hall()
    hall.offered(HostRequest(count=2))
    admitted = hall.registration.admit(HOST, frame)
    assert not isinstance(admitted, Declined)
    (answer,), is_member = admitted
    assert messages.unpack_refuse(decode(answer))[0] == reason and not is_member
    assert hall.coordinator.refusals.clients == {(HOST, reason): 1} and hall.told.refusals == [reason]
    assert hall.registration.missing == {*range(6), EVALUATOR}
    # whatever came in the place of a JOIN: no message of the rounds, and nobody else's
    assert hall.rows == [
        ("JOIN", HOST, SERVER, len(frame), "REFUSED"),
        ("REFUSE", SERVER, HOST, len(answer), "DELIVERED"),
    ]


def test_in_simulated_time_a_newcomer_stands_where_those_before_it_stood() -> None:
    hall = Hall(clients=3, processes=1)
    hall.comes(HostRequest())
    hall.close_rounds(4)
    hall.actual_versions = {0: 2, 2: 1, EVALUATOR: 3}
    versions = dict(hall.coordinator.versions)
    hall.registration.gone(HOST, "it was killed")
    hall.offered(HostRequest())
    assert hall.stands(HOST, Span(0, 2, 0)) == ([3, 2, 0, 1], 3)
    assert hall.coordinator.versions == versions, "what it says of itself is not believed"


def test_in_simulated_time_the_log_goes_no_further_than_it_is_needed() -> None:
    hall = Hall(clients=4, processes=2)
    hall.comes(HostRequest(((0, 1),)))
    hall.comes(HostRequest(((2, 3),)))
    hall.close_rounds(4)
    hall.actual_versions = {0: 4, 2: 1, EVALUATOR: 4}
    hall.registration.gone(HOST - 1, "it was killed")
    hall.offered(HostRequest())
    assert hall.stands(HOST - 1, Span(2, 3, 0)) == ([1, 0], 1)


def test_in_real_time_clients_stand_where_they_say_and_the_evaluator_where_it_was() -> None:
    hall = Hall(clients=3, processes=1, is_virtual=False)
    hall.comes(HostRequest())
    hall.close_rounds(4)
    hall.actual_versions = {0: 4, 1: 4, 2: 4, EVALUATOR: 2}
    hall.registration.gone(HOST, "it was killed")
    hall.offered(HostRequest())
    assert hall.stands(HOST, Span(0, 1, 0), Span(2, 2, 3)) == ([2, 0, 0, 3], 3)
    assert hall.coordinator.versions == {0: 0, 1: 0, 2: 3}
