"""The admission of processes: their proofs, the clients that they may join for, and the versions they are told."""

from __future__ import annotations

import tracemalloc

import msgpack
import numpy as np
import pytest
from coordinator_cases import ALGORITHM, PROOF
from registration_harness import RegistrationHarness, join_frame
from snapshot_cases import downloads_from

from seedbus.agents import messages
from seedbus.agents.admission import MEMBER, bound, false_proof, proofs_for
from seedbus.agents.catch_up.chunks import DIGEST_BYTES, Title, offer
from seedbus.agents.catch_up.client import unpack_notes
from seedbus.agents.messages import Join, Span
from seedbus.bus import EVALUATOR, HOST, SERVER, Declined, Envelope, HostRequest, Kind, decode, encode
from seedbus.bus.envelope import FORMAT
from seedbus.bus.transport import NO_CLIENTS


def test_a_process_that_joins_with_all_its_clients_is_a_member() -> None:
    harness = RegistrationHarness(clients=3, processes=1)
    offer = harness.offer(HostRequest())
    assert harness.registration.missing == {0, 1, 2, EVALUATOR} and harness.registration.hosts == []
    assert harness.welcomed_versions(offer.host, Span(0, 2, 0)) == ([0, 0, 0, 0], 0)
    assert harness.registration.missing == set() and harness.registration.hosts == [HOST]
    assert harness.coordinator.positions.believed == {0: 0, 1: 0, 2: 0}
    assert [row[:3] for row in harness.rows] == [("JOIN", HOST, SERVER), ("WELCOME", SERVER, HOST)]
    ((event, facts),) = harness.observer.events
    assert (event, facts["host"], facts["missing"]) == ("joined", HOST, 0) and "0…2" in facts["clients"]
    assert harness.observer.refusals == []


def test_a_process_that_only_evaluates_joins_without_clients() -> None:
    harness = RegistrationHarness(processes=1)
    harness.register(HostRequest(evaluates=False))
    assert harness.registration.missing == {EVALUATOR}
    assert harness.welcomed_versions(harness.offer(HostRequest()).host) == ([0], 0)
    assert harness.registration.missing == set()


def test_a_long_join_comes_in_parts_and_is_answered_once() -> None:
    harness = RegistrationHarness(clients=6, processes=1)
    harness.offer(HostRequest())
    for part in (Span(0, 1, 0), Span(3, 4, 0)):
        assert harness.join(HOST, part) == ([], False)
        assert harness.registration.hosts == [] and len(harness.registration.missing) == 7
    (welcome,), is_member = harness.join(HOST, Span(2, 2, 0), Span(5, 5, 0))
    assert (welcome.kind, is_member) == (Kind.WELCOME, True) and harness.registration.missing == set()


OTHERS = [
    (Span(0, 2, 0),),
    (Span(2, 2, 0),),
    (Span(0, 1, 0), Span(5, 5, 0)),
    (Span(0, 1, 0), Span(1, 1, 0)),  # one client twice
    (Span(0, 2**32 - 1, 0),),
]


@pytest.mark.parametrize("spans", OTHERS, ids=str)
def test_a_join_for_clients_of_another_process_is_refused(spans: tuple[Span, ...]) -> None:
    harness = RegistrationHarness()
    harness.offer(HostRequest(count=2))
    (refuse,), is_member = harness.join(HOST, *spans)
    assert messages.unpack_refuse(refuse) == ("claims-another", f"host {HOST} joins for clients that are not its own")
    assert not is_member and harness.coordinator.positions.believed == {} and harness.sent_plans == []
    assert [(row[0], row[4]) for row in harness.rows] == [("JOIN", "REFUSED"), ("REFUSE", "DELIVERED")]
    assert harness.observer.refusals == ["claims-another"]
    assert harness.join(HOST, Span(0, 1, 0))[1]


FAR = 2**20
LONG = [
    [Span(0, FAR, 0)] * 4,
    [Span(FAR, 0, 0), Span(0, FAR, 0)],  # overlapping spans
]


@pytest.mark.parametrize("spans", LONG, ids=["long", "forth and back"])
def test_a_join_of_very_long_spans_costs_no_memory(spans: list[Span]) -> None:
    harness = RegistrationHarness()
    harness.offer(HostRequest(count=2))
    tracemalloc.start()
    try:
        (refuse,), _ = harness.join(HOST, *spans)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert refuse.kind is Kind.REFUSE


