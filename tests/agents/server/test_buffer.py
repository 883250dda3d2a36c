"""Asynchronous rounds, decided by the coordinator without a loop: a commit as soon as so many reports have come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from coordinator_cases import ALGORITHM, cohort_of, coordinator, positions, report
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.coordinator import Coordinator
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.bus import Envelope

SECOND = 10**9


def buffered(buffer: int = 2, quorum: int = 1, clients: int = 10, cohort: int = 5, **late: Any) -> Coordinator:
    """A deadline of ten seconds."""
    return coordinator(clients, cohort, quorum, policy={"buffer": buffer, "late": late, "deadline_s": 10})


def opened(made: Coordinator, now_s: float = 0.0) -> dict[int, Envelope]:
    """The next round is open; returns what each of those that it asks will answer, some time."""
    cohort = cohort_of(made, round(now_s * SECOND))
    return {client: report(made, client, [client + 1.0, 0.0]) for client in cohort}


def terms(closed: ClosedRound) -> list[tuple[int, float, float]]:
    """(round, weight, first scalar) of each term of a commit."""
    assert isinstance(closed.commit, ScalarCommit)
    return [(term.round, term.weight, float(term.scalars[0, 0])) for term in closed.commit.terms]


def hand_in(made: Coordinator, reports: Sequence[Envelope]) -> None:
    for envelope in reports:
        assert made.reported(envelope) is None


def is_over(made: Coordinator) -> bool:
    return made.is_round_over


def test_a_commit_is_made_as_soon_as_the_buffer_is_full_and_those_at_work_are_made_up_again() -> None:
    made = buffered(buffer=2)
    first = opened(made)
    a, b, *rest = first
    hand_in(made, [first[a]])
    assert not is_over(made)
    hand_in(made, [first[b]])
    assert is_over(made)
    assert terms(made.close_round()) == [(0, 1.0, (a + b + 2) / 2)]
    second = opened(made, 1)
    assert len(second) == 2 and not set(second) & set(rest), "three are still at work"


def test_the_weights_of_a_buffer_by_hand() -> None:
    """Four reports: one fresh, one of the commit before, two of two commits before; s(τ) = (1 + τ)^−1."""
    made = buffered(buffer=4, discount=1)
    first = opened(made)
    a, b, c, d, e = first
    hand_in(made, [first[a]])
    made.deadline_passed(0)
    assert terms(made.close_round()) == [(0, 1.0, a + 1)]
    second = opened(made, 1)
    (f,) = second
    made.deadline_passed(1)
    hand_in(made, [first[b]])
    assert terms(made.close_round()) == [(1, 0.0, 0.0), (0, 0.5, b + 1)], "one late report is all there is"
    third = opened(made, 2)
    g = next(iter(third))
    hand_in(made, [third[g], first[d], first[c], second[f]])
    assert is_over(made)
    assert terms(made.close_round()) == [
        (2, 0.25, g + 1),
        (0, float(np.float32(2 / 3 / 4)), (c + d + 2) / 2),
        (1, 0.5 / 4, f + 1),
    ]
    assert e not in opened(made, 3), "it is still at work"


def test_late_reports_alone_fill_a_buffer() -> None:
    made = buffered(buffer=2, discount=0)
    first = opened(made)
    a, b, c, d, _ = first
    hand_in(made, [first[a], first[b]])
    made.close_round()
    opened(made, 1)
    hand_in(made, [first[d], first[c]])
    assert is_over(made)
    assert terms(made.close_round()) == [(1, 0.0, 0.0), (0, 1.0, (c + d + 2) / 2)]
    assert made.version == 2


def test_a_buffer_that_is_full_when_its_round_opens_is_over_at_once() -> None:
    made = buffered(buffer=2)
    first = opened(made)
    a, b, c, d, _ = first
    hand_in(made, [first[a], first[b]])
    made.close_round()
    hand_in(made, [first[c], first[d]])
    opened(made, 1)
    assert is_over(made)


def test_a_buffer_without_quorum_goes_on_filling() -> None:
    made = buffered(buffer=3, quorum=3, discount=0)
    first = opened(made)
    a, b, c, *_ = first
    hand_in(made, [first[a], first[b]])
    made.deadline_passed(0)
    closed = made.close_round()
    assert closed.commit is None and closed.reported == (a, b)
    opened(made, 11)
    assert not is_over(made)
    hand_in(made, [first[c]])
    assert is_over(made)
    assert terms(made.close_round())[1:] == [(0, 1.0, (a + b + c + 3) / 3)]
    refusal = made.reported(first[a])
    assert refusal is not None and refusal.reason == "not-asked", "it has counted"


def test_whoever_has_not_answered_by_the_deadline_may_be_asked_again() -> None:
    made = buffered(buffer=1, clients=5)
    first = opened(made, 3)
    a, *silent = first
    hand_in(made, [first[a]])
    made.close_round()
    assert set(opened(made, 12.999)) == {a}
    made.deadline_passed(1)
    made.close_round()
    assert set(opened(made, 13)) == set(silent), "ten seconds after they were asked"
    hand_in(made, [first[silent[0]]])
    assert is_over(made), "and what they had to say still counts"


def test_without_a_deadline_a_client_is_waited_for_until_its_report_is_given_up() -> None:
    made = coordinator(4, 2, policy={"buffer": 1, "late": {"max_staleness": 3}})
    first = opened(made)
    silent, quick = first
    hand_in(made, [first[quick]])
    for _ in range(3):
        made.close_round()
        assert made._rounds.get(0) is not None
        asked = opened(made)
        assert len(asked) == 1 and silent not in asked
        hand_in(made, list(asked.values()))
    made.close_round()
    assert made._rounds.get(0) is None and len(opened(made)) == 2


def test_an_asynchronous_round_ends_when_nobody_is_left_to_answer() -> None:
    made = buffered(buffer=5)
    for envelope in opened(made).values():
        envelope.body[0] = np.array([np.nan, 1.0], "<f4").tobytes()
        assert made.reported(envelope) is not None
    assert is_over(made)
    assert made.close_round().commit is None


moves = st.lists(st.one_of(st.integers(0, 30), st.just("deadline")), max_size=60)


@settings(max_examples=60, deadline=None)
@given(moves, st.integers(1, 5), st.integers(1, 4), st.integers(0, 60), st.booleans())
def test_whoever_answers_when_no_more_than_the_cohort_is_at_work_and_every_report_counts_at_most_once(
    history: list[int | str], buffer: int, max_staleness: int, cut: int, is_timed: bool
) -> None:
    """The clock stands still, so nobody's deadline passes while rounds do; every report says 1."""

    def fresh() -> Coordinator:
        policy = {"buffer": buffer, "late": {"max_staleness": max_staleness, "discount": 0}}
        return coordinator(8, 5, buffer, policy=policy | ({"deadline_s": 1} if is_timed else {}))

    made, pending_joins, good = fresh(), list[Envelope](), 0

    def ask() -> None:
        cohort = cohort_of(made, 5)
        working = made._rounds._overdue.busy(-1)
        assert not working & set(cohort) and len(working) + len(cohort) <= 5
        pending_joins.extend(report(made, client, [1.0, 1.0]) for client in cohort)

    ask()
    for number, move in enumerate(history):
        if isinstance(move, str):
            made.deadline_passed(made.round)
        elif pending_joins:
            good += made.reported(pending_joins[move % len(pending_joins)]) is None
        if is_over(made):
            made.close_round()
            if number > cut:
                again = fresh()
                again.restore(made.checkpoint(), made.history.since(0), positions(made))
                assert again.checkpoint() == made.checkpoint()
                made, cut = again, len(history)
            ask()
    assert good >= len(made.history.since(0)) * buffer, "no report has counted twice"
    for commit in made.history.since(0):
        total = sum(term.weight * float(term.scalars[0, 0]) for term in commit.terms)
        assert abs(total - 1) < 1e-6, "the weights of a buffer's reports make up one"
    assert ALGORITHM.unpack_commits(ALGORITHM.pack_commits(made.history.since(0)).body) is not None
