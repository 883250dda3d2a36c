"""The clients that processes are offered, for any order of joining and leaving."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from coordinator_cases import PROOF
from hypothesis import given
from hypothesis import strategies as st
from registration_harness import RegistrationHarness

from seedbus.agents.messages import Span
from seedbus.bus import EVALUATOR, HOST, Declined, HostRequest, Kind, Offer, decode
from seedbus.bus.transport import MAX_SPANS, NO_CLIENTS, NOT_YET, STRANGER, Rights


def test_a_process_that_asks_for_certain_clients_gets_them() -> None:
    harness = RegistrationHarness()
    assert harness.offer(HostRequest(((1, 2), (5, 5)))) == Offer(HOST, ((1, 2), (5, 5)), True, b"the scenario")
    assert harness.offer(HostRequest(((0, 0),))) == Offer(HOST - 1, ((0, 0),), False, b"the scenario")


def test_a_process_that_asks_for_a_number_of_clients_gets_the_first_free_ones() -> None:
    harness = RegistrationHarness()
    harness.offer(HostRequest(((1, 1),), evaluates=False))
    assert harness.offer(HostRequest(count=3)).spans == ((0, 0), (2, 3))
    assert harness.offer(HostRequest(count=2)).spans == ((4, 5),)


def test_a_process_that_asks_for_nothing_gets_its_share_and_the_last_one_the_rest() -> None:
    harness = RegistrationHarness(clients=5, processes=3)
    assert [harness.register(HostRequest()).spans for _ in range(3)] == [((0, 1),), ((2, 3),), ((4, 4),)]
    assert harness.decline(HostRequest()) == Declined("no-clients", "all clients of this run have their processes")


def test_processes_that_name_their_clients_are_among_those_that_are_expected() -> None:
    first, last = RegistrationHarness(clients=5, processes=2), RegistrationHarness(clients=5, processes=2)
    assert [first.register(HostRequest(count=each)).spans for each in (1, 0)] == [((0, 0),), ((1, 4),)]
    named = [last.register(HostRequest(count=each)).spans for each in (0, 1)]
    assert named == [((0, 2),), ((3, 3),)] and last.registration.missing == {4}, "the share was made before"
    assert last.register(HostRequest()).spans == ((4, 4),)


def test_a_process_that_only_evaluates_takes_nobodys_share() -> None:
    harness = RegistrationHarness(clients=5, processes=2)
    harness.register(HostRequest(count=NO_CLIENTS))
    assert [harness.register(HostRequest(evaluates=False)).spans for _ in range(2)] == [((0, 2),), ((3, 4),)]


def test_an_offer_reserves_nothing_and_the_first_to_join_gets_the_clients() -> None:
    harness = RegistrationHarness(clients=4, processes=2)
    idle = [harness.offer(HostRequest(evaluates=False), STRANGER) for _ in range(6)]
    assert idle[0].spans == ((0, 1),) and idle[1].spans == ((2, 3),), "what nobody was offered comes first"
    first, second = (harness.register(HostRequest(), rights=STRANGER) for _ in range(2))
    assert (first.spans, second.spans) == (((0, 1),), ((2, 3),))
    late = harness.registration.admit(idle[0].host, harness.join_frame(idle[0], Span(0, 1, 0)))
    assert isinstance(late, Declined) and late.reason == "taken"


def test_strangers_neither_evaluate_nor_decide_x0() -> None:
    harness = RegistrationHarness(clients=2, proofs={"selftest": PROOF["selftest"]})
    assert harness.decline(HostRequest(count=NO_CLIENTS), STRANGER).reason == "no-clients"
    stranger = harness.offer(HostRequest(), STRANGER)
    assert not stranger.evaluates
    join_frame = harness.join_frame(stranger, Span(0, 1, 0), x0=b"a false x0 digest")
    early = harness.registration.admit(stranger.host, join_frame)
    assert isinstance(early, Declined) and early.reason == NOT_YET and "x0" not in harness.coordinator.joining.proofs
    harness.register(HostRequest(count=NO_CLIENTS))
    assert harness.coordinator.joining.proofs == PROOF
    assert harness.join(stranger.host, Span(0, 1, 0), x0=b"a false x0 digest")[0][0].kind is Kind.REFUSE


def test_a_proof_serves_for_the_offer_that_it_was_made_for_and_for_no_other() -> None:
    harness = RegistrationHarness(clients=2, processes=1)
    first, second = (harness.offer(HostRequest(), STRANGER) for _ in range(2))
    assert first.nonce != second.nonce
    recorded = harness.join_frame(first, Span(0, 1, 0))
    admitted = harness.registration.admit(first.host, recorded)
    assert not isinstance(admitted, Declined) and admitted[1]
    harness.registration.gone(first.host, "its connection ended")
    third = harness.offer(HostRequest(), STRANGER)
    assert third.host == first.host, "the recorded bytes name this very host"
    again = harness.registration.admit(third.host, recorded)
    assert not isinstance(again, Declined) and [decode(frame).kind for frame in again[0]] == [Kind.REFUSE]


def test_offers_of_every_second_client_leave_an_honest_share_complete() -> None:
    harness = RegistrationHarness(clients=900, processes=1)
    for start in range(0, 900, 128):
        every_second = tuple((client, client) for client in range(start, min(start + 128, 900), 2))
        harness.offer(HostRequest(every_second), STRANGER)
    assert harness.register(HostRequest(), rights=STRANGER).spans == ((0, 899),)


def test_a_key_without_a_requested_number_gets_all_its_clients() -> None:
    harness = RegistrationHarness(clients=50, processes=2)
    halves = [harness.register(HostRequest(), rights=Rights(spans=(span,))).spans for span in ((0, 24), (25, 49))]
    assert halves == [((0, 24),), ((25, 49),)]


def test_a_false_proof_is_refused_before_any_work_per_client() -> None:
    harness = RegistrationHarness(clients=1_000_000, processes=1)
    offer = harness.offer(HostRequest(), STRANGER)
    tracemalloc.start()
    try:
        refused = harness.registration.admit(
            offer.host, harness.join_frame(offer, Span(0, 999_999, 0), x0=b"a false x0 digest")
        )
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert not isinstance(refused, Declined) and [decode(frame).kind for frame in refused[0]] == [Kind.REFUSE]


@pytest.mark.parametrize("more", [{}, {"losses": b"of a compiler"}], ids=["as-it-should-be", "with-losses-of-its-own"])
def test_a_join_for_clients_of_others_makes_none_of_them_a_member(more: dict[str, bytes]) -> None:
    harness = RegistrationHarness(clients=4, processes=2)
    stranger = harness.offer(HostRequest(((0, 1),)), STRANGER)
    harness.registration.admit(stranger.host, harness.join_frame(stranger, Span(2, 3, 0), **more))
    assert harness.coordinator.positions.believed == {} and harness.observer.refusals


def test_a_key_hosts_the_clients_that_it_is_authorised_for() -> None:
    harness, rights = RegistrationHarness(clients=6, processes=1), Rights(spans=((1, 2), (5, 5)))
    assert harness.decline(HostRequest(((0, 1),)), rights).reason == "not-authorised"
    assert harness.offer(HostRequest(((1, 2),)), rights).spans == ((1, 2),)
    assert harness.register(HostRequest(), rights=rights).spans == ((5, 5),), "what nobody was offered comes first"
    assert harness.register(HostRequest(), rights=rights).spans == ((1, 2),)
    assert harness.decline(HostRequest(), rights).reason == "no-clients"


def test_a_key_for_the_evaluator_alone_hosts_no_clients_and_is_told_how_to_ask() -> None:
    harness, evaluator = RegistrationHarness(clients=6, processes=1), Rights(spans=(), evaluates=True)
    declined = harness.decline(HostRequest(evaluates=False), evaluator)
    assert declined.reason == "no-clients" and declined.detail.endswith("this key may host it: add --evaluator")
    assert harness.decline(HostRequest(((0, 0),)), evaluator).reason == "not-authorised"
    harness.register(HostRequest(evaluates=False), rights=Rights(evaluates=True))
    harness.register(HostRequest(), rights=evaluator)
    events = [(facts["clients"], facts["missing"], "lacks_evaluator" in facts) for _, facts in harness.observer.events]
    assert events == [("clients 0…5", 0, True), ("the evaluator", 0, False)]


@given(st.integers(1, 60).flatmap(lambda clients: st.tuples(st.just(clients), st.integers(1, clients))))
def test_shares_differ_by_one_client_at_most(numbers: tuple[int, int]) -> None:
    clients, processes = numbers
    harness = RegistrationHarness(clients=clients, processes=processes)
    shares = [sum(last - first + 1 for first, last in harness.offer(HostRequest()).spans) for _ in range(processes)]
    assert sum(shares) == clients and min(shares) >= max(1, max(shares) - 1)


@pytest.mark.parametrize("is_virtual", [True, False])
def test_a_run_can_continue_while_missing_clients_are_offered_to_a_process(is_virtual: bool) -> None:
    harness = RegistrationHarness(clients=4, processes=2, is_virtual=is_virtual)
    states = []
    for step in (lambda: None, lambda: harness.offer(HostRequest()), lambda: harness.offer(HostRequest())):
        step()
        states.append((harness.registration.can_go_on, harness.registration.could_go_on))
    # in real time one client and an evaluator are enough
    assert states == [(False, False), (False, not is_virtual), (False, True)]


@pytest.mark.parametrize("is_virtual", [True, False])
def test_a_run_cannot_continue_while_nobody_is_to_evaluate(is_virtual: bool) -> None:
    harness = RegistrationHarness(clients=4, processes=1, is_virtual=is_virtual)
    harness.offer(HostRequest(evaluates=False))
    assert not harness.registration.could_go_on
    harness.offer(HostRequest(count=NO_CLIENTS))
    assert harness.registration.could_go_on


def test_one_willing_process_evaluates() -> None:
    harness = RegistrationHarness()
    host_requests = [HostRequest(evaluates=False), HostRequest(evaluates=True), HostRequest(evaluates=True)]
    assert [harness.offer(host_request).evaluates for host_request in host_requests] == [False, True, False]


def test_a_process_may_only_evaluate_when_no_other_process_does() -> None:
    harness = RegistrationHarness(processes=1)
    harness.register(HostRequest(evaluates=False))
    assert harness.offer(HostRequest(evaluates=True)) == Offer(HOST - 1, (), True, b"the scenario")
    assert harness.decline(HostRequest()).reason == "no-clients"


@pytest.mark.parametrize(
    ("wish", "reason", "detail"),
    [
        (HostRequest(((0, 2),)), "taken", "client 2 is hosted by another process"),
        (HostRequest(((0, 0), (5, 6)), evaluates=True), "unknown-client", "client 6 is none of this run's 0 … 5"),
        (HostRequest(count=5), "too-many", "5 clients asked for, 4 left"),
        (HostRequest(count=2**32 - 2), "too-many", "4,294,967,294 clients asked for, 4 left"),
    ],
)
def test_an_impossible_request_is_declined_and_takes_nothing(wish: HostRequest, reason: str, detail: str) -> None:
    harness = RegistrationHarness()
    harness.register(HostRequest(((2, 3),), evaluates=False))
    declined = harness.decline(wish)
    assert declined.reason == reason and re.search(detail, declined.detail)
    assert harness.offer(HostRequest(count=4)) == Offer(HOST - 1, ((0, 1), (4, 5)), True, b"the scenario")


def test_a_request_for_an_absurd_number_of_clients_costs_no_memory() -> None:
    harness = RegistrationHarness()
    tracemalloc.start()
    try:
        assert harness.decline(HostRequest(((0, 2**20),))).reason == "unknown-client"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_overlapping_spans_are_one_request_for_their_clients() -> None:
    harness = RegistrationHarness()
    offer = harness.offer(HostRequest(((3, 4), (0, 1), (1, 2), (1, 1))))
    assert offer.spans == ((0, 4),)
    assert harness.join(offer.host, Span(0, 4, 0))[1], "it has joined with all that it was offered"


@pytest.mark.parametrize("is_virtual", [True, False])
def test_clients_of_a_process_that_has_gone_are_offered_to_the_next(is_virtual: bool) -> None:
    harness = RegistrationHarness(clients=6, processes=2, is_virtual=is_virtual)
    harness.register(HostRequest())
    harness.register(HostRequest())
    assert harness.registration.hosts == [HOST - 1, HOST] and harness.registration.missing == set()
    harness.registration.gone(HOST, "its connection ended")
    assert harness.registration.missing == {0, 1, 2, EVALUATOR} and harness.registration.hosts == [HOST - 1]
    event, facts = harness.observer.events[-1]
    assert (event, facts["host"], facts["why"]) == ("gone", HOST, "its connection ended") and "0…2" in facts["clients"]
    assert facts["missing"] == 3
    assert harness.offer(HostRequest()) == Offer(HOST, ((0, 2),), True, b"the scenario")


@pytest.mark.parametrize("wish", [HostRequest(), HostRequest(count=2), HostRequest(((1, 2),))])
def test_clients_of_a_process_that_was_cut_off_are_kept_for_it_or_who_replaces_it(
    wish: HostRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr("seedbus.agents.server.registration.wall_seconds", lambda: now.s)
    harness = RegistrationHarness(clients=3, processes=1)
    held, waits, other = (replace(wish, known_as=frozenset(each)) for each in ({"a", "10"}, {"b"}, {"b", "20"}))
    early = harness.offer(replace(waits, evaluates=False), STRANGER)
    host = harness.register(held).host
    harness.registration.gone(host, "its connection ended", 30.0)
    declined = harness.decline(other, STRANGER)
    assert declined.reason in ("no-clients", "taken") and "kept for" in declined.detail
    late = harness.registration.admit(early.host, harness.join_frame(early, *(Span(*each, 0) for each in early.spans)))
    assert isinstance(late, Declined) and late.reason == "taken", "an offer from before gives them to nobody else"
    returned = harness.register(replace(wish, known_as=frozenset({"c", "10"})), rights=STRANGER)
    harness.registration.gone(returned.host, "its connection ended", 30.0)
    assert harness.offer(wish).spans, "processes of the server itself may have them"
    now.s += 29.0
    harness.decline(other, STRANGER)
    now.s += 2.0
    assert harness.offer(other, STRANGER).spans


def test_a_process_that_leaves_before_joining_has_no_effect() -> None:
    harness = RegistrationHarness(is_virtual=False)
    harness.offer(HostRequest(((1, 2),)))
    harness.registration.gone(HOST, "it said nothing")
    assert not any(harness.sent_plans) and harness.coordinator.positions.believed == {}
    assert harness.offer(HostRequest(((1, 2),))).evaluates


def test_a_departing_process_in_simulated_time_has_no_other_effect() -> None:
    harness = RegistrationHarness(clients=6, processes=1)
    harness.register(HostRequest())
    harness.coordinator.open_round()
    harness.sent_plans.clear()
    harness.registration.gone(HOST, "it was killed")
    assert harness.coordinator.missing == list(range(6)) and harness.sent_plans == []
    harness.register(HostRequest())
    assert harness.coordinator.missing == list(range(6)) and harness.sent_plans == [[]]


def test_clients_of_a_departing_process_in_real_time_leave_the_run() -> None:
    harness = RegistrationHarness(clients=6, processes=2, is_virtual=False)
    harness.register(HostRequest())
    harness.register(HostRequest())
    harness.coordinator.open_round()
    harness.sent_plans.clear()
    harness.registration.gone(HOST, "it was killed")
    assert harness.coordinator.missing == [3, 4, 5] and harness.sent_plans == [[]], (
        "whoever waits is told to look again"
    )
    harness.registration.gone(HOST - 1, "it was killed")
    assert harness.coordinator.rounds.is_over and not harness.coordinator.has_members
    harness.register(HostRequest())
    assert harness.coordinator.has_members


def test_a_process_that_leaves_while_joining_in_real_time_leaves_no_member() -> None:
    harness = RegistrationHarness(clients=6, processes=1, is_virtual=False)
    harness.offer(HostRequest())
    harness.join(HOST, Span(0, 1, 0))
    harness.registration.gone(HOST, "it was killed")
    assert not harness.coordinator.has_members


def test_no_client_is_asked_in_real_time_before_its_process_has_joined_with_all() -> None:
    harness = RegistrationHarness(clients=4, processes=1, is_virtual=False)
    harness.offer(HostRequest())
    assert harness.join(HOST, Span(0, 1, 0)) == ([], False)
    harness.coordinator.open_round()
    assert harness.coordinator.missing == [] and harness.sent_plans == []
    _, is_member = harness.join(HOST, Span(2, 3, 0))
    assert is_member and len(harness.coordinator.positions.members) == 4


def test_a_part_of_a_join_that_is_not_accepted_is_refused_with_the_last_part() -> None:
    harness = RegistrationHarness(clients=4, processes=1, is_virtual=False)
    harness.offer(HostRequest())
    assert harness.join(HOST, Span(0, 1, 5)) == ([], False)
    (refuse,), is_member = harness.join(HOST, Span(2, 3, 0))
    assert (refuse.kind, refuse.body[0], is_member) == (Kind.REFUSE, "foreign-version", False)
    harness.registration.gone(HOST, "its JOIN was refused")
    assert len(harness.coordinator.positions.members) == 0
    harness.register(HostRequest())


def test_a_simulated_run_continues_when_all_clients_are_present() -> None:
    harness = RegistrationHarness(clients=4, processes=2)
    states = []
    for step in (
        lambda: harness.register(HostRequest()),
        lambda: harness.register(HostRequest()),
        lambda: harness.registration.gone(HOST, "…"),
    ):
        step()
        states.append((harness.registration.can_go_on, harness.registration.has_begun))
    assert states == [(False, False), (True, True), (False, True)]


def test_a_real_time_run_continues_with_a_quorum_and_an_evaluator() -> None:
    harness = RegistrationHarness(clients=2, processes=2, is_virtual=False)  # the quorum is one client
    first = harness.register(HostRequest(evaluates=False))
    alone = harness.registration.can_go_on
    second = harness.register(HostRequest())
    harness.registration.gone(first.host, "…")
    with_the_other = harness.registration.can_go_on
    harness.registration.gone(second.host, "…")
    assert [alone, with_the_other, harness.registration.can_go_on] == [False, True, False]
    assert harness.registration.has_begun


def test_a_process_that_only_evaluates_takes_no_clients_when_it_rejoins() -> None:
    harness = RegistrationHarness(clients=4, processes=1)
    harness.registration.gone(harness.offer(HostRequest()).host, "the server came anew")
    offer = harness.offer(HostRequest(count=NO_CLIENTS))
    assert offer.spans == () and offer.evaluates


def test_a_process_is_offered_no_more_spans_than_it_may_ask_for_again() -> None:
    harness = RegistrationHarness(clients=400, processes=1)
    for client in range(0, 400, 2):
        harness.register(HostRequest(((client, client),), evaluates=False))
    offers = [harness.register(HostRequest(evaluates=False)).spans for _ in range(4)]
    assert [len(spans) for spans in offers] == [MAX_SPANS] * 3 + [200 - 3 * MAX_SPANS]


def test_clients_of_an_unused_offer_are_offered_first_again() -> None:
    harness = RegistrationHarness(clients=6, processes=3)
    first, second = harness.offer(HostRequest(count=2)), harness.offer(HostRequest(count=2))
    overlapping = harness.offer(HostRequest(((1, 2),)))
    harness.registration.gone(first.host, "it gave up")
    assert harness.register(HostRequest(((1, 1),))).spans == ((1, 1),)
    harness.registration.gone(overlapping.host, "it gave up")
    assert harness.offer(HostRequest(count=4)).spans == ((0, 0), (2, 2), (4, 5)), (
        "nobody else's, and none that has joined"
    )
    assert second.spans == ((2, 3),)


def test_a_look_takes_nothing_is_told_as_one_and_is_possible_where_all_clients_have_processes() -> None:
    harness, looks = RegistrationHarness(clients=4, processes=2), HostRequest(count=NO_CLIENTS, evaluates=False)
    first = harness.offer(looks, STRANGER)
    assert (first.spans, first.evaluates, first.scenario) == ((), False, b"the scenario")
    assert not harness.registration.could_go_on and harness.registration.hosts == []
    (refused,), is_member = harness.join(first.host)
    assert (refused.kind, is_member) == (Kind.REFUSE, False)
    assert [harness.register(HostRequest()).spans for _ in range(2)] == [((0, 1),), ((2, 3),)]
    second, missing = harness.offer(looks, STRANGER), set(harness.registration.missing)
    for offer in (first, second):
        harness.registration.gone(offer.host, "127.0.0.1:5: it gave up: stopped")
    assert harness.registration.missing == missing == set()
    assert harness.observer.events[-2:] == [("looked", {"peer": "127.0.0.1:5"})] * 2
    assert "gone" not in [event for event, _ in harness.observer.events]


def test_who_was_offered_clients_and_left_without_them_is_told_so() -> None:
    harness = RegistrationHarness(clients=4, processes=2)
    for offer in (harness.offer(HostRequest()), harness.register(HostRequest())):
        harness.registration.gone(offer.host, "127.0.0.1:5: its connection ended")
    (_, first), (_, second) = [each for each in harness.observer.events if each[0] == "gone"]
    assert first["why"] == "127.0.0.1:5: its connection ended, before it had joined"
    assert second["why"] == "127.0.0.1:5: its connection ended"