def test_a_client_cannot_join_twice() -> None:
    harness = RegistrationHarness(clients=6, processes=1)
    harness.offer(HostRequest())
    harness.join(HOST, Span(0, 3, 0))
    assert harness.join(HOST, Span(3, 5, 0))[0][0].kind is Kind.REFUSE
    assert harness.join(HOST, Span(4, 5, 0))[1]


BAD: dict[str, tuple[bytes, str]] = {
    "junk": (b"\xc1" * 9, "bad-join"),
    "another kind": (encode(Envelope(Kind.REPORT, HOST, 0, 0, [b""]))[0], "bad-join"),
    "another host": (join_frame(HOST - 1, Span(0, 1, 0)), "bad-join"),
    "nobody": (join_frame(HOST), "bad-join"),
    "a client": (join_frame(0, Span(0, 0, 0)), "bad-join"),
    "a header past the limit": (msgpack.packb([FORMAT * 16 + Kind.JOIN, *[2**32 - 1] * 3, []]), "bad-join"),
    "other fields": (encode(Envelope(Kind.JOIN, HOST, 0, 0, [[], b"s"]))[0], "bad-join"),
    "another build": (join_frame(HOST, Span(0, 1, 0), selftest=b"other"), "selftest"),
    "another task": (join_frame(HOST, Span(0, 1, 0), x0=b"other"), "x0"),
    "a later version": (join_frame(HOST, Span(0, 1, 1)), "foreign-version"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_process_with_a_wrong_join_is_refused_by_reason(name: str) -> None:
    frame, reason = BAD[name]
    harness = RegistrationHarness()
    harness.offer(HostRequest(count=2))
    admitted = harness.registration.admit(HOST, frame)
    assert not isinstance(admitted, Declined)
    (answer,), is_member = admitted
    assert messages.unpack_refuse(decode(answer))[0] == reason and not is_member
    assert harness.coordinator.refusals.clients == {(HOST, reason): 1} and harness.observer.refusals == [reason]
    assert harness.registration.missing == {*range(6), EVALUATOR}
    # other messages in place of a JOIN
    assert harness.rows == [
        ("JOIN", HOST, SERVER, len(frame), "REFUSED"),
        ("REFUSE", SERVER, HOST, len(answer), "DELIVERED"),
    ]


def test_a_replacement_in_simulated_time_gets_the_versions_of_its_predecessor() -> None:
    harness = RegistrationHarness(clients=3, processes=1)
    harness.register(HostRequest())
    harness.close_four_rounds()
    harness.coordinator.positions.actual = {0: 2, 2: 1, EVALUATOR: 3}
    versions = dict(harness.coordinator.positions.believed)
    harness.registration.gone(HOST, "it was killed")
    harness.offer(HostRequest())
    assert harness.welcomed_versions(HOST, Span(0, 2, 0)) == ([3, 2, 0, 1], 3)
    assert harness.coordinator.positions.believed == versions, "what it says of itself is not believed"


def test_the_log_of_a_welcome_in_simulated_time_is_as_short_as_possible() -> None:
    harness = RegistrationHarness(clients=4, processes=2)
    harness.register(HostRequest(((0, 1),)))
    harness.register(HostRequest(((2, 3),)))
    harness.close_four_rounds()
    harness.coordinator.positions.actual = {0: 4, 2: 1, EVALUATOR: 4}
    harness.registration.gone(HOST - 1, "it was killed")
    harness.offer(HostRequest())
    assert harness.welcomed_versions(HOST - 1, Span(2, 3, 0)) == ([1, 0], 1)


@pytest.mark.parametrize(("actual", "notes"), [(1, 1), (3, 0)])
def test_a_welcome_reaches_the_snapshots_that_its_clients_are_downloading(actual: int, notes: int) -> None:
    harness = RegistrationHarness(clients=2, processes=1)
    harness.register(HostRequest())
    harness.close_four_rounds()
    harness.coordinator.positions.actual = {0: actual, 1: 1, EVALUATOR: 1}
    title = Title(3, 2, bytes(DIGEST_BYTES))
    downloads = downloads_from(lambda version: ALGORITHM.replica(np.zeros(9, np.float32)))
    downloads.on_offer(offer(title, 1, 0, 4), title, 1)
    harness.coordinator.positions.partial_downloads = {0: encode(*downloads.note(0, 4))[0], 1: b"no note"}
    harness.registration.gone(HOST, "it was killed")
    harness.offer(HostRequest())
    (welcome,), _ = harness.join(HOST, Span(0, 1, 0))
    _, log, packed, _ = messages.unpack_welcome(ALGORITHM, welcome, [0] * 3)
    assert [note.base for note in unpack_notes(packed)] == [3] * notes, "an older snapshot is of no use"
    assert len(log) == 3


def test_clients_in_real_time_keep_their_claimed_versions_and_the_evaluator_its_own() -> None:
    harness = RegistrationHarness(clients=3, processes=1, is_virtual=False)
    harness.register(HostRequest())
    harness.close_four_rounds()
    harness.coordinator.positions.actual = {0: 4, 1: 4, 2: 4, EVALUATOR: 2}
    harness.registration.gone(HOST, "it was killed")
    harness.offer(HostRequest())
    assert harness.welcomed_versions(HOST, Span(0, 1, 0), Span(2, 2, 3)) == ([2, 0, 0, 3], 3)
    assert harness.coordinator.positions.believed == {0: 0, 1: 0, 2: 3}


@pytest.mark.parametrize(("second", "log"), [(3, 0), (2, 0)])
def test_clients_that_come_back_in_real_time_with_what_they_held_get_no_log(second: int, log: int) -> None:
    harness = RegistrationHarness(clients=3, processes=2, is_virtual=False)
    harness.register(HostRequest(((0, 1),)))
    harness.register(HostRequest(((2, 2),)))
    harness.close_four_rounds()
    harness.registration.gone(HOST, "it was killed")
    harness.offer(HostRequest(((0, 1),), evaluates=False))
    assert harness.welcomed_versions(HOST, Span(0, 0, 3), Span(1, 1, second)) == ([3, second], log)


@pytest.mark.parametrize(
    ("run", "shown", "refusal"),
    [
        ({"losses": b"l"}, {}, ("losses", "it shows no compiled or stacked losses, and the run's are such")),
        ({}, {"losses": b"l"}, ("losses", "it shows compiled or stacked losses, and the run's are neither")),
        ({"losses": b"l"}, {"losses": b"m"}, ("losses", "its compiled or stacked losses have other bits (digest 6d, ")),
        (
            {},
            {"x0": b"y"},
            ("x0", "its x₀ has digest 79, the run's 78: other data, or another task, seed or set of weights"),
        ),
        ({"losses": b"l"}, {"losses": b"l"}, None),
    ],
)
def test_a_join_with_other_losses_or_another_x0_is_refused_by_name(
    run: dict[str, bytes], shown: dict[str, bytes], refusal: tuple[str, str] | None
) -> None:
    found = false_proof(Join(HOST, (), **(PROOF | shown)), PROOF | run)
    assert found is None if refusal is None else found and found[1].startswith(refusal[1]) and found[0] == refusal[0]


@pytest.mark.parametrize("client", [0, 3])
def test_a_client_alone_shows_the_proofs_of_a_member_and_a_process_those_of_its_offer(client: int) -> None:
    of_member, of_offer = bound(PROOF, MEMBER), bound(PROOF, b"a nonce")
    for shown in (PROOF, of_member, PROOF | {"x0": of_member["x0"]}):
        assert proofs_for(PROOF, Join(client, (), **shown), b"a nonce") == shown
        assert proofs_for(PROOF, Join(HOST, (), **shown), b"a nonce") == of_offer
    assert proofs_for(PROOF, Join(client, (), **of_offer), b"a nonce") == PROOF


def test_the_first_process_may_show_losses_because_the_run_knows_none_before_its_x0() -> None:
    first = Join(HOST, (), **PROOF, losses=b"l")
    assert false_proof(first, {"selftest": PROOF["selftest"]}) is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_process_that_comes_when_all_clients_are_hosted_may_wait_however_many_it_asks_for(count: int) -> None:
    """Fewer than it asks for would be an end; `no-clients` is until another process has gone."""
    harness = RegistrationHarness(clients=2, processes=1)
    harness.register(HostRequest())
    assert harness.decline(HostRequest(count=count)).reason == "no-clients"


def test_a_process_is_reported_with_its_clients_in_words() -> None:
    harness = RegistrationHarness()
    for request in (HostRequest(((1, 1), (3, 5)), evaluates=False), HostRequest(count=NO_CLIENTS)):
        harness.register(request)
    assert [facts["clients"] for _, facts in harness.observer.events] == ["clients 1, 3…5", "the evaluator"]
