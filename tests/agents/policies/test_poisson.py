"""Poisson sampling: each client by itself, so cohorts vary, and a round takes what it gets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from coordinator_cases import cohort_of, joined_coordinator, report

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.poisson import Poisson

POISSON: dict[str, Any] = {"selection": {"policy": "poisson"}}


def test_each_client_is_drawn_by_itself_with_the_same_probability() -> None:
    """Sizes have the binomial's mean and variance, and two clients are together as often as independent ones are."""
    rounds, members, count = 12_000, range(3, 43), 8
    cohorts = [Poisson().choose(members, count, Known(), 7, round) for round in range(rounds)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert sizes.mean() == pytest.approx(8, abs=5 * np.sqrt(6.4 / rounds))
    assert sizes.var() == pytest.approx(6.4, rel=5 * np.sqrt(2 / rounds))
    times = Counter(client for cohort in cohorts for client in cohort)
    assert set(times) == set(members)
    assert max(abs(count / rounds - 0.2) for count in times.values()) < 5 * np.sqrt(0.16 / rounds)
    together = sum({3, 42} <= set(cohort) for cohort in cohorts) / rounds
    assert together == pytest.approx(0.04, abs=5 * np.sqrt(0.04 * 0.96 / rounds))


def test_a_round_waits_for_all_of_a_large_cohort_and_makes_no_commit_of_a_small_one() -> None:
    coordinator = joined_coordinator(clients=12, cohort=3, quorum=3, policy=POISSON)
    sizes = set()
    for _ in range(40):
        cohort, version = cohort_of(coordinator), coordinator.version
        sizes.add(len(cohort))
        for client in cohort:
            assert not coordinator.rounds.is_over
            coordinator.reported(report(coordinator, client))
        assert coordinator.rounds.is_over
        closed = coordinator.close_round()
        assert (closed.commit is not None) == (len(cohort) >= 3) == (coordinator.version > version)
    assert {2, 3, 4, 5} <= sizes
