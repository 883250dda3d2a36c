"""Who takes part: processes that join, leave and come back, and those that are turned away."""

from __future__ import annotations

import pytest
from coordinator_cases import ALGORITHM, PROOF, after, cohort_of, coordinator, joins, positions, report

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import Join, Span
from seedbus.agents.policies.participation import Participation
from seedbus.agents.refusals import MAX_NOTED, MAX_PEERS, NOBODY
from seedbus.agents.server.catch_up import MAX_LOST
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.bus import EVALUATOR, HOST, Envelope, Kind


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (Join(HOST - 1, (Span(0, 5, 0),), selftest=b"other", x0=b"x"), "selftest"),
        (Join(HOST - 1, (Span(0, 5, 0),), selftest=b"s", x0=b"other"), "x0"),
        (Join(HOST - 1, (Span(4, 6, 0),), **PROOF), "unknown-client"),
        (Join(HOST - 1, (Span(5, 4, 0),), **PROOF), "unknown-client"),
        (Join(HOST - 1, (Span(0, 5, 8),), **PROOF), "foreign-version"),
        (Join(3, (Span(0, 5, 0),), **PROOF), "claims-another"),
        (Join(3, (Span(4, 4, 0),), **PROOF), "claims-another"),
        (Join(3, (Span(3, 3, 0), Span(4, 4, 0)), **PROOF), "claims-another"),
        (Join(3, (Span(3, 3, 8),), **PROOF), "foreign-version"),
        (Join(9, (Span(9, 9, 0),), **PROOF), "unknown-client"),
        (Join(EVALUATOR, (Span(0, 5, 0),), **PROOF), "claims-another"),
    ],
)
def test_whoever_would_compute_something_else_or_for_another_is_refused(join: Join, reason: str) -> None:
    made = coordinator()
    before = dict(made.versions)
    plans, refusal = joins(made, join)
    assert plans == [] and made.versions == before
    assert refusal is not None
    assert (refusal.client, refusal.reason) == (join.sender, reason)
    assert made.refusals.clients == {(join.sender, reason): 1}


def missed_in(plan: Envelope) -> int:
    return len(ALGORITHM.unpack_commits(plan.body[1]))


@pytest.mark.parametrize("believes", [True, False])
def test_a_client_that_lost_its_place_is_told_again_from_where_it_really_is(believes: bool) -> None:
    made = after(3, believes=believes)
    plans, refusal = joins(made, Join(1, (Span(1, 1, 0),), **PROOF))
    assert refusal is None and made.versions == {0: 2, 1: 0, 2: 2}
    assert [(plan.kind, plan.client, missed_in(plan)) for plan, _ in plans] == [(Kind.PLAN, 1, 3)]


def test_a_client_that_lost_its_place_but_owes_nothing_is_not_asked_anew() -> None:
    made = after(1)
    made.reported(report(made, 1))
    plans, refusal = joins(made, Join(1, (Span(1, 1, 0),), **PROOF))
    assert (plans, refusal) == ([], None) and made.versions[1] == 0
    assert made.missing == [0, 2]


def test_a_process_that_comes_back_is_believed_where_it_stands_and_asked_anew() -> None:
    made = after(2, believes=True)
    made.reported(report(made, 2))
    plans, _ = joins(made, Join(HOST, (Span(0, 1, 1), Span(2, 2, 0)), **PROOF))
    assert made.versions == {0: 1, 1: 1, 2: 0}
    assert [(plan.client, missed_in(plan)) for plan, _ in plans] == [(0, 1), (1, 1)], "client 2 has reported"


def test_in_simulated_time_a_process_that_comes_back_never_went() -> None:
    made = after(2, believes=False)
    before = (made.checkpoint(), made.take_moved())
    assert joins(made, Join(HOST, (Span(0, 2, 0),), **PROOF)) == ([], None)
    assert (made.checkpoint(), made.versions, made.take_moved()) == (before[0], dict.fromkeys(range(3), 1), [])


