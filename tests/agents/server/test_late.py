"""Late reports: each counts once, in the next commit, by its weight, or it is refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from coordinator_cases import PROOF, joined_coordinator, report
from late_cases import answer, close_at_deadline, lenient_coordinator, play_round, refusal_reason, terms
from worlds import HISO, scenario

from seedbus.agents.messages import Evaluation, Join, Span
from seedbus.agents.policies.participation import Late
from seedbus.bus import HOST
from seedbus.scenarios.errors import ScenarioError

# weights


@pytest.mark.parametrize(("discount", "weights"), [(0.0, [1, 1, 1]), (0.5, [2**-0.5, 3**-0.5, 0.5]), (1, [0.5, 1 / 3])])
def test_a_report_weighs_less_the_more_commits_were_made_since_it_started(discount: float, weights: Any) -> None:
    late = Late(discount=discount)
    assert [late.weight(staleness) for staleness in range(1, len(weights) + 1)] == pytest.approx(weights, rel=1e-15)


def test_a_late_report_is_a_term_of_the_next_commit_with_its_weight_by_hand() -> None:
    coordinator = lenient_coordinator(discount=1)
    late = play_round(coordinator, 0, 1)
    assert terms(close_at_deadline(coordinator)) == [(0, 1.0, [[1.5, 1.5]])]
    also_late = play_round(coordinator, 0)
    assert coordinator.reported(late[3]) is None
    assert terms(close_at_deadline(coordinator)) == [(1, 1.0, [[1.0, 1.0]]), (0, 0.5 / 4, [[4.0, 4.0]])]
    play_round(coordinator, 0)
    for envelope in (late[2], also_late[1], also_late[3]):
        assert coordinator.reported(envelope) is None
    third = float(np.float32(1 / 3 / 4))
    assert terms(close_at_deadline(coordinator)) == [
        (2, 1.0, [[1.0, 1.0]]),
        (0, third, [[3.0, 3.0]]),
        (1, 2 * 0.5 / 4, [[3.0, 3.0]]),
    ], "those of one round are one term: client 1 said 2 and client 3 said 4"
    play_round(coordinator, 0, 1, 2, 3)
    assert terms(close_at_deadline(coordinator)) == [(3, 1.0, [[2.5, 2.5]])], "nothing is left"


def test_staleness_counts_commits_and_not_rounds() -> None:
    coordinator = lenient_coordinator(quorum=2, discount=1)
    late = play_round(coordinator, 0, 1)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert close_at_deadline(coordinator).commit is None
    play_round(coordinator, 0, 1)
    assert coordinator.reported(late[2]) is None
    assert terms(close_at_deadline(coordinator))[1] == (0, 0.5 / 4, [[3.0, 3.0]])


def test_a_late_report_waits_for_a_commit_where_a_round_has_no_quorum() -> None:
    coordinator = lenient_coordinator(quorum=2)
    late = play_round(coordinator, 0, 1)
    close_at_deadline(coordinator)
    in_vain = play_round(coordinator, 0)
    assert coordinator.reported(late[2]) is None
    assert close_at_deadline(coordinator).commit is None
    play_round(coordinator, 0, 1)
    assert coordinator.reported(in_vain[3]) is None
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


@pytest.mark.parametrize("max_staleness", [1, 2, 5])
def test_a_report_is_given_up_after_the_maximum_staleness(max_staleness: int) -> None:
    coordinator = lenient_coordinator(max_staleness=max_staleness)
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    for _ in range(max_staleness):
        assert coordinator._rounds.get(0) is not None
        play_round(coordinator, 0)
        if coordinator.round == max_staleness:
            assert refusal_reason(coordinator, late[1]) is None
        close_at_deadline(coordinator)
    assert coordinator._rounds.get(0) is None
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
    assert coordinator._rounds.get(0) is None


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


def test_a_late_report_received_before_its_client_returned_still_counts() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 0)
    assert refusal_reason(coordinator, late[1]) is None
    coordinator.joined(Join(HOST, (Span(1, 1, 0),), **PROOF))
    assert len(terms(close_at_deadline(coordinator))) == 2


def test_a_late_report_does_not_set_its_client_back() -> None:
    coordinator = lenient_coordinator()
    late = play_round(coordinator, 0)
    close_at_deadline(coordinator)
    play_round(coordinator, 1)
    assert coordinator.versions[1] == 1
    assert refusal_reason(coordinator, late[1]) is None
    assert coordinator.versions[1] == 1


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


def test_an_algorithm_whose_directions_depend_on_its_replica_refuses_late_in_one_sentence() -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(algorithm=HISO, participation={"clients": 8, "cohort": 3, "deadline_s": 1, "late": {}})
    assert error.value.problems == [
        "participation.late: algorithm hiso cannot use late reports, because the scalars of earlier rounds do not "
        "add to its step; leave late (and buffer) out"
    ]


def test_a_rule_that_compares_the_reports_of_a_round_refuses_late_in_one_sentence() -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(
            algorithm={"name": "decomfl", "aggregation": "median"},
            participation={"clients": 8, "cohort": 3, "deadline_s": 1, "late": {}},
        )
    assert error.value.problems == [
        "participation.late: algorithm.aggregation: median compares the reports of one round, and a late one would "
        "count beside it, unchecked; leave late (and buffer) out, or choose mean"
    ]
