"""Oort: whom it prefers, how many it tries that have not reported, and when it waits for slower ones."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.oort import Oort

SECOND = 10**9


def known(worths: dict[int, float], seconds: dict[int, float] | None = None, round: int = 0) -> Known:
    """Return what is known of clients that all reported in one round."""
    found = Known()
    for client, worth in worths.items():
        found.add(client, worth, round=round, answer_ns=int((seconds or {}).get(client, 1.0) * SECOND))
    return found


def chosen(policy: Oort, members: int, count: int, found: Known, rounds: int = 200) -> Counter[int]:
    """Return how often each client is chosen, with the same knowledge for each of so many rounds."""
    counts = Counter[int]()
    for round in range(rounds):
        found.memory = []
        counts.update(policy.choose(range(members), count, found, 7, round))
    return counts


@pytest.mark.parametrize(("round", "share"), [(0, 0.9), (30, 0.9 * 0.98**30), (500, 0.2)])
def test_a_share_of_the_cohort_that_decays_has_never_reported(round: int, share: float) -> None:
    found = known(dict.fromkeys(range(100), 1.0))
    new = sum(client >= 100 for seed in range(400) for client in Oort().choose(range(200), 5, found, seed, round))
    assert new / 2000 == pytest.approx(share, abs=0.03)


def test_it_asks_those_that_are_left_where_too_few_have_reported_or_too_few_have_not() -> None:
    assert len(Oort().choose(range(9), 6, Known(), 7, 0)) == 6
    assert len(Oort(exploration=0).choose(range(9), 6, known({4: 1.0}), 7, 0)) == 6
    assert len(Oort().choose(range(9), 6, known(dict.fromkeys(range(8), 1.0)), 7, 0)) == 6


def test_large_reports_come_first_and_those_within_the_cut_off_are_drawn_in_proportion() -> None:
    worths = {client: 10.0 if client < 4 else 1.0 for client in range(20)}
    counts = chosen(Oort(exploration=0), 20, 4, known(worths))
    assert set(counts) == {0, 1, 2, 3}, "the cut-off is at 95% of the fourth utility"
    everybody = chosen(Oort(exploration=0), 20, 4, known(dict.fromkeys(range(20), 1.0)))
    assert min(everybody.values()) > 20 and max(everybody.values()) < 70, "equal ones by lot, 40 times on average"


@pytest.mark.parametrize("odd", [math.inf, math.nan, 1e308, -1.0, -math.inf], ids=str)
def test_it_fills_the_cohort_whatever_norms_reports_have_and_whatever_a_checkpoint_holds(odd: float) -> None:
    """A plug-in's algorithm may accept such reports, and anybody can write a checkpoint."""
    policy = Oort(exploration=0, window=2)
    for norms in ([odd] * 6, [1.0, odd, odd, 2.0, 3.0, 4.0]):
        found = known(dict(enumerate(norms)), round=4)
        for memory in ([], [odd], [0.0, odd, odd, odd]):
            found.memory = memory
            assert len(policy.choose(range(6), 4, found, 7, 5)) == 4
    assert odd < 0 or set(chosen(policy, 6, 2, found)) == {1, 2}, "the larger the better"


def test_slow_clients_come_last_until_the_reports_of_the_others_shrink() -> None:
    """T is the 0.46 quantile at first, a second; with 0.5 and more it is the ten seconds of the slow half."""
    policy = Oort(exploration=0, pace=0.46, window=3)
    seconds = {client: 1.0 if client < 10 else 10.0 for client in range(20)}
    found = known(dict.fromkeys(range(20), 1.0), seconds)
    slow = []
    for round in range(1, 40):
        cohort = policy.choose(range(20), 4, found, 7, round)
        slow.append(sum(client >= 10 for client in cohort))
        for client in cohort:
            found.add(client, 0.9**round, int(seconds[client] * SECOND), round)
        for client in set(range(20)) - set(cohort):  # so that staleness and size prefer nobody
            found.worth[client], found.latest[client] = 0.9**round, min(found.latest[client], round)
    first = next(at for at, count in enumerate(slow) if count)
    assert first == 2 * policy.window - 1, "the pacer compares three rounds with the three before"
    assert sum(slow[first:]) > 20


def test_a_client_that_was_not_asked_for_long_is_asked_again() -> None:
    policy = Oort(exploration=0)
    found = known({0: 1.0, 1: 1.1, 2: 1.2}, round=400)
    assert set(chosen(policy, 3, 2, found)) == {1, 2}, "the larger two"
    found.latest[0] = 0
    later = Counter(client for seed in range(100) for client in policy.choose(range(3), 2, found, seed, 400))
    assert set(later) == {0, 2}


def test_its_memory_is_part_of_what_a_checkpoint_stores() -> None:
    policy, found, other = Oort(window=2), known(dict.fromkeys(range(20), 1.0)), Known()
    for round in range(1, 9):
        other.unpack(found.pack())
        cohort = policy.choose(range(30), 6, found, 7, round)
        assert cohort == policy.choose(range(30), 6, other, 7, round) and found == other and found.memory
        for client in cohort:
            found.add(client, 1 / round, client * SECOND, round)
