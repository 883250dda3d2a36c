"""Membership: processes that join, leave and return, and those that are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from coordinator_cases import (
    ALGORITHM,
    PROOF,
    after_rounds,
    cohort_of,
    joined_coordinator,
    joins,
    new_coordinator,
    positions,
    report,
)
from event_recorder import EventRecorder

from seedbus.agents.catch_up.server import MAX_LOST
from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import Join, Span
from seedbus.agents.policies.participation import Participation
from seedbus.agents.refusals import MAX_NOTED, MAX_PEERS, NOBODY
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.stages import Stage
from seedbus.algorithms.contract import ReportRefused
from seedbus.algorithms.scalar_only.decomfl import DeComFL
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
def test_a_client_that_computes_something_else_or_joins_for_another_is_refused(join: Join, reason: str) -> None:
    coordinator = joined_coordinator()
    before = dict(coordinator.positions.believed)
    plans, refusal = joins(coordinator, join)
    assert plans == [] and coordinator.positions.believed == before
    assert refusal is not None
    assert (refusal.client, refusal.reason) == (join.sender, reason)
    assert coordinator.refusals.clients == {(join.sender, reason): 1}


def missed_in(plan: Envelope) -> int:
    return len(ALGORITHM.unpack_commits(plan.body[1]))


@pytest.mark.parametrize("client", [0, 1])
@pytest.mark.parametrize("believes", [True, False])
def test_a_client_at_an_unexpected_version_gets_a_new_plan_from_its_actual_version(believes: bool, client: int) -> None:
    coordinator = after_rounds(3, is_virtual=not believes)
    plans, refusal = joins(coordinator, Join(client, (Span(client, client, 0),), **PROOF))
    assert refusal is None and coordinator.positions.believed == {0: 2, 1: 2, 2: 2} | {client: 0}
    assert [(plan.kind, plan.client, missed_in(plan)) for plan, _ in plans] == [(Kind.PLAN, client, 3)]


def test_a_client_at_an_unexpected_version_without_a_pending_report_is_not_asked_again() -> None:
    coordinator = after_rounds(1)
    coordinator.reported(report(coordinator, 1))
    plans, refusal = joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF))
    assert (plans, refusal) == ([], None) and coordinator.positions.believed[1] == 0
    assert coordinator.missing == [0, 2]


def test_a_returning_process_keeps_its_claimed_versions_and_is_asked_again() -> None:
    coordinator = after_rounds(2, is_virtual=False)
    coordinator.reported(report(coordinator, 2))
    plans, _ = joins(coordinator, Join(HOST, (Span(0, 1, 1), Span(2, 2, 0)), **PROOF))
    assert coordinator.positions.believed == {0: 1, 1: 1, 2: 0}
    assert [(plan.client, missed_in(plan)) for plan, _ in plans] == [(0, 1), (1, 1)], "client 2 has reported"


def test_a_returning_process_in_simulated_time_counts_as_never_gone() -> None:
    coordinator = after_rounds(2, is_virtual=True)
    before = (coordinator.checkpoint(), coordinator.positions.take_believed())
    for _ in range(MAX_LOST + 1):
        assert joins(coordinator, Join(HOST, (Span(0, 2, 0),), **PROOF)) == ([], None)
    assert (coordinator.checkpoint(), coordinator.positions.believed, coordinator.positions.take_believed()) == (
        before[0],
        dict.fromkeys(range(3), 1),
        [],
    )


def test_clients_that_have_left_are_neither_awaited_nor_asked_until_they_rejoin() -> None:
    coordinator = after_rounds(2, quorum=2)
    coordinator.reported(report(coordinator, 2))
    coordinator.left([0, 1])
    assert [coordinator.rounds.is_over, coordinator.has_members] == [True, False]
    assert coordinator.close_round().reported == (2,)
    assert coordinator.positions.believed[0] == 1, "what it holds is not forgotten"
    coordinator.joined(Join(HOST, (Span(1, 1, 1),), **PROOF))
    assert [coordinator.has_members, cohort_of(coordinator)] == [True, [1, 2]]


def test_a_client_that_has_left_does_not_come_back_by_itself() -> None:
    coordinator = after_rounds(1)
    coordinator.left([1])
    plans, refusal = joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF))
    assert refusal is not None
    believed = coordinator.positions.believed
    assert (plans, refusal.reason, believed[1], coordinator.missing) == ([], "not-a-member", 0, [0, 2])
    coordinator.close_round()
    assert cohort_of(coordinator) == [0, 2]


def test_a_report_of_a_client_that_has_left_is_not_waited_for_any_more() -> None:
    coordinator = after_rounds(1)
    coordinator.left([1])
    refusal = coordinator.reported(report(coordinator, 1))
    assert refusal is not None
    assert refusal.reason == "not-asked" and coordinator.missing == [0, 2]


def test_a_client_that_leaves_twice_or_never_joined_changes_nothing() -> None:
    coordinator = joined_coordinator(clients=3, cohort=3)
    coordinator.left([1, 1, 99])
    coordinator.left([1])
    assert cohort_of(coordinator) == [0, 2]


def test_the_first_stranger_does_not_decide_the_reference_proof() -> None:
    coordinator = new_coordinator(Participation(clients=6, cohort=3), proofs=PROOF)
    _, refusal = joins(coordinator, Join(HOST - 1, (Span(0, 5, 0),), selftest=b"s", x0=b"other"))
    assert refusal is not None
    assert not coordinator.has_members
    coordinator.joined(Join(HOST, (Span(0, 5, 0),), **PROOF))
    assert coordinator.has_members


def test_the_first_member_decides_proofs_that_are_not_given_beforehand() -> None:
    coordinator = joined_coordinator(proofs={"selftest": b"s"})
    assert coordinator.joining.proofs == PROOF
    with pytest.raises(ReportRefused):
        coordinator.joined(Join(HOST - 1, (Span(0, 5, 0),), selftest=b"s", x0=b"other"))
    assert coordinator.joining.proofs == PROOF


def test_a_client_alone_decides_no_proofs_and_nor_does_a_process_that_may_not() -> None:
    who = Participation(clients=6, cohort=3)
    coordinator = new_coordinator(who)
    coordinator.joined(Join(0, (Span(0, 0, 0),), **PROOF), is_due=True)
    coordinator.joined(Join(HOST, (Span(1, 5, 0),), **PROOF), decides=False)
    assert coordinator.joining.proofs == {} and len(coordinator.positions.members) == 6


def test_refusals_of_strangers_are_counted_by_name_up_to_a_limit() -> None:
    coordinator = joined_coordinator()
    for number in range(MAX_PEERS + 50):
        for _ in range(2):
            coordinator.refused_peer(f"10.0.0.1:{number}", "protocol", "protocol 4")
    assert coordinator.refusals.peers["10.0.0.1:0", "protocol"] == 2
    assert coordinator.refusals.peers["others", "protocol"] == 2 * 50
    assert len(coordinator.refusals.peers) == MAX_PEERS + 1 and coordinator.refusals.peers.total() == 2 * (
        MAX_PEERS + 50
    )


def test_a_persistent_stranger_is_reported_a_few_times_and_always_counted() -> None:
    observer = EventRecorder()
    coordinator = joined_coordinator(observer=observer)
    for number in range(MAX_NOTED + 20):
        coordinator.refused_peer("10.0.0.1:4", "protocol", f"protocol {number}")
    first = observer.refusals[0]
    assert (first.client, first.reason, first.detail) == (NOBODY, "protocol", "10.0.0.1:4: protocol 0")
    assert len(observer.refusals) == MAX_NOTED
    assert coordinator.refusals.peers == {("10.0.0.1:4", "protocol"): MAX_NOTED + 20}
    coordinator.refused_peer("10.0.0.1:5", "protocol", "…")
    assert len(observer.refusals) == MAX_NOTED + 1


def test_a_restored_coordinator_keeps_the_refused_clients() -> None:
    coordinator, other = joined_coordinator(), joined_coordinator()
    coordinator.refused(3, "late", "the first")
    coordinator.refused(2, "late", "the second")
    coordinator.refused_peer("10.0.0.1:4", "protocol", "protocol\x1b[31m 4")
    other.restore(coordinator.checkpoint(), [], {})
    assert other.refusals.clients == {(2, "late"): 1, (3, "late"): 1}
    assert other.refusals.peers == {("10.0.0.1:4", "protocol"): 1}
    assert other.refusals.details == {"late": "the first", "protocol": "protocol [31m 4"}
    other.refused(1, "late", "the third")
    assert other.refusals.details["late"] == "the first"


@pytest.mark.parametrize("believes", [True, False])
def test_members_of_a_resumed_run_have_to_join_again_in_real_time_only(believes: bool) -> None:
    coordinator = joined_coordinator(clients=3, cohort=3, is_virtual=not believes)
    other = new_coordinator(Participation(clients=3, cohort=3), is_virtual=not believes)
    other.restore(coordinator.checkpoint(), [], positions(coordinator))
    assert other.has_members is not believes and other.positions.believed == coordinator.positions.believed


def test_a_requested_join_is_accepted_any_number_of_times() -> None:
    coordinator = after_rounds(2)
    for _ in range(MAX_LOST + 5):
        assert joins(coordinator, Join(1, (Span(1, 1, 1),), **PROOF), is_due=True) == ([], None), "it has its plan"
    assert coordinator.missing == [0, 1, 2] and coordinator.refusals.clients == {}
    assert coordinator.reported(report(coordinator, 1)) is None


@pytest.mark.parametrize("client", [0, 1])
def test_an_unrequested_join_is_answered_a_few_times_and_then_counts_as_a_report(client: int) -> None:
    coordinator = after_rounds(2)
    join = Join(client, (Span(client, client, 1),), **PROOF)
    for _ in range(MAX_LOST):
        plans, refusal = joins(coordinator, join)
        assert [plan.client for plan, _ in plans] == [client] and refusal is None
    plans, refusal = joins(coordinator, join)
    assert refusal is not None and (plans, refusal.reason) == ([], "joins-again")
    assert coordinator.missing == [1 - client, 2]


def test_a_client_may_say_between_two_rounds_where_it_is_and_a_join_for_nobody_changes_nothing() -> None:
    coordinator = after_rounds(2)
    before = dict(coordinator.positions.believed)
    assert joins(coordinator, Join(1, (), **PROOF)) == ([], None) and coordinator.positions.believed == before
    coordinator.deadline_passed(coordinator.round)
    coordinator.close_round()
    for _ in range(MAX_LOST + 1):
        assert (
            joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF)) == ([], None)
            and coordinator.positions.believed[1] == 0
        )


def test_a_client_that_returns_without_its_state_is_sent_everything_it_lost() -> None:
    coordinator = after_rounds(3)
    plans, refusal = joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF), is_due=True)
    assert refusal is None and [missed_in(plan) for plan, _ in plans] == [3]


def test_clients_that_return_by_themselves_are_not_joined_by_a_process() -> None:
    coordinator = joined_coordinator(clients=4, cohort=4, is_virtual=True, apart={2, 3})
    assert len(coordinator.positions.members) == 2
    coordinator.joined(Join(3, (Span(3, 3, 0),), **PROOF), is_due=True)
    coordinator.joined(Join(HOST, (Span(0, 3, 0),), **PROOF))
    assert cohort_of(coordinator) == [0, 1, 3]


def test_a_resumed_run_knows_which_clients_have_left_and_which_never_joined() -> None:
    coordinator = joined_coordinator(clients=4, cohort=4, is_virtual=True, apart={3})
    assert coordinator.positions.take_believed() == [(client, MemberPosition(0)) for client in range(3)]
    coordinator.left([1, 3])
    coordinator.joined(Join(3, (Span(3, 3, 0),), **PROOF), is_due=True)
    coordinator.left([0])
    moved = coordinator.positions.take_believed()
    assert moved == [(0, MemberPosition(0, False)), (1, MemberPosition(0, False)), (3, MemberPosition(0))]
    other = new_coordinator(Participation(clients=4, cohort=4), is_virtual=True, apart={3})
    other.restore(coordinator.checkpoint(), [], dict([(2, MemberPosition(0)), *moved]))
    assert other.positions.believed == coordinator.positions.believed and list(other.positions.members) == list(
        coordinator.positions.members
    ) == [2, 3]
    other.joined(Join(HOST, (Span(0, 3, 0),), **PROOF))
    assert list(other.positions.members) == [2, 3], "a process that comes again brings nobody back who has left"


def test_an_outdated_join_sets_no_client_back() -> None:
    """The JOIN was sent in an earlier round, and the client has reported since."""
    coordinator = after_rounds(3)
    assert joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF), round=coordinator.round - 1) == ([], None)
    assert coordinator.positions.believed == {0: 2, 1: 2, 2: 2}
    coordinator.left([1])
    coordinator.joined(Join(1, (Span(1, 1, 0),), **PROOF), round=coordinator.round - 1, is_due=True)
    assert coordinator.positions.believed[1] == 0, "who had left has reported nothing since"
    coordinator.reported(report(coordinator, 2))
    assert joins(coordinator, Join(2, (Span(2, 2, 0),), **PROOF), round=coordinator.round - 1) == ([], None)
    assert coordinator.positions.believed[2] == 3


@pytest.mark.parametrize("version", [2, 3])
def test_a_join_of_an_earlier_round_that_sets_no_client_back_is_believed(version: int) -> None:
    coordinator = after_rounds(3)
    plans, _ = joins(coordinator, Join(1, (Span(1, 1, version),), **PROOF), round=coordinator.round - 1)
    assert coordinator.positions.believed[1] == version and [missed_in(plan) for plan, _ in plans] == [3 - version]


def test_a_late_answer_from_before_a_client_lost_its_state_does_not_keep_commits_from_it_for_ever() -> None:
    """The client says in a later round that it cannot follow its plan, and says that late, too."""
    coordinator = after_rounds(3)
    coordinator.joined(Join(1, (Span(1, 1, 0),), **PROOF), round=coordinator.round, is_due=True)
    old = Envelope(Kind.REPORT, 1, 1, 1, [])
    refusal = coordinator.reported(old)
    assert refusal is not None and refusal.reason == "late" and coordinator.positions.believed[1] == 1
    asked_in = coordinator.round
    for client in (0, 2):
        coordinator.reported(report(coordinator, client))
    coordinator.close_round()
    coordinator.open_round()
    joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF), round=asked_in)
    assert coordinator.positions.believed[1] == 0


def test_a_join_of_the_open_round_is_believed_and_so_is_one_of_an_earlier_round_that_is_no_step_back() -> None:
    """Else a client that lost its state would get plans that it cannot follow until its round is over."""
    coordinator = after_rounds(3)
    for round in (coordinator.round, coordinator.round - 1):
        plans, refusal = joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF), round=round)
        assert refusal is None and [(plan.client, missed_in(plan)) for plan, _ in plans] == [(1, 3)]
        assert coordinator.positions.believed == {0: 2, 1: 0, 2: 2}
    coordinator = after_rounds(3)
    coordinator.reported(report(coordinator, 1))
    joins(coordinator, Join(1, (Span(1, 1, 0),), **PROOF), round=coordinator.round)
    assert coordinator.positions.believed == {0: 2, 1: 0, 2: 2}, "it has lost its state since it reported"


@pytest.mark.parametrize("clients", [(3,), (0, 1, 2, 3)])
def test_a_client_whose_process_has_left_is_not_blamed_for_a_later_question(clients: tuple[int, ...]) -> None:
    """In real time nothing answers for it, and no deadline ends the wait."""
    pytest.importorskip("cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'")
    from seedbus.agents.secure.party import Party
    from seedbus.agents.secure.secure_round import SecureRound

    algorithm, settings = DeComFL(arithmetic="integer", precision="int32"), SecureAggregation()
    open_exchange = partial(SecureRound, settings, Participation(clients=4), 7)
    coordinator = joined_coordinator(clients=4, cohort=4, algorithm=algorithm, open_exchange=open_exchange)
    parties = [Party(settings, coordinator.participation) for _ in range(4)]
    coordinator.open_round()
    for stage in (Stage.KEYS, Stage.SHARES):
        coordinator.ask(stage)
        for ask, _ in coordinator.take_sent():
            answer = parties[ask.client].answer(ask)
            if answer is not None and (stage is Stage.KEYS or ask.client not in clients):
                assert coordinator.reported(answer) is None
        if stage is Stage.KEYS:
            coordinator.left(clients)
    assert coordinator.exchange.waiting
    assert coordinator.no_answer(()) == [] and not coordinator.exchange.waiting


def test_no_decision_depends_on_what_only_the_simulation_knows() -> None:
    def played(nonsense: dict[int, int]) -> Any:
        coordinator = joined_coordinator(clients=4, cohort=3)
        for _ in range(3):
            coordinator.positions.delivered, coordinator.positions.actual = dict(nonsense), dict(nonsense)
            for client in cohort_of(coordinator)[:2]:
                coordinator.reported(report(coordinator, client))
            coordinator.joined(Join(3, (Span(3, 3, 0),), **PROOF), is_due=True)
            coordinator.deadline_passed(coordinator.round)
            coordinator.close_round()
        return coordinator.checkpoint(), coordinator.sent, coordinator.positions.take_believed()

    assert played({}) == played({0: 9, 1: 1, 2: 3, 3: 2, EVALUATOR: 7})