def test_nobody_waits_for_clients_that_have_left_and_none_is_asked_until_it_joins_again() -> None:
    made = after(2, quorum=2)
    made.reported(report(made, 2))
    made.left([0, 1])
    assert [made.is_round_over, made.has_members] == [True, False]
    assert made.close_round().reported == (2,)
    assert made.versions[0] == 1, "what it holds is not forgotten"
    made.joined(Join(HOST, (Span(1, 1, 1),), **PROOF))
    assert [made.has_members, cohort_of(made)] == [True, [1, 2]]


def test_a_client_that_has_left_does_not_come_back_by_itself() -> None:
    made = after(1)
    made.left([1])
    plans, refusal = joins(made, Join(1, (Span(1, 1, 0),), **PROOF))
    assert refusal is not None
    assert (plans, refusal.reason, made.versions[1], made.missing) == ([], "not-a-member", 0, [0, 2])
    made.close_round()
    assert cohort_of(made) == [0, 2]


def test_a_report_of_a_client_that_has_left_is_not_waited_for_any_more() -> None:
    made = after(1)
    made.left([1])
    refusal = made.reported(report(made, 1))
    assert refusal is not None
    assert refusal.reason == "not-asked" and made.missing == [0, 2]


def test_who_leaves_twice_or_never_came_changes_nothing() -> None:
    made = coordinator(clients=3, cohort=3)
    made.left([1, 1, 99])
    made.left([1])
    assert cohort_of(made) == [0, 2]


def test_a_stranger_who_comes_first_does_not_decide_what_is_right() -> None:
    made = Coordinator(
        ALGORITHM,
        Participation(clients=6, cohort=3),
        seed=7,
        stop=Stop(rounds=100),
        evaluation=Cadence(),
        proofs=PROOF,
    )
    _, refusal = joins(made, Join(HOST - 1, (Span(0, 5, 0),), selftest=b"s", x0=b"other"))
    assert refusal is not None
    assert not made.has_members
    assert made.joined(Join(HOST, (Span(0, 5, 0),), **PROOF)) is None
    assert made.has_members


def test_what_is_not_said_beforehand_the_first_to_join_decides() -> None:
    made = coordinator(proofs={"selftest": b"s"})
    assert made.proofs == PROOF
    assert made.joined(Join(HOST - 1, (Span(0, 5, 0),), selftest=b"s", x0=b"other")) is not None
    assert made.proofs == PROOF


def test_refusals_of_strangers_are_counted_by_name_but_not_without_end() -> None:
    made = coordinator()
    for number in range(MAX_PEERS + 50):
        for _ in range(2):
            made.refused_peer(f"10.0.0.1:{number}", "protocol", "protocol 4")
    assert made.refusals.peers["10.0.0.1:0", "protocol"] == 2
    assert made.refusals.peers["others", "protocol"] == 2 * 50
    assert len(made.refusals.peers) == MAX_PEERS + 1 and made.refusals.peers.total() == 2 * (MAX_PEERS + 50)


def test_a_stranger_that_goes_on_and_on_is_told_of_a_few_times_and_counted_always() -> None:
    made = coordinator()
    told = [made.refused_peer("10.0.0.1:4", "protocol", f"protocol {number}") for number in range(MAX_NOTED + 20)]
    first = told[0]
    assert first is not None
    assert (first.client, first.reason, first.detail) == (NOBODY, "protocol", "10.0.0.1:4: protocol 0")
    assert [refusal is not None for refusal in told] == [True] * MAX_NOTED + [False] * 20
    assert made.refusals.peers == {("10.0.0.1:4", "protocol"): MAX_NOTED + 20}
    assert made.refused_peer("10.0.0.1:5", "protocol", "…") is not None


def test_a_restored_coordinator_knows_who_was_refused() -> None:
    made, other = coordinator(), coordinator()
    made.refused(3, "late", "…")
    made.refused_peer("10.0.0.1:4", "protocol", "…")
    other.restore(made.checkpoint(), [], {})
    assert other.refusals.clients == {(3, "late"): 1} and other.refusals.peers == {("10.0.0.1:4", "protocol"): 1}


