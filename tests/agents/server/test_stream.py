"""A stream without an event loop: the coordinator commits each report as it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coordinator_cases import DrivenCoordinator, cohort_of, joined_coordinator, report
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seedbus.agents.policies.participation import Late, Participation
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import Envelope

SECOND = 10**9
ALGORITHM = DeComFL(perturbations=2, arithmetic="integer", learning_rate=0.1)
X0 = np.ones(20, np.float32)


def stream(**policy: Any) -> DrivenCoordinator:
    """Return a coordinator of a stream of five clients, all at work, with a deadline of ten seconds."""
    return joined_coordinator(5, 5, algorithm=ALGORITHM, policy={"mode": "stream", "deadline_s": 10} | policy)


def asked(coordinator: DrivenCoordinator, now_s: float = 0) -> dict[int, Envelope]:
    """Open the next round; return the report of each client that it asks."""
    return {
        client: report(coordinator, client, [client + 1.0, -1.0])
        for client in cohort_of(coordinator, round(now_s * SECOND))
    }


def digest(coordinator: DrivenCoordinator) -> str:
    """Return the digest of x after all commits."""
    replica = ALGORITHM.replica(X0)
    ALGORITHM.apply(replica, coordinator.history.since(0))
    return replica.digest()


def test_a_stream_is_one_report_a_commit_and_all_of_them_count_alike() -> None:
    policy = Participation(clients=50, cohort=8, mode="stream")
    assert (policy.buffer, policy.late) == (1, Late(discount=0, max_staleness=800))
    assert Participation.model_validate(policy.model_dump()) == policy
    with pytest.raises(ValidationError, match=r"over_selection \(1.3\) is for rounds; leave it out of a stream"):
        Participation(clients=50, cohort=8, mode="stream", over_selection=1.3)
    with pytest.raises(ValidationError, match=r"quorum \(3\) is for rounds; .* or set buffer too"):
        Participation(clients=50, cohort=8, mode="stream", quorum=3)


def test_a_second_answer_is_a_duplicate_for_as_long_as_a_first_one_would_count() -> None:
    policy = {"mode": "stream", "late": {"max_staleness": 2}}
    coordinator = joined_coordinator(1, 1, algorithm=ALGORITHM, policy=policy)
    answers: list[Envelope] = []
    for _ in range(4):
        answers += asked(coordinator).values()
        assert coordinator.reported(answers[-1]) is None
        coordinator.close_round()
        coordinator.reported(answers[0])
    assert coordinator.refusals.by_reason() == {"duplicate": {"0": 2}, "late": {"0": 2}}


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=5, max_size=30))
def test_reports_in_any_order_and_any_number_of_times_lead_to_one_digest(arrivals: list[int]) -> None:
    """Each client's report arrives once or more often; a second one is refused."""
    order = list(dict.fromkeys([*arrivals, *range(5)]))
    in_turn, mixed = stream(), stream()
    first = asked(in_turn)
    assert asked(mixed).keys() == first.keys()
    for client in range(5):
        assert in_turn.reported(first[client]) is None and in_turn.rounds.is_over
        in_turn.close_round()
        asked(in_turn)
    seen = set[int]()
    for client in [*arrivals, *order]:
        refusal = mixed.reported(first[client])
        assert (refusal is None) == (client not in seen)
        if client not in seen:
            closed = mixed.close_round()
            assert closed.commit is not None and len(closed.commit.terms) == 1
            assert list(asked(mixed)) == [client], "it goes on at once, and nobody else is asked"
        seen.add(client)
    assert digest(mixed) == digest(in_turn) and mixed.version == 5


def test_a_report_weighs_the_same_in_time_and_late() -> None:
    prompt, tardy = stream(), stream()
    for coordinator, clients in ((prompt, [3]), (tardy, [0, 3])):
        first = asked(coordinator)
        for client in clients:
            assert coordinator.reported(first[client]) is None
            closed = coordinator.close_round()
            asked(coordinator)
        assert closed.commit is not None
        (term,) = closed.commit.terms
        # −η·g·w/P in units of 2⁻²², with η = 0.1, g = (4, −1), w = 1/5 and P = 2
        assert (term.round, term.scalars.tolist()) == (0, [[-167772, 41943]])


def test_a_report_that_a_newer_request_has_overtaken_is_another_term() -> None:
    coordinator = stream()
    first = asked(coordinator)
    for client in (0, 1):
        assert coordinator.reported(first[client]) is None
        coordinator.close_round()
        asked(coordinator, 1 + client)
    coordinator.deadline_passed(coordinator.round)
    assert coordinator.close_round().commit is None
    again = asked(coordinator, 10)
    assert list(again) == [2, 3, 4], "ten seconds after they were asked"
    for envelope in (again[3], first[3]):
        assert coordinator.reported(envelope) is None
        closed = coordinator.close_round()
        assert closed.commit is not None
        asked(coordinator, 11)
    assert closed.commit.terms[0].round == 0, "the round in which it was asked first"
    refusal = coordinator.reported(first[3])
    assert refusal is not None and refusal.reason == "not-asked"
