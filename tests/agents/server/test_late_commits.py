"""Commits with late reports: their shapes and bytes, and the state that a restored coordinator goes on with."""

from __future__ import annotations

from typing import Any

import pytest
from algorithm_cases import bits, over_the_wire
from coordinator_cases import ALGORITHM, cohort_of, plans_of, positions, report
from hypothesis import given
from hypothesis import strategies as st
from late_cases import SCHEDULED, ask, close_at_deadline, lenient_coordinator, play_round, refusal_reason, terms

from seedbus.bus import Envelope, Kind


def test_a_late_report_is_read_and_kept_in_the_shape_of_its_own_round() -> None:
    coordinator = lenient_coordinator(clients=8, algorithm=SCHEDULED, discount=0)
    first = play_round(coordinator, 0, 1, 2, 3)
    close_at_deadline(coordinator)
    second = play_round(coordinator, 0, 2, 3)
    assert coordinator.reported(first[4]) is None
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert [refusal_reason(coordinator, each) for each in (first[5], first[6], second[1])] == [None] * 3
    closed = close_at_deadline(coordinator)
    assert terms(closed) == [
        (2, 1.0, [[1.0], [1.0]]),
        (0, 2 / 8, [[6.5, 6.5]]),
        (1, 1 / 4, [[2.0, 2.0, 2.0]]),
    ]
    assert bits(
        SCHEDULED.unpack_commits(over_the_wire(SCHEDULED.pack_commits(coordinator.history.since(0)).body))
    ) == bits(coordinator.history.since(0))
    packed = SCHEDULED.pack_commits(coordinator.history.since(0))
    assert (packed.scalars, packed.seeds) == (2 + (3 + 2) + (2 + 2 + 3), 1 + 2 + 3)


def test_a_catch_up_contains_the_late_terms_and_counts_their_bytes() -> None:
    coordinator = lenient_coordinator(discount=0)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    coordinator.reported(late[1])
    close_at_deadline(coordinator)
    plans = {envelope.client: (envelope, tally) for envelope, tally in plans_of(coordinator)}
    envelope, tally = plans[1]
    missed = ALGORITHM.unpack_commits(over_the_wire(envelope.body)[1])
    assert bits(missed) == bits(coordinator.history.since(0)) and len(missed[1].terms) == 2
    assert (tally.scalars, tally.seeds) == (6, 4), "three terms of two scalars, and the plan's own seed"


def test_a_commit_can_have_a_term_for_every_round_that_may_be_late() -> None:
    coordinator = lenient_coordinator(clients=402, cohort=2, max_staleness=400, discount=0)
    outstanding = []
    for _ in range(400):
        silent, prompt = cohort_of(coordinator)
        outstanding.append(report(coordinator, silent))
        coordinator.reported(report(coordinator, prompt))
        close_at_deadline(coordinator)
    assert coordinator.reported(next(iter(ask(coordinator).values()))) is None
    assert {refusal_reason(coordinator, envelope) for envelope in outstanding} == {None}
    closed = close_at_deadline(coordinator)
    assert [round for round, _, _ in terms(closed)] == [400, *range(400)]
    assert bits(
        ALGORITHM.unpack_commits(over_the_wire(ALGORITHM.pack_commits(coordinator.history.since(0)).body))
    ) == bits(coordinator.history.since(0))


def test_who_has_declined_late_has_answered_also_after_restoring() -> None:
    coordinator = lenient_coordinator(discount=0)
    late = play_round(coordinator, 0)
    declines = {client: each._replace(kind=Kind.DECLINE, body=["overflow", "no"]) for client, each in late.items()}
    assert refusal_reason(coordinator, declines[2]) == "overflow"
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, declines[1]) == "overflow"
    close_at_deadline(coordinator)
    restored = lenient_coordinator(discount=0)
    restored.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
    for each in (coordinator, restored):
        each.open_round()
        assert [refusal_reason(each, declines[client]) for client in (1, 2)] == ["duplicate", "duplicate"]
        assert each.reported(late[3]) is None


answers = st.lists(st.tuples(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 11))), min_size=1, max_size=8)


@given(answers, st.integers(1, 3), st.integers(1, 2), st.integers(0, 8))
@pytest.mark.slow
def test_every_report_counts_at_most_once_in_any_order_and_after_restoring(
    history: list[tuple[set[int], set[int]]], max_staleness: int, quorum: int, cut: int
) -> None:
    options: dict[str, Any] = {"max_staleness": max_staleness, "algorithm": SCHEDULED, "quorum": quorum, "discount": 0}
    coordinator, outstanding, counted = lenient_coordinator(**options), list[Envelope](), dict[int, list[float]]()
    sizes = list[int]()
    for number, (prompt, tardy) in enumerate(history):
        if number == cut:
            fresh = lenient_coordinator(**options)
            fresh.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
            assert fresh.checkpoint() == coordinator.checkpoint()
            coordinator = fresh
        unanswered = ask(coordinator)
        sizes.append(len(unanswered))
        for client in prompt & unanswered.keys():
            assert coordinator.reported(unanswered.pop(client)) is None
        for place in tardy:
            if place < len(outstanding):
                late, stale = outstanding[place], coordinator.round - outstanding[place].round
                if coordinator.reported(late) is None:
                    assert 0 < stale <= max_staleness
                    counted.setdefault(late.round, []).append(late.client)
        outstanding.extend(unanswered.values())
        close_at_deadline(coordinator)
    assert all(len(set(clients)) == len(clients) for clients in counted.values())
    late_terms = [
        term for commit in coordinator.history.since(0) for term in commit.terms if term.round != commit.round
    ]
    in_commits = sum(sizes[term.round] * term.weight * float(term.scalars[0, 0]) for term in late_terms)
    stashed = sum(
        float(each[0, 0]) for old in coordinator.rounds._overdue._rounds.values() for each in old.reports.values()
    )
    dropped = sum(client + 1.0 for clients in counted.values() for client in clients) - in_commits - stashed
    assert dropped == pytest.approx(0, abs=1e-5) or (dropped > 0 and coordinator.version < coordinator.round), (
        "only what grew too old before the next commit is lost"
    )
