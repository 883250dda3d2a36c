"""Policies for selecting clients and closing rounds, decided by the coordinator without an event loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
from coordinator_cases import DrivenCoordinator, cohort_of, joined_coordinator, positions, report
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.policies.deadline import Deadline
from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.oort import Oort
from seedbus.agents.policies.selection.poisson import Poisson
from seedbus.agents.policies.selection.power_of_choice import PowerOfChoice
from seedbus.agents.policies.selection.rarest import Rarest
from seedbus.agents.policies.selection.uniform import Uniform
from seedbus.agents.server.member_index import MemberIndex
from seedbus.studies.check import selection as conformance
from seedbus.studies.check.promises import Promise
from seedbus.studies.check.selection import known

SELECTIONS: list[Any] = [
    Uniform(),
    Rarest(),
    Rarest(candidates=1),
    PowerOfChoice(),
    PowerOfChoice(candidates=10),
    Oort(),
    Poisson(),
]
each_selection = pytest.mark.parametrize("selection", SELECTIONS, ids=str)
EVERYBODY = range(1000)


# selection


@pytest.mark.slow
@each_selection
@given(
    members=st.sets(st.integers(0, 60), min_size=1),
    statistics=st.dictionaries(st.integers(0, 60), st.tuples(st.integers(1, 9), st.floats(0, 9))),
    data=st.data(),
)
def test_a_policy_fills_the_cohort_with_different_members_in_order(
    selection: Any, members: set[int], statistics: dict[int, tuple[int, float]], data: st.DataObject
) -> None:
    conformance.fills(selection, members, statistics, data.draw(st.integers(0, len(members))), 3)


@pytest.mark.few(7)
@pytest.mark.parametrize("promise", [*conformance.CONTRACT, *conformance.RUNS], ids=lambda promise: promise.__name__)
@each_selection
def test_a_selection_keeps_its_promises(selection: Any, promise: Promise) -> None:
    promise(selection)


@each_selection
def test_a_selection_depends_on_seed_round_and_members_and_if_it_looks_on_statistics(selection: Any) -> None:
    statistics = {client: (1 + client % 3, client / 7) for client in EVERYBODY}

    def choose(seed: int = 7, round: int = 3, members: Any = EVERYBODY, statistics_: Any = statistics) -> list[int]:
        chosen: list[int] = selection.choose(members, 30, known(statistics_), seed, round)
        return chosen

    assert choose() not in (choose(seed=8), choose(round=4), choose(members=range(500)))
    turned = {client: (9 - reports, -worth) for client, (reports, worth) in statistics.items()}
    looks = selection.needs_known and getattr(selection, "candidates", 2) > 1
    assert (choose() != choose(statistics_=turned)) is looks


@pytest.mark.parametrize("selection", [Uniform(), Rarest(), PowerOfChoice()], ids=str)
def test_the_cost_of_a_selection_does_not_grow_with_the_members(selection: Any) -> None:
    class Counted(MemberIndex):
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            self.looks += 1
            return super().__getitem__(place)

        def __iter__(self) -> Any:
            raise AssertionError("it looks at everybody")

    for clients in (100, 100_000):
        members = Counted(clients)
        members.update(range(clients))
        selection.choose(members, 10, Known(), 7, 3)
        assert members.looks == 10 * getattr(selection, "candidates", 1)


def test_rarest_selects_the_clients_with_the_fewest_counted_reports() -> None:
    statistics = {0: (5, 0.0), 1: (2, 0.0), 2: (2, 0.0), 3: (1, 0.0)}
    everybody = Rarest(candidates=100)
    assert everybody.choose(range(6), 2, known(statistics), 7, 3) == [4, 5], "never heard"
    assert everybody.choose(range(4), 1, known(statistics), 7, 3) == [3]
    assert everybody.choose(range(4), 3, known(statistics), 7, 3) == [1, 2, 3]
    cohorts = {tuple(everybody.choose(range(3), 1, known(statistics), 7, round)) for round in range(30)}
    assert cohorts == {(1,), (2,)}, "ties by lot"


def test_power_of_choice_selects_unheard_clients_and_then_the_largest_latest_reports() -> None:
    statistics = {0: (9, 0.5), 1: (1, 3.0), 2: (1, 3.0), 3: (1, 7.0)}
    everybody = PowerOfChoice(candidates=100)
    assert everybody.choose(range(5), 1, known(statistics), 7, 3) == [4], "never heard"
    assert everybody.choose(range(5), 2, known(statistics), 7, 3) == [3, 4]
    assert everybody.choose(range(4), 3, known(statistics), 7, 3) == [1, 2, 3]
    cohorts = {tuple(everybody.choose(range(3), 1, known(statistics), 7, round)) for round in range(30)}
    assert cohorts == {(1,), (2,)}, "ties by lot"


@pytest.mark.parametrize("selection", [Rarest(), PowerOfChoice()], ids=str)
def test_candidates_of_a_selection_are_drawn_uniformly(selection: Any) -> None:
    """With three candidates per place, the best client is chosen whenever it is drawn, in 3 of 10 rounds."""
    statistics = {client: (2, 1.0) for client in range(100) if client != 42}
    chosen = [42 in selection.choose(range(100), 10, known(statistics), 7, round) for round in range(400)]
    assert abs(sum(chosen) / 400 - 0.3) < 0.07


def test_statistics_are_the_number_of_counted_reports_and_the_latest_norm() -> None:
    coordinator = joined_coordinator(policy={"selection": {"policy": "power-of-choice", "candidates": 2}})
    first = cohort_of(coordinator)
    for client in first:
        coordinator.reported(report(coordinator, client, [3.0, 4.0]))
        coordinator.reported(report(coordinator, client, [30.0, 40.0]))
    coordinator.close_round()
    assert coordinator.rounds._known.worth == dict.fromkeys(first, 5.0)
    assert coordinator.rounds._known.reports == dict.fromkeys(first, 1)
    assert coordinator.rounds._known.latest == dict.fromkeys(first, 0)
    second = cohort_of(coordinator)
    assert not set(second) & set(first), "never heard"
    coordinator.reported(report(coordinator, second[0], [math.inf, 4.0]))
    assert second[0] not in coordinator.rounds._known.worth
    uniform = joined_coordinator()
    uniform.reported(report(uniform, cohort_of(uniform)[0]))
    assert uniform.checkpoint().rounds.known == ([], []), "a policy that needs nothing keeps nothing"


@pytest.mark.parametrize("policy", ["rarest", "power-of-choice", "oort"])
def test_a_restored_coordinator_selects_the_same_clients(policy: str) -> None:
    options: dict[str, Any] = {"clients": 30, "cohort": 5, "policy": {"selection": {"policy": policy}}}
    coordinator, other = joined_coordinator(**options), joined_coordinator(**options)
    for _ in range(8):
        for client in cohort_of(coordinator):
            coordinator.reported(report(coordinator, client, [float(client % 4), 1.0]))
        coordinator.close_round()
    other.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
    assert other.checkpoint() == coordinator.checkpoint() and cohort_of(other) == cohort_of(coordinator)


def test_rarest_selects_all_clients_equally_often() -> None:
    coordinator = joined_coordinator(clients=30, cohort=3, policy={"selection": {"policy": "rarest", "candidates": 10}})
    for _ in range(40):
        for client in cohort_of(coordinator):
            coordinator.reported(report(coordinator, client))
        coordinator.close_round()
    assert set(coordinator.rounds._known.reports.values()) == {4} and len(coordinator.rounds._known.reports) == 30


# over-selection and quorum


@pytest.mark.parametrize(
    ("clients", "cohort", "over", "expected"),
    [(100, 10, 1.3, 13), (1000, 100, 1.1, 110), (100, 3, 1.1, 4), (100, 90, 1.3, 100), (10, 1, 1.0, 1)],
)
def test_over_selection_asks_a_multiple_of_the_cohort(clients: int, cohort: int, over: float, expected: int) -> None:
    policy = Participation(clients=clients, cohort=cohort, over_selection=over)
    assert policy.asked == expected and policy.size == cohort
    assert len(policy.draw(range(clients), Known(), 7, 3)) == expected
    assert len(policy.draw(range(2, 4), Known(), 7, 3)) == min(expected, 2)


def test_over_selection_closes_with_the_cohorts_number_of_reports_and_others_are_late() -> None:
    coordinator = joined_coordinator(clients=20, cohort=5, policy={"over_selection": 1.6})
    cohort = cohort_of(coordinator)
    assert len(cohort) == 8
    coordinator.reported(report(coordinator, cohort[0], [math.nan, 0.0]))
    late = [report(coordinator, client) for client in cohort[6:]]
    for client in cohort[1:6]:
        assert not coordinator.rounds.is_over
        assert coordinator.reported(report(coordinator, client)) is None
    assert coordinator.rounds.is_over
    assert coordinator.close_round().reported == tuple(cohort[1:6])
    coordinator.open_round()
    assert [refusal.reason for refusal in map(coordinator.reported, late) if refusal] == ["late", "late"]


def test_over_selection_waits_for_no_more_reports_than_can_come() -> None:
    coordinator = joined_coordinator(clients=20, cohort=5, policy={"over_selection": 1.2})
    cohort = cohort_of(coordinator)
    for client in cohort:
        coordinator.reported(report(coordinator, client, [math.nan, 0.0] if client in cohort[:3] else None))
    assert coordinator.rounds.is_over and len(coordinator.close_round().reported) == 3


@pytest.mark.parametrize(("reports", "has_commit"), [(1, False), (2, True)])
def test_over_selection_with_a_deadline_makes_a_commit_of_a_quorum(reports: int, has_commit: bool) -> None:
    coordinator = joined_coordinator(clients=20, cohort=5, quorum=2, policy={"over_selection": 1.6, "deadline_s": 1})
    for client in cohort_of(coordinator)[:reports]:
        coordinator.reported(report(coordinator, client))
    coordinator.deadline_passed(0)
    assert (coordinator.close_round().commit is not None) is has_commit


# the adaptive deadline


@pytest.mark.parametrize(
    ("quantile", "factor", "times", "after"),
    [
        (0.5, 1.0, [40, 10, 30, 20], 20),
        (0.9, 1.5, list(range(10, 110, 10)), 135),
        (1.0, 2.0, [1, 5, 3], 10),
        (0.01, 1.0, [7, 9], 7),
        (0.55, 1.0, list(range(1, 101)), 55),
        (0.25, 1.1, [15], 16),
    ],
)
def test_a_deadline_is_a_quantile_of_the_times_times_a_factor(
    quantile: float, factor: float, times: list[int], after: int
) -> None:
    """Nearest-rank quantile: the smallest time that at least this fraction of all times does not exceed."""
    assert Deadline(quantile=quantile, factor=factor).after_ns(times) == after


def learning(**deadline: Any) -> DrivenCoordinator:
    return joined_coordinator(
        policy={"deadline_s": 10, "deadline": {"quantile": 0.5, "factor": 2.0, "window": 4} | deadline}
    )


def answered(coordinator: DrivenCoordinator, *after_s: float) -> None:
    """Run a round in which one client answers after each of these times; the others do not answer."""
    opened_ns = 10**12
    cohort = cohort_of(coordinator, opened_ns)
    for client, seconds in zip(cohort, after_s, strict=False):
        assert coordinator.reported(report(coordinator, client), opened_ns + round(seconds * 1e9)) is None
    coordinator.deadline_passed(coordinator.round)
    coordinator.close_round()


def test_a_deadline_learns_from_the_latest_answers() -> None:
    coordinator = learning()
    assert coordinator.rounds.deadlines.ns == 10 * 10**9, "nothing is known yet"
    answered(coordinator, 1.0, 2.0, 3.0)
    assert coordinator.rounds.deadlines.ns == 4 * 10**9, "twice the median of 1, 2, 3"
    answered(coordinator, 0.5, 0.6)
    assert coordinator.rounds.deadlines.ns == 1.2 * 10**9, "of 2, 3, 0.5, 0.6 the second"
    answered(coordinator, 9.0, 9.0, 9.0)
    assert coordinator.rounds.deadlines.ns == 10 * 10**9, "no more than deadline_s"


def test_a_deadline_that_no_client_meets_is_learnt_again() -> None:
    coordinator = learning()
    answered(coordinator, 0.001, 0.001, 0.001)
    assert coordinator.rounds.deadlines.ns == 2 * 10**6
    answered(coordinator)
    assert coordinator.rounds.deadlines.ns == 10 * 10**9


def test_a_round_without_a_commit_that_ends_before_its_deadline_unlearns_nothing() -> None:
    coordinator = learning()
    answered(coordinator, 1.0, 2.0, 3.0)
    coordinator.left(cohort_of(coordinator, 10**12))
    assert coordinator.rounds.is_over and coordinator.close_round().commit is None
    assert coordinator.rounds.deadlines.ns == 4 * 10**9


def test_the_deadline_learns_from_late_answers_too() -> None:
    coordinator = joined_coordinator(
        policy={"deadline_s": 10, "deadline": {"quantile": 1.0, "factor": 1.0}, "late": {}}
    )
    slow, *quick = cohort_of(coordinator, 0)
    for client in quick:
        coordinator.reported(report(coordinator, client), 10**9)
    late = report(coordinator, slow)
    coordinator.deadline_passed(0)
    coordinator.close_round()
    coordinator.open_round(2 * 10**9)
    assert coordinator.rounds.deadlines.ns == 10**9
    coordinator.reported(late, 3 * 10**9)
    assert coordinator.rounds.deadlines.ns == 3 * 10**9


def test_a_deadline_is_forgotten_as_far_as_it_was_learnt_before_a_crash() -> None:
    coordinator = learning(factor=1.0)
    answered(coordinator, 1.0, 2.0, 3.0)
    coordinator.checkpoint()
    for client in cohort_of(coordinator, 10**12):
        assert coordinator.reported(report(coordinator, client), 10**12 + 9 * 10**9) is None
    assert coordinator.rounds.deadlines.ns == 9 * 10**9
    coordinator.crashed()
    assert coordinator.rounds.deadlines.ns == 2 * 10**9


def test_a_restored_coordinator_keeps_its_learnt_deadline() -> None:
    coordinator, other = learning(), learning()
    answered(coordinator, 1.0, 2.0, 3.0)
    other.restore(coordinator.checkpoint(), coordinator.history.since(0), positions(coordinator))
    assert other.rounds.deadlines.ns == coordinator.rounds.deadlines.ns == 4 * 10**9
    for each in (coordinator, other):
        answered(each, 0.5, 0.6)
    assert other.checkpoint() == coordinator.checkpoint()


# refusals
