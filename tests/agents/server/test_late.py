"""Late reports: each counts once, in the next commit, by its weight, or it is refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from coordinator_cases import PROOF, DrivenCoordinator, joined_coordinator, positions, report
from hypothesis import given
from hypothesis import strategies as st
from late_cases import answer, ask, close_at_deadline, lenient_coordinator, play_round, refusal_reason, terms

from seedbus.agents.catch_up import chunks
from seedbus.agents.messages import Evaluation, Join, Span
from seedbus.agents.policies.participation import Late
from seedbus.bus import HOST, Envelope, Kind

# weights


def lacking(coordinator: DrivenCoordinator) -> int:
    return coordinator.rounds.lacking(coordinator.positions.members)


@pytest.mark.parametrize(("discount", "weights"), [(0.0, [1, 1, 1]), (0.5, [2**-0.5, 3**-0.5, 0.5]), (1, [0.5, 1 / 3])])
def test_a_report_weighs_less_the_more_commits_were_made_since_it_started(discount: float, weights: Any) -> None:
    late = Late(discount=discount)
    assert [late.weight(staleness) for staleness in range(1, len(weights) + 1)] == pytest.approx(weights, rel=1e-15)


def test_a_late_report_is_a_term_of_the_next_commit_with_its_weight_by_hand() -> None:
    coordinator = lenient_coordinator(clients=8, discount=1)
    late = play_round(coordinator, 0, 1, 2, 6)
    assert sorted(late) == [3, 4, 5, 7]
    assert terms(close_at_deadline(coordinator)) == [(0, 1.0, [[3.25, 3.25]])]
    also_late = play_round(coordinator, 0, 6)
    assert sorted(also_late) == [1, 2]
    assert coordinator.reported(late[3]) is None
    assert terms(close_at_deadline(coordinator)) == [(1, 1.0, [[4.0, 4.0]]), (0, 0.5 / 8, [[4.0, 4.0]])]
    assert sorted(play_round(coordinator, 0)) == [3, 6]
    for envelope in (late[4], also_late[1], also_late[2]):
        assert coordinator.reported(envelope) is None
    third = float(np.float32(1 / 3 / 8))
    assert terms(close_at_deadline(coordinator)) == [
        (2, 1.0, [[1.0, 1.0]]),
        (0, third, [[5.0, 5.0]]),
        (1, 2 * 0.5 / 4, [[2.5, 2.5]]),
    ], "those of one round are one term: client 1 said 2 and client 2 said 3"
    assert not play_round(coordinator, 0, 1, 2, 4), "the others are at work"
    assert terms(close_at_deadline(coordinator)) == [(3, 1.0, [[2.75, 2.75]])], "nothing is left"


def test_staleness_counts_commits_and_not_rounds() -> None:
    coordinator = lenient_coordinator(quorum=2, discount=1)
    late = play_round(coordinator, 0, 1)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert close_at_deadline(coordinator).commit is None
    assert coordinator.reported(late[2]) is None
    play_round(coordinator, 0, 2)
    assert terms(close_at_deadline(coordinator))[1] == (0, 0.5 / 4, [[3.0, 3.0]])


def test_a_late_report_waits_for_a_commit_where_a_round_has_no_quorum() -> None:
    coordinator = lenient_coordinator(quorum=2)
    late = play_round(coordinator, 0, 1)
    close_at_deadline(coordinator)
    in_vain = play_round(coordinator, 0)
    assert coordinator.reported(late[2]) is None
    assert close_at_deadline(coordinator).commit is None
    play_round(coordinator, 0, 2)
    assert coordinator.reported(in_vain[1]) is None
    assert [round for round, _, _ in terms(close_at_deadline(coordinator))] == [2, 0, 1]


def test_a_round_without_quorum_is_void_and_late_reports_are_no_quorum() -> None:
    coordinator = lenient_coordinator(quorum=2)
    late = play_round(coordinator, 0, 1)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert [coordinator.reported(late[client]) for client in (2, 3)] == [None, None]
    assert close_at_deadline(coordinator).commit is None
    assert refusal_reason(coordinator, report(coordinator, 0, round=1, base=1)) == "not-asked"


# at most once, in time, from its starting version


def test_a_late_report_counts_once_before_and_after_it_is_in_a_commit() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)[1]
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert [refusal_reason(coordinator, late), refusal_reason(coordinator, late)] == [None, "duplicate"]
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, late) == "not-asked"
    assert len(terms(close_at_deadline(coordinator))) == 1


def test_a_client_that_reported_in_time_is_not_counted_again_late() -> None:
    coordinator = lenient_coordinator()
    play_round(coordinator, 0)
    again = answer(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, again) == "not-asked"
    assert len(terms(close_at_deadline(coordinator))) == 1


def test_a_second_answer_to_a_round_that_waits_for_nobody_is_late() -> None:
    coordinator = lenient_coordinator()
    again = play_round(coordinator, 1, 2, 3)[0]
    assert coordinator.reported(again) is None
    close_at_deadline(coordinator)
    assert refusal_reason(coordinator, again) == "late"


@pytest.mark.parametrize("max_staleness", [1, 2, 5])
def test_a_report_is_given_up_after_the_maximum_staleness(max_staleness: int) -> None:
    coordinator = lenient_coordinator(max_staleness=max_staleness)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    for _ in range(max_staleness):
        assert coordinator.rounds.get(0) is not None
        play_round(coordinator, 0)
        if coordinator.round == max_staleness:
            assert refusal_reason(coordinator, late[1]) is None
        close_at_deadline(coordinator)
    assert coordinator.rounds.get(0) is None
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, late[2]) == "late"
    assert all(round > 0 for round, _, _ in terms(close_at_deadline(coordinator)))


def test_a_late_report_from_another_version_is_refused_and_no_longer_waited_for() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, report(coordinator, 1, round=0, base=1)) == "wrong-version"
    assert refusal_reason(coordinator, late[1]) == "not-asked"
    assert refusal_reason(coordinator, late[2]) is None


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1e38, 1.0], [1.0, 2.0, 3.0]])
def test_an_invalid_late_report_is_refused_and_no_longer_waited_for(values: list[float]) -> None:
    coordinator = lenient_coordinator()
    play_round(coordinator, 0)
    bad = report(coordinator, 1, values)
    good = answer(coordinator, 1)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, bad) in ("not-finite", "absurd", "bad-payload")
    assert refusal_reason(coordinator, good) == "not-asked"
    assert len(terms(close_at_deadline(coordinator))) == 1


def test_a_report_of_a_future_round_is_refused_while_none_is_open() -> None:
    coordinator = lenient_coordinator()
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    assert refusal_reason(coordinator, report(coordinator, 1)) == "wrong-round"


def test_a_late_report_that_comes_between_two_rounds_counts_in_the_next() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    assert refusal_reason(coordinator, late[1]) is None
    play_round(coordinator, 0)
    assert len(terms(close_at_deadline(coordinator))) == 2


def test_without_late_a_late_report_is_discarded() -> None:
    coordinator = joined_coordinator(4, 4)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, late[1]) == "late"
    assert coordinator.rounds.get(0) is None


# clients at work


@pytest.mark.parametrize(
    "event", ["nothing", "reports", "declines", "is refused", "leaves", "leaves and joins", "joins anew", "too old"]
)
def test_a_client_at_work_is_asked_again_once_it_is_free(event: str) -> None:
    coordinator = lenient_coordinator(max_staleness=2)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    assert not play_round(coordinator, 0), "the others are at work"
    if event == "reports":
        assert coordinator.reported(late[1]) is None
    elif event == "declines":
        assert refusal_reason(coordinator, late[1]._replace(kind=Kind.DECLINE, body=["overflow", "no"])) == "overflow"
    elif event == "is refused":
        late[1].body[0] = np.array([math.nan, 1.0], "<f4").tobytes()
        assert refusal_reason(coordinator, late[1]) == "not-finite"
    elif "leaves" in event:
        coordinator.left([1])
    if "joins" in event:
        coordinator.joined(Join(1, (Span(1, 1, 0),), **PROOF), is_due=True)
    close_at_deadline(coordinator)
    if event == "too old":
        assert not play_round(coordinator, 0)
        close_at_deadline(coordinator)
    assert set(ask(coordinator)) == {"nothing": {0}, "leaves": {0}, "too old": {0, 1, 2, 3}}.get(event, {0, 1})


def test_clients_that_over_selection_leaves_over_are_at_work() -> None:
    coordinator = joined_coordinator(6, 2, policy={"over_selection": 2, "late": {}})
    first = ask(coordinator)
    a, b, *others = first
    assert [coordinator.reported(first[client]) for client in (a, b)] == [None, None]
    assert coordinator.rounds.is_over and len(others) == 2
    coordinator.close_round()
    assert set(ask(coordinator)) == set(range(6)) - set(others)


def test_without_late_a_client_that_missed_the_deadline_is_asked_anew() -> None:
    coordinator = joined_coordinator(4, 4, policy={"deadline_s": 1})
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    assert set(ask(coordinator)) == {0, 1, 2, 3}


@pytest.mark.parametrize("max_staleness", [1, 3])
def test_a_round_for_which_too_few_are_free_asks_nobody_and_lets_rounds_pass(max_staleness: int) -> None:
    coordinator = lenient_coordinator(quorum=2, max_staleness=max_staleness)
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    for _ in range(max_staleness):
        assert lacking(coordinator)
        assert not ask(coordinator) and coordinator.rounds.is_over
        closed = coordinator.close_round()
        assert closed.commit is None and closed.record.is_expired
    assert not lacking(coordinator) and set(ask(coordinator)) == {0, 1, 2, 3}


def test_only_the_plan_of_a_round_that_may_be_answered_keeps_its_client_from_others() -> None:
    coordinator = lenient_coordinator()
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    computing = {(0, 0), (1, 0), (2, 1)}  # client 2 has a plan of a round that a crash of the server has ended
    coordinator.open_round(0, computing)
    assert coordinator.missing == [0, 2, 3], "client 0 has answered, and plans to it are duplicates"


def test_where_there_are_too_few_members_no_round_waits_for_those_at_work() -> None:
    coordinator = lenient_coordinator(quorum=2)
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    coordinator.left([0, 2])
    assert lacking(coordinator) == 2, "both that are left are needed"
    coordinator.left([3])
    assert not lacking(coordinator), "client 1 alone would be no quorum either"


def test_a_client_that_has_left_is_not_at_work_again_after_a_crash() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    coordinator.checkpoint()
    assert set(ask(coordinator)) == {0}
    assert coordinator.reported(late[2]) is None
    coordinator.left([1])
    coordinator.joined(Join(1, (Span(1, 1, 0),), **PROOF), is_due=True)
    coordinator.crashed()
    assert set(ask(coordinator)) == {0, 1}, "and the report of client 2 is lost, so it is at work again"


moves = st.lists(st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 17))), min_size=1, max_size=12)


@given(moves, st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(0, 12))
@pytest.mark.slow
def test_no_client_is_asked_while_its_report_can_count_and_rounds_never_run_dry(
    history: list[tuple[set[int], set[int]]], max_staleness: int, quorum: int, cohort: int, cut: int
) -> None:
    """Any answers are lost, any come late, and the run is resumed once."""

    def fresh() -> DrivenCoordinator:
        return lenient_coordinator(6, quorum=min(quorum, cohort), cohort=cohort, max_staleness=max_staleness)

    coordinator, at_work = fresh(), dict[int, Envelope]()
    newest_asked = 0
    for number, (prompt, tardy) in enumerate(history):
        if number == cut:
            again = fresh()
            again.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
            coordinator = again
        at_work = {client: late for client, late in at_work.items() if late.round + max_staleness >= coordinator.round}
        asked = ask(coordinator)
        free = 6 - len(at_work)
        assert not asked.keys() & at_work.keys()
        assert len(asked) == (min(cohort, free) if free >= min(quorum, cohort) else 0)
        newest_asked = coordinator.round if asked else newest_asked
        assert coordinator.round - newest_asked <= max_staleness
        for client in prompt & asked.keys():
            assert coordinator.reported(asked.pop(client)) is None
        for client in tardy & at_work.keys():
            assert coordinator.reported(at_work.pop(client)) is None
        close_at_deadline(coordinator)
        at_work |= asked


# clients that leave and return


@pytest.mark.parametrize("event", ["joins with its process", "joins alone", "leaves"])
def test_a_pending_late_report_is_dropped_when_its_client_returns_or_leaves(event: str) -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    if event == "leaves":
        coordinator.left([1])
    else:
        coordinator.joined(Join(HOST if event == "joins with its process" else 1, (Span(1, 1, 1),), **PROOF))
    assert refusal_reason(coordinator, late[1]) == "not-asked"
    assert refusal_reason(coordinator, late[2]) is None, "the others still may"


def test_a_client_that_asks_for_a_snapshot_that_is_gone_answers_no_earlier_round() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    pull = chunks.pull(chunks.Title(1, 1, bytes(chunks.DIGEST_BYTES)), (0,), 1, 0)
    assert refusal_reason(coordinator, pull) == "no-snapshot"
    assert refusal_reason(coordinator, late[1]) == "not-asked"


def test_a_late_report_received_before_its_client_returned_still_counts() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, late[1]) is None
    coordinator.joined(Join(HOST, (Span(1, 1, 0),), **PROOF))
    assert len(terms(close_at_deadline(coordinator))) == 2


def test_a_report_that_comes_too_late_to_count_does_not_set_its_client_back() -> None:
    coordinator = lenient_coordinator(max_staleness=1)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 1)
    assert coordinator.positions.believed[1] == 2
    assert refusal_reason(coordinator, late[1]) == "late"
    assert coordinator.positions.believed[1] == 2


# digests


@pytest.mark.parametrize("rounds", [1, 100])
def test_a_late_report_of_a_diverged_replica_is_refused_however_late(rounds: int) -> None:
    coordinator = joined_coordinator(3, 3, policy={"late": {"max_staleness": 200}, "deadline_s": 1}, verify_every=1)
    coordinator.evaluated(Evaluation(0, 0, {}, {"x": b"x" * 8}).pack(), 0)
    coordinator.open_round()
    late = [report(coordinator, client, digests={"x": digest * 8}) for client, digest in ((1, b"x"), (2, b"y"))]
    for version in range(rounds):
        coordinator.reported(report(coordinator, 0, digests={"x": b"x" * 8}))
        close_at_deadline(coordinator)
        coordinator.evaluated(Evaluation(version, version + 1, {}, {"x": b"x" * 8}).pack(), 0)
        coordinator.open_round()
    assert [refusal_reason(coordinator, envelope) for envelope in late] == [None, "diverged"]
