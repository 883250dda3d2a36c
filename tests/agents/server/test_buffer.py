"""Asynchronous rounds without an event loop: the coordinator commits once the buffer is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from coordinator_cases import ALGORITHM, DrivenCoordinator, cohort_of, joined_coordinator, positions, report
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.round_record import ClosedRound
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.bus import Envelope

SECOND = 10**9


def buffered(buffer: int = 2, quorum: int = 1, clients: int = 10, cohort: int = 5, **late: Any) -> DrivenCoordinator:
    """Return a coordinator with a buffer and a deadline of ten seconds."""
    return joined_coordinator(clients, cohort, quorum, policy={"buffer": buffer, "late": late, "deadline_s": 10})


def open_round(coordinator: DrivenCoordinator, now_s: float = 0.0) -> dict[int, Envelope]:
    """Open the next round; return the report of each client that it asks."""
    cohort = cohort_of(coordinator, round(now_s * SECOND))
    return {client: report(coordinator, client, [client + 1.0, 0.0]) for client in cohort}


def terms(closed: ClosedRound) -> list[tuple[int, float, float]]:
    """Return (round, weight, first scalar) of each term of a commit."""
    assert isinstance(closed.commit, ScalarCommit)
    return [(term.round, term.weight, float(term.scalars[0, 0])) for term in closed.commit.terms]


def hand_in(coordinator: DrivenCoordinator, reports: Sequence[Envelope]) -> None:
    for envelope in reports:
        assert coordinator.reported(envelope) is None


def is_over(coordinator: DrivenCoordinator) -> bool:
    return coordinator.rounds.is_over


def test_a_full_buffer_commits_and_busy_clients_are_topped_up_to_the_cohort() -> None:
    coordinator = buffered(buffer=2)
    first = open_round(coordinator)
    a, b, *rest = first
    hand_in(coordinator, [first[a]])
    assert not is_over(coordinator)
    hand_in(coordinator, [first[b]])
    assert is_over(coordinator)
    assert terms(coordinator.close_round()) == [(0, 1.0, (a + b + 2) / 2)]
    second = open_round(coordinator, 1)
    assert len(second) == 2 and not set(second) & set(rest), "three are still at work"


def test_the_weights_of_a_buffer_by_hand() -> None:
    """Four reports: one fresh, one of the commit before, two of two commits before; s(τ) = (1 + τ)^−1."""
    coordinator = buffered(buffer=4, discount=1)
    first = open_round(coordinator)
    a, b, c, d, e = first
    hand_in(coordinator, [first[a]])
    coordinator.deadline_passed(0)
    assert terms(coordinator.close_round()) == [(0, 1.0, a + 1)]
    second = open_round(coordinator, 1)
    (f,) = second
    coordinator.deadline_passed(1)
    hand_in(coordinator, [first[b]])
    assert terms(coordinator.close_round()) == [(1, 0.0, 0.0), (0, 0.5, b + 1)], "one late report is all there is"
    third = open_round(coordinator, 2)
    g = next(iter(third))
    hand_in(coordinator, [third[g], first[d], first[c], second[f]])
    assert is_over(coordinator)
    assert terms(coordinator.close_round()) == [
        (2, 0.25, g + 1),
        (0, float(np.float32(2 / 3 / 4)), (c + d + 2) / 2),
        (1, 0.5 / 4, f + 1),
    ]
    assert e not in open_round(coordinator, 3), "it is still at work"


def test_late_reports_alone_fill_a_buffer() -> None:
    coordinator = buffered(buffer=2, discount=0)
    first = open_round(coordinator)
    a, b, c, d, _ = first
    hand_in(coordinator, [first[a], first[b]])
    coordinator.close_round()
    open_round(coordinator, 1)
    hand_in(coordinator, [first[d], first[c]])
    assert is_over(coordinator)
    assert terms(coordinator.close_round()) == [(1, 0.0, 0.0), (0, 1.0, (c + d + 2) / 2)]
    assert coordinator.version == 2


def test_a_round_that_opens_with_a_full_buffer_ends_at_once() -> None:
    coordinator = buffered(buffer=2)
    first = open_round(coordinator)
    a, b, c, d, _ = first
    hand_in(coordinator, [first[a], first[b]])
    coordinator.close_round()
    hand_in(coordinator, [first[c], first[d]])
    open_round(coordinator, 1)
    assert is_over(coordinator)


def test_a_buffer_without_quorum_continues_to_fill() -> None:
    coordinator = buffered(buffer=3, quorum=3, discount=0)
    first = open_round(coordinator)
    a, b, c, *_ = first
    hand_in(coordinator, [first[a], first[b]])
    assert not is_over(coordinator)
    coordinator.deadline_passed(0)
    assert is_over(coordinator)
    closed = coordinator.close_round()
    assert closed.commit is None and closed.reported == (a, b)
    open_round(coordinator, 11)
    assert not is_over(coordinator)
    hand_in(coordinator, [first[c]])
    assert is_over(coordinator)
    assert terms(coordinator.close_round())[1:] == [(0, 1.0, (a + b + c + 3) / 3)]
    refusal = coordinator.reported(first[a])
    assert refusal is not None and refusal.reason == "not-asked", "it has counted"


def test_a_client_that_has_not_answered_by_the_deadline_may_be_asked_again() -> None:
    coordinator = buffered(buffer=1, clients=5)
    first = open_round(coordinator, 3)
    a, *silent = first
    hand_in(coordinator, [first[a]])
    coordinator.close_round()
    assert set(open_round(coordinator, 12.999)) == {a}
    coordinator.deadline_passed(1)
    coordinator.close_round()
    assert set(open_round(coordinator, 13)) == set(silent), "ten seconds after they were asked"
    hand_in(coordinator, [first[silent[0]]])
    assert is_over(coordinator), "and what they had to say still counts"


def test_without_a_deadline_a_client_is_waited_for_until_its_report_is_given_up() -> None:
    coordinator = joined_coordinator(4, 2, policy={"buffer": 1, "late": {"max_staleness": 3}})
    first = open_round(coordinator)
    silent, quick = first
    hand_in(coordinator, [first[quick]])
    for _ in range(3):
        coordinator.close_round()
        assert coordinator.rounds.get(0) is not None
        reports = open_round(coordinator)
        assert len(reports) == 1 and silent not in reports
        hand_in(coordinator, list(reports.values()))
    coordinator.close_round()
    assert coordinator.rounds.get(0) is None and len(open_round(coordinator)) == 2


def test_an_asynchronous_round_waits_for_clients_of_earlier_rounds_once_its_own_have_answered() -> None:
    coordinator = buffered(buffer=3)
    first = open_round(coordinator)
    a, b, c, *_ = first
    hand_in(coordinator, [first[a]])
    coordinator.deadline_passed(0)
    coordinator.close_round()
    (only,) = open_round(coordinator, 1).values()
    hand_in(coordinator, [only])
    assert not is_over(coordinator)
    hand_in(coordinator, [first[b], first[c]])
    assert is_over(coordinator)


def test_an_asynchronous_round_ends_when_no_client_is_left_to_answer() -> None:
    coordinator = buffered(buffer=5)
    for envelope in open_round(coordinator).values():
        envelope.body[0] = np.array([np.nan, 1.0], "<f4").tobytes()
        assert coordinator.reported(envelope) is not None
    assert is_over(coordinator)
    assert coordinator.close_round().commit is None


moves = st.lists(st.one_of(st.integers(0, 30), st.just("deadline")), max_size=60)


@settings(max_examples=60)
@given(moves, st.integers(1, 5), st.integers(1, 4), st.integers(0, 60), st.booleans())
def test_at_most_the_cohort_works_and_every_report_counts_at_most_once(
    history: list[int | str], buffer: int, max_staleness: int, cut: int, is_timed: bool
) -> None:
    """The clock stands still, so that no deadline passes; every report contains 1."""

    def fresh() -> DrivenCoordinator:
        policy = {"buffer": buffer, "late": {"max_staleness": max_staleness, "discount": 0}}
        return joined_coordinator(8, 5, buffer, policy=policy | ({"deadline_s": 1} if is_timed else {}))

    coordinator, outstanding, good = fresh(), list[Envelope](), 0

    def ask() -> None:
        cohort = cohort_of(coordinator, 5)
        working = coordinator.rounds._overdue.busy(-1)
        assert not working & set(cohort) and len(working) + len(cohort) <= 5
        outstanding.extend(report(coordinator, client, [1.0, 1.0]) for client in cohort)

    ask()
    for number, move in enumerate(history):
        if isinstance(move, str):
            coordinator.deadline_passed(coordinator.round)
        elif outstanding:
            good += coordinator.reported(outstanding[move % len(outstanding)]) is None
        if is_over(coordinator):
            coordinator.close_round()
            if number > cut:
                again = fresh()
                again.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
                assert again.checkpoint() == coordinator.checkpoint()
                coordinator, cut = again, len(history)
            ask()
    assert good >= len(coordinator.history.since(0)) * buffer, "no report has counted twice"
    for commit in coordinator.history.since(0):
        total = sum(term.weight * float(term.scalars[0, 0]) for term in commit.terms)
        assert abs(total - 1) < 1e-6, "the weights of a buffer's reports make up one"
    assert ALGORITHM.unpack_commits(ALGORITHM.pack_commits(coordinator.history.since(0)).body) is not None


def test_a_client_whose_late_report_is_lost_in_a_crash_is_at_work_until_the_deadline() -> None:
    coordinator = buffered(buffer=2, clients=2, cohort=2, quorum=2)
    first = open_round(coordinator)
    coordinator.deadline_passed(0)
    coordinator.close_round()
    coordinator.checkpoint()
    assert not open_round(coordinator, 1)
    hand_in(coordinator, [first[0]])
    coordinator.crashed()
    assert not open_round(coordinator, 9)
    assert set(open_round(coordinator, 10)) == {0, 1}


def test_a_client_that_left_after_its_late_report_is_not_at_work_again_after_crashes() -> None:
    coordinator = buffered(buffer=1, clients=2, cohort=1)
    (leaves,) = first = open_round(coordinator)
    coordinator.deadline_passed(0)
    coordinator.close_round()
    coordinator.checkpoint()
    assert not open_round(coordinator, 1)
    hand_in(coordinator, [first[leaves]])
    coordinator.left([leaves])
    for _ in range(2):
        coordinator.crashed()
        assert list(open_round(coordinator, 2)) == [1 - leaves]
