"""The available clients under several availability faults, also in a resumed run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgpack
import pytest
from availability_cases import CLIENTS, anything, moments
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.availability import RETURNS, Availability, AvailabilityFault, AvailabilityState, Moves, Returns
from seedbus.bus import FaultHooks, KeyedRandom, Kind
from seedbus.bus.records import record


@dataclass(frozen=True)
class Away:
    """A fault that keeps clients away in the given half-open spans of rounds."""

    spans: Sequence[tuple[int, int, int]]
    is_announced: bool = True
    returns: Returns = "with-state"

    def schedule(self, clients: int, random: KeyedRandom) -> _Spans:
        return _Spans(self.spans)


class _Spans:
    is_by_rounds = True

    def __init__(self, spans: Sequence[tuple[int, int, int]]) -> None:
        self._spans, self.absent = spans, set[int]()
        self._last = -1

    @property
    def is_over(self) -> bool:
        return all(until <= self._last for _, _, until in self._spans)

    def advance(self, round: int, now_ns: int) -> Iterable[int]:
        before, self._last = self.absent, round
        self.absent = {client for client, since, until in self._spans if since <= round < until}
        return before ^ self.absent

    def next_ns(self) -> None:
        return None


span = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 12))
aways = st.builds(Away, st.lists(span, max_size=5), st.booleans(), st.sampled_from(RETURNS))


def walk(population: Availability, rounds: Iterable[int]) -> list[Moves]:
    return [population.advance(round, 0) for round in rounds]


@pytest.mark.slow
@given(presences=st.lists(aways, min_size=1, max_size=4))
@settings(max_examples=200)
def test_a_client_is_available_while_no_fault_applies_and_returns_with_the_worst_loss_of_state(
    presences: list[Away],
) -> None:
    def keeping(client: int, round: int) -> list[Away]:
        return [each for each in presences if any(c == client and s <= round < u for c, s, u in each.spans)]

    population = Availability(FaultHooks(presences, 1, 4))
    worst = {client: 0 for client in range(4) if keeping(client, 0)}
    assert population.at_start == set(worst)
    for each in presences:
        worst |= {c: max(worst[c], RETURNS.index(each.returns)) for c in worst if each in keeping(c, 0)}
    for round in range(1, 14):
        moves, arrived, departed = population.advance(round, 0), [], []
        for client in range(4):
            before, now = keeping(client, round - 1), keeping(client, round)
            if before and not now:
                arrived.append((client, RETURNS[worst.pop(client)]))
            elif now:
                worst[client] = max(worst.get(client, 0), *(RETURNS.index(each.returns) for each in now))
            was_said, is_said = (any(each.is_announced for each in those) for those in (before, now))
            if is_said and not was_said:
                departed.append(client)
            assert (client in population.away) == bool(now)
            assert population.has_left(client) == is_said
        assert moves.arrived == arrived
        assert set(departed) <= set(moves.left) <= {client for client in range(4) if population.has_left(client)}
        away = [client for client in range(4) if keeping(client, round)]
        assert population.in_time == 4 - len(away)
    assert population.is_over and not population.away


@pytest.mark.slow
@given(presences=st.lists(st.one_of(anything, aways), max_size=4), at=moments, cut=st.integers(0, 12))
@settings(max_examples=200)
def test_a_single_advance_on_resuming_equals_all_the_steps(
    presences: list[AvailabilityFault], at: list[tuple[int, int]], cut: int
) -> None:
    stepped, restored = (Availability(FaultHooks(presences, 5, CLIENTS)) for _ in range(2))
    for round, now_ns in at[:cut]:
        stepped.advance(round, now_ns)
    restored.unpack(record(AvailabilityState, msgpack.unpackb(msgpack.packb(stepped.pack()))))
    for round, now_ns in at[cut:]:
        assert restored.advance(round, now_ns) == stepped.advance(round, now_ns)
        assert restored.next_ns() == stepped.next_ns() and restored.pack() == stepped.pack()
        assert set(restored.away) == set(stepped.away) and restored.in_time == stepped.in_time
    assert restored.at_start == stepped.at_start


@given(presences=st.lists(anything, min_size=1, max_size=3), at=moments)
@settings(max_examples=100)
def test_moves_name_the_clients_that_arrived_and_left(
    presences: list[AvailabilityFault], at: list[tuple[int, int]]
) -> None:
    population = Availability(FaultHooks(presences, 5, CLIENTS))
    away = set(population.away)
    for round, now_ns in at:
        moves = population.advance(round, now_ns)
        assert {client for client, _ in moves.arrived} == away - set(population.away)
        assert {client for client in set(population.away) - away if population.has_left(client)} <= set(moves.left)
        away = set(population.away)


def test_messages_to_and_from_clients_that_are_away_are_lost_and_no_others() -> None:
    population = Availability(FaultHooks([Away([(1, 0, 5)], is_announced=False)], 1, 3))
    for client in range(3):
        for kind in (Kind.PLAN, Kind.REPORT):
            for arriving in (True, False):
                assert population.stops((kind, client, 2, 0, 0), arriving) == (client == 1)
    population.advance(5, 0)
    assert not population.stops((Kind.PLAN, 1, 5, 0, 0), False)


def test_only_the_possible_loss_of_state_is_stored_for_absent_clients() -> None:
    steady = Away([(client, 0, 100) for client in range(1000)], returns="without-state")
    passing = Away([(7, 2, 3)], returns="from-another-run")
    population = Availability(FaultHooks([steady, passing], 1, 1000))
    walk(population, range(2))
    assert population.pack() == (1, 0, [])
    walk(population, range(2, 4))
    assert population.pack() == (3, 0, [(7, 2)])
    assert population.advance(100, 0).arrived[7] == (7, "from-another-run")
    assert population.pack() == (100, 0, [])
