"""The availability of clients under each fault, against its documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from availability_cases import (
    CLIENTS,
    PRESENCES,
    SECOND,
    crashes,
    diurnals,
    exponential,
    lasting,
    late,
    moments,
    ramps,
    replacements,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.availability import AvailabilityFault, Schedule
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.faults.churn import Churn
from seedbus.scenarios.faults.crash import Crash
from seedbus.scenarios.faults.diurnal import Diurnal
from seedbus.scenarios.faults.late_joiners import LateJoiners
from seedbus.scenarios.faults.ramp import Ramp
from seedbus.scenarios.faults.replacement import Replacement


def random(fault: Any, clients: int = CLIENTS, seed: int = 3) -> KeyedRandom:
    return KeyedRandom(seed, clients, repr(fault))


def schedule(fault: AvailabilityFault, clients: int = CLIENTS, seed: int = 3) -> Schedule:
    return fault.schedule(clients, random(fault, clients, seed))


def absences(fault: AvailabilityFault, moments: Sequence[tuple[int, int]], clients: int = CLIENTS) -> list[set[int]]:
    """Return the clients that are away at each moment; moments are (round, ns), ascending."""
    schedule_, away = schedule(fault, clients), []
    for round, now_ns in moments:
        schedule_.advance(round, now_ns)
        away.append(set(schedule_.absent))
    return away


def by_round(fault: AvailabilityFault, rounds: int, clients: int = CLIENTS) -> list[set[int]]:
    return absences(fault, [(round, 0) for round in range(rounds)], clients)


def constant(seconds: float) -> Any:
    return {"distribution": "constant", "value": seconds}


def test_every_availability_fault_is_tested_here() -> None:
    about = {name for name, fault in FAULTS.all().items() if hasattr(fault, "schedule")}
    assert about == {*PRESENCES, "trace"}, "a trace has a file of its own"


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PRESENCES)
@given(data=st.data(), at=moments)
@settings(max_examples=60)
def test_many_advances_equal_one_and_name_every_client_that_moved(
    name: str, data: st.DataObject, at: list[tuple[int, int]]
) -> None:
    fault = data.draw(PRESENCES[name])
    many, before = schedule(fault), set[int]()
    for round, now_ns in at:
        moved = set(many.advance(round, now_ns))
        assert moved == before ^ set(many.absent)
        assert set(many.advance(round, now_ns)) == set()
        before = set(many.absent)
    one = schedule(fault)
    assert set(one.advance(*at[-1])) == set(one.absent) == before
    assert one.next_ns() == many.next_ns() and one.is_over == many.is_over


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PRESENCES)
@given(data=st.data(), at=moments)
@settings(max_examples=60)
def test_no_client_moves_before_the_next_moment_and_some_client_then(
    name: str, data: st.DataObject, at: list[tuple[int, int]]
) -> None:
    schedule_ = schedule(data.draw(PRESENCES[name]))
    schedule_.advance(*at[-1])
    (round, now_ns), before, next_ns = at[-1], set(schedule_.absent), schedule_.next_ns()
    if schedule_.is_over:
        schedule_.advance(round + 10**4, now_ns + 10**6 * SECOND)
        assert schedule_.absent == before
    elif schedule_.is_by_rounds:
        assert next_ns is None
        schedule_.advance(round, now_ns + 10**6 * SECOND)
        assert schedule_.absent == before
    else:
        assert next_ns is not None and next_ns > now_ns
        schedule_.advance(round + 10**6, next_ns - 1)
        assert schedule_.absent == before
        assert set(schedule_.advance(round + 10**6, next_ns)) or schedule_.next_ns() == next_ns + 1, (
            "but for what rounding does"
        )


@pytest.mark.slow
@given(fault=crashes | lasting)
@settings(max_examples=100)
def test_a_crash_is_off_in_whole_windows_and_never_outside_them(fault: Crash) -> None:
    about, windows = set(fault.chosen(CLIENTS, random(fault))), dict[tuple[int, int], bool]()
    for round, away in enumerate(by_round(fault, 80)):
        assert away <= about
        if not fault.is_due(round):
            assert away == set()
            continue
        number = (round - fault.at_round) // (fault.every_rounds or 10**6)
        for client in about:
            assert windows.setdefault((client, number), client in away) == (client in away)
            assert fault.probability < 1 or client in away


@pytest.mark.parametrize(
    ("windows", "away"),
    [
        ({"for_rounds": 2}, [3, 4]),
        ({}, [3, 4, 5, 6, 7, 8, 9, 10, 11]),
        ({"for_rounds": 2, "every_rounds": 4}, [3, 4, 7, 8, 11]),
        ({"for_rounds": 4, "every_rounds": 4}, [3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ],
    ids=["once", "for ever", "again and again", "without a pause"],
)
def test_a_crash_lasts_as_long_as_it_says(windows: dict[str, int], away: list[int]) -> None:
    found = by_round(Crash(at_round=3, clients=[2, 5], **windows), 12)
    assert found == [{2, 5} if round in away else set() for round in range(12)]


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_as_many_windows_strike_as_are_said_one_by_one_and_independently(probability: float) -> None:
    fault = Crash(at_round=3, for_rounds=1, every_rounds=2, probability=probability)
    rounds, clients = 400, 50
    away = by_round(fault, 3 + rounds, clients)[3::2]
    struck = [[client in each for each in away] for client in range(clients)]
    tries = clients * len(away)
    assert abs(sum(map(sum, struck)) / tries - probability) < 4 * math.sqrt(probability * (1 - probability) / tries)
    both = sum(a and b for row in struck for a, b in pairwise(row)) / tries
    assert abs(both - probability**2) < 4 * probability / math.sqrt(tries)


def test_a_crash_that_hardly_ever_strikes_costs_no_more_to_look_for() -> None:
    fault = Crash(for_rounds=1, every_rounds=1, probability=1e-300)
    schedule_ = schedule(fault)
    assert schedule_.is_over and not schedule_.advance(10**6, 0)


@pytest.mark.slow
def test_churn_stays_and_is_away_as_long_as_its_distributions_say() -> None:
    fault = Churn(stays=exponential(30.0), away=exponential(10.0))
    clients, until_ns = 300, 4000 * SECOND
    schedule_ = schedule(fault, clients)
    since, lasted, was_away = dict.fromkeys(range(clients), 0), {True: list[int](), False: list[int]()}, set[int]()
    while (next_ns := schedule_.next_ns()) is not None and next_ns < until_ns:
        for client in schedule_.advance(0, next_ns):
            lasted[client in was_away].append(next_ns - since[client])
            since[client] = next_ns
        was_away = set(schedule_.absent)
    for is_away, mean_s in ((False, 30.0), (True, 10.0)):
        times = [each / SECOND for each in lasted[is_away]]
        assert len(times) > 20_000
        # Each client's last spell is cut off and omitted. Such spells tend to be long: a bias of about mean/horizon.
        assert sum(times) / len(times) == pytest.approx(mean_s, rel=0.05)
        assert sum(time > mean_s for time in times) / len(times) == pytest.approx(math.exp(-1), abs=0.02)


def test_churn_draws_a_duration_of_its_kind_for_each_client_and_period() -> None:
    between = {"distribution": "uniform"}
    fault = Churn(stays=between | {"low": 1, "high": 2}, away=between | {"low": 5, "high": 6}, initially=0.5)
    schedule_ = schedule(fault)
    was_away, since, lasted = set(schedule_.advance(0, 0)), dict.fromkeys(range(CLIENTS), 0), list[int]()
    assert 0 < len(was_away) < CLIENTS
    while (next_ns := schedule_.next_ns()) is not None and next_ns < 60 * SECOND:
        for client in schedule_.advance(0, next_ns):
            lasted.append(next_ns - since[client])
            low_s = 5 if client in was_away else 1
            assert low_s * SECOND <= lasted[-1] <= (low_s + 1) * SECOND
            since[client] = next_ns
        was_away = set(schedule_.absent)
    assert len(set(lasted)) == len(lasted) > 10 * CLIENTS


def test_churn_of_no_duration_at_all_ends() -> None:
    schedule_ = schedule(Churn(stays=constant(0.0), away=constant(0.0)))
    schedule_.advance(0, SECOND)
    assert schedule_.next_ns() == SECOND + 10**6


@pytest.mark.parametrize("initially", [0.0, 0.3, 1.0])
def test_a_share_is_there_at_first(initially: float) -> None:
    fault = Churn(stays=constant(1.0), away=constant(1.0), initially=initially)
    schedule_ = schedule(fault, 2000)
    schedule_.advance(0, 0)
    assert 1 - len(schedule_.absent) / 2000 == pytest.approx(initially, abs=0.05)


@given(fault=late)
@settings(max_examples=50)
def test_late_joiners_come_within_their_rounds_and_stay(fault: LateJoiners) -> None:
    away = by_round(fault, 40)
    assert all(each == set(range(CLIENTS)) for each in away[: fault.at_round])
    assert all(later <= earlier for earlier, later in pairwise(away))
    assert away[fault.at_round + fault.spread_rounds - 1] == set()


def test_late_joiners_are_spread_evenly() -> None:
    away = by_round(LateJoiners(at_round=5, spread_rounds=10), 20, 10_000)
    departures = [len(each) for each in away]
    assert departures[4] == 10_000 and departures[14] == 0
    for number in range(10):
        assert departures[5 + number] == pytest.approx(10_000 - 1000 * (number + 1), abs=250)


@given(fault=ramps)
@settings(max_examples=100)
def test_a_ramp_is_what_lies_between_its_stages_at_every_round(fault: Ramp) -> None:
    expected, number = [fault.start], fault.start
    for stage in fault.stages:
        step = (stage.target - number) / stage.rounds
        expected += [math.floor(number + step * i + 1e-9) for i in range(1, stage.rounds + 1)]
        number = stage.target
    away = by_round(fault, len(expected) + 5)
    assert [CLIENTS - len(each) for each in away] == [min(count, CLIENTS) for count in [*expected, *[expected[-1]] * 5]]
    ordered = sorted(away, key=len)
    assert all(fewer <= more for fewer, more in pairwise(ordered)), "always the same first"


@given(fault=replacements)
@settings(max_examples=60)
def test_replacement_keeps_the_number_of_the_active(fault: Replacement) -> None:
    away, every = by_round(fault, 40), fault.every_rounds
    for round, each in enumerate(away):
        assert CLIENTS - len(each) == min(fault.active, CLIENTS)
        assert round % every == 0 or each == away[round - 1]


def test_replacement_as_in_fedacg_replaces_half_of_250_out_of_500_every_100_rounds() -> None:
    fault = Replacement(active=250)
    epochs = absences(fault, [(100 * epoch, 0) for epoch in range(200)], 500)
    assert absences(fault, [(99, 0), (199, 0)], 500) == epochs[:2]
    replaced = [len(later - earlier) for earlier, later in pairwise(epochs)]
    assert sum(replaced) / len(replaced) == pytest.approx(125, abs=3)
    assert 2 * 7 < max(replaced) - min(replaced) < 8 * 8, "a binomial's spread: √(250/4) ≈ 8"
    active = [sum(client not in each for each in epochs) for client in range(500)]
    assert min(active) > 60 and max(active) < 140, "everybody's turn comes"


def test_who_is_active_at_first_is_drawn() -> None:
    first = [set(schedule(Replacement(active=10), 40, seed).absent) for seed in range(80)]
    assert {len(away) for away in first} == {30}
    times = [sum(client in away for away in first) for client in range(40)]
    assert 40 < min(times) and max(times) < 78, "each is absent in three quarters of the runs"


def test_the_clients_that_are_replaced_where_few_can_come_are_drawn_at_random() -> None:
    fault = Replacement(active=90, every_rounds=1, probability=1.0)
    epochs = by_round(fault, 300, 100)
    departures = [len(later - earlier) for earlier, later in pairwise(epochs)]
    assert departures == [10] * 299
    times = [sum(client in each for each in epochs) for client in range(100)]
    assert max(times) < 60 and min(times) > 8, "each is away in a tenth of the rounds"


@pytest.mark.slow
@given(fault=diurnals, seconds=st.lists(st.floats(0, 200), min_size=1, max_size=20).map(sorted))
@settings(max_examples=100)
def test_a_client_is_there_while_the_share_is_above_its_threshold(fault: Diurnal, seconds: list[float]) -> None:
    draws = random(fault)
    away = absences(fault, [(0, round(second * SECOND)) for second in seconds])
    for second, each in zip(seconds, away, strict=True):
        for client in range(CLIENTS):
            noon_s = int(draws.draw("zone", client) * fault.zones) / fault.zones * fault.period_s
            swing = math.cos(math.tau * (second - noon_s) / fault.period_s)
            share = (fault.high + fault.low) / 2 + (fault.high - fault.low) / 2 * swing
            if abs(share - draws.draw("threshold", client)) > 1e-6:
                assert (client not in each) == (share > draws.draw("threshold", client))


@pytest.mark.parametrize("zones", [1, 24])
def test_the_share_of_a_day_is_a_cosine_and_zones_flatten_it(zones: int) -> None:
    fault = Diurnal(low=0.2, high=0.8, period_s=100.0, zones=zones)
    moments_ns = [(0, second * SECOND) for second in range(0, 300, 5)]
    shares = [1 - len(each) / 5000 for each in absences(fault, moments_ns, 5000)]
    for (_, now_ns), share in zip(moments_ns, shares, strict=True):
        swing = math.cos(math.tau * now_ns / SECOND / 100.0) if zones == 1 else 0.0
        assert share == pytest.approx(0.5 + 0.3 * swing, abs=0.03)