@pytest.mark.parametrize("believes", [True, False])
def test_who_takes_part_in_a_resumed_run_has_to_come_again_in_real_time_only(believes: bool) -> None:
    made = coordinator(clients=3, cohort=3, believes=believes)
    other = Coordinator(
        ALGORITHM,
        Participation(clients=3, cohort=3),
        seed=7,
        stop=Stop(rounds=100),
        evaluation=Cadence(),
        believes=believes,
    )
    other.restore(made.checkpoint(), [], positions(made))
    assert other.has_members is not believes and other.versions == made.versions


def test_a_join_that_was_asked_for_is_no_offence_however_often_it_comes() -> None:
    made = after(2)
    for _ in range(MAX_LOST + 5):
        assert joins(made, Join(1, (Span(1, 1, 1),), **PROOF), is_due=True) == ([], None), "it has its plan"
    assert made.missing == [0, 1, 2] and made.refusals.clients == {}
    assert made.reported(report(made, 1)) is None


def test_a_join_that_nobody_asked_for_is_answered_a_few_times_and_then_stands_for_a_report() -> None:
    made = after(2)
    for _ in range(MAX_LOST):
        plans, refusal = joins(made, Join(1, (Span(1, 1, 1),), **PROOF))
        assert [plan.client for plan, _ in plans] == [1] and refusal is None
    plans, refusal = joins(made, Join(1, (Span(1, 1, 1),), **PROOF))
    assert refusal is not None and (plans, refusal.reason) == ([], "joins-again")
    assert made.missing == [0, 2]


def test_a_client_that_comes_without_its_state_is_told_all_that_it_lost() -> None:
    made = after(3)
    plans, refusal = joins(made, Join(1, (Span(1, 1, 0),), **PROOF), is_due=True)
    assert refusal is None and [missed_in(plan) for plan, _ in plans] == [3]


def test_those_who_come_by_themselves_are_not_brought_by_a_process() -> None:
    made = coordinator(clients=4, cohort=4, believes=False, apart={2, 3})
    assert made.members == 2
    made.joined(Join(3, (Span(3, 3, 0),), **PROOF), is_due=True)
    made.joined(Join(HOST, (Span(0, 3, 0),), **PROOF))
    assert cohort_of(made) == [0, 1, 3]


def test_who_has_left_and_who_never_came_is_known_when_a_run_is_resumed() -> None:
    made = coordinator(clients=4, cohort=4, believes=False, apart={3})
    assert made.take_moved() == [(client, MemberPosition(0)) for client in range(3)]
    made.left([1, 3])
    made.joined(Join(3, (Span(3, 3, 0),), **PROOF), is_due=True)
    made.left([0])
    moved = made.take_moved()
    assert moved == [(0, MemberPosition(0, False)), (1, MemberPosition(0, False)), (3, MemberPosition(0))]
    other = Coordinator(
        ALGORITHM,
        Participation(clients=4, cohort=4),
        seed=7,
        stop=Stop(rounds=100),
        evaluation=Cadence(),
        believes=False,
        apart={3},
    )
    other.restore(made.checkpoint(), [], dict([(2, MemberPosition(0)), *moved]))
    assert other.versions == made.versions and list(other._positions.members) == list(made._positions.members) == [2, 3]
    other.joined(Join(HOST, (Span(0, 3, 0),), **PROOF))
    assert list(other._positions.members) == [2, 3], "a process that comes again brings nobody back who has left"


def test_a_join_that_was_overtaken_sets_nobody_back() -> None:
    """It was sent in a round before this one, and the client has reported since."""
    made = after(3)
    assert joins(made, Join(1, (Span(1, 1, 0),), **PROOF), round=made.round - 1) == ([], None)
    assert made.versions == {0: 2, 1: 2, 2: 2}
    made.left([1])
    made.joined(Join(1, (Span(1, 1, 0),), **PROOF), round=made.round - 1, is_due=True)
    assert made.versions[1] == 0, "who had left has reported nothing since"
