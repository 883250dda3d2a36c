"""What the coordinator counts when a round closes: whether training has diverged, and what privacy is spent."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from coordinator_cases import cohort_of, joined_coordinator, report

from seedbus.agents.server.stopping import BARREN, Stop


@pytest.mark.parametrize(
    ("liars", "honest", "quorum", "ends"),
    [
        (2, 0, 2, True),
        (3, 0, 2, True),
        (2, 1, 2, True),  # the one sound report makes no commit
        (1, 0, 2, False),
        (1, 1, 2, False),
        (1, 2, 3, False),
        (2, 1, 3, False),
        (0, 1, 2, False),
    ],
)
def test_as_many_absurd_reports_as_a_quorum_in_ten_rounds_without_a_commit_are_divergence(
    liars: int, honest: int, quorum: int, ends: bool
) -> None:
    coordinator = joined_coordinator(quorum=quorum)
    stop, found = Stop(rounds=100), []
    for rounds in range(1, BARREN + 1):
        cohort = cohort_of(coordinator)
        for place, client in enumerate(cohort[: liars + honest]):
            coordinator.reported(report(coordinator, client, [math.nan if place < liars else 1.0, 1.0]))
        coordinator.deadline_passed(coordinator.round)
        assert coordinator.close_round().commit is None
        found.append(stop.divergence(rounds, coordinator.progress) is not None)
    assert found == [False] * (BARREN - 1) + [ends]


def test_the_accountant_is_told_of_the_reports_in_a_commit_and_of_all_that_were_asked() -> None:
    told = []

    class Told:
        def closed(self, rounds: int, asked: int, reported: Iterable[int] | None) -> None:
            told.append((rounds, asked, None if reported is None else list(reported)))

    coordinator = joined_coordinator(quorum=2)
    coordinator.progress.spent = Told()  # type: ignore[assignment]
    expected = []
    for heard in (2, 1):
        cohort = cohort_of(coordinator)
        for client in cohort[:heard]:
            coordinator.reported(report(coordinator, client))
        expected.append((coordinator.round + 1, len(cohort), sorted(cohort[:heard]) if heard == 2 else None))
        coordinator.deadline_passed(coordinator.round)
        coordinator.close_round()
    assert told == expected
