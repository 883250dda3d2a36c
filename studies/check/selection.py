"""What every selection policy promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.server.member_index import MemberIndex
from seedbus.models.generators import generator
from seedbus.studies.check.promises import require
from seedbus.studies.check.runs import ended, require_equal_ends, world

EVERYBODY = range(1000)
STATISTICS = {client: (1 + client % 3, client / 7) for client in EVERYBODY}


def known(statistics: Mapping[int, tuple[int, float]]) -> Known:
    """Return statistics from a mapping client → (number of reports, norm of the latest), and times that follow them."""
    clients = [
        (client, count, worth, 10**9 * (1 + (client + count) % 5), count - 1)
        for client, (count, worth) in statistics.items()
    ]
    known_clients = Known()
    known_clients.unpack((clients, []))
    return known_clients


def results(selection: Any) -> Any:
    """Return what another process has to find, too."""
    return [selection.choose(EVERYBODY, 30, known(STATISTICS), 7, round) for round in range(5)]


def fillings() -> Iterator[tuple[set[int], dict[int, tuple[int, float]], int, int]]:
    """Yield members, statistics, a count from 0 to all of them, and a round."""
    for number in range(40):
        draw = generator("conformance", "selection", number)
        members = {int(each) for each in draw.choice(61, int(draw.integers(1, 62)), replace=False)}
        heard = {int(each): (int(draw.integers(1, 9)), float(draw.random())) for each in draw.choice(61, number)}
        yield members, heard, (0, len(members), int(draw.integers(0, len(members) + 1)))[number % 3], number


def fills(selection: Any, members: set[int], statistics: Mapping[int, tuple[int, float]], count: int, n: int) -> None:
    """Raise AssertionError unless so many different members are chosen, in ascending order, and nothing is changed.

    A policy without a fixed size may choose more or fewer, and has to choose all where it is asked for all.
    """
    present, seen = MemberIndex(61), known(statistics)
    present.update(members)
    chosen = selection.choose(present, count, seen, 7, n)
    where = f"of {len(members)} members, for {count} places,"
    require(isinstance(chosen, list), f"{where} it chose {chosen!r:.80}")
    is_as_asked = len(chosen) == count or not (selection.is_fixed_size or count == len(members))
    require(is_as_asked, f"{where} it chose {chosen!r:.80}")
    require(set(chosen) <= members, f"{where} it chose {sorted(set(chosen) - members)}, which are no members")
    require(chosen == sorted(set(chosen)), f"{where} it chose {chosen}; expected different ones, ascending")
    require(set(present) == members, f"{where} it changed the members")
    seen.memory = []  # which is the policy's own
    require(seen == known(statistics), f"{where} it changed what is known of clients")


def it_fills_the_cohort_with_different_members_in_order(selection: Any) -> None:
    """It chooses exactly as many different members as asked for, ascending, and changes nothing but its memory.

    Without a fixed size (`is_fixed_size`) these are any number of different members.
    """
    for each in fillings():
        fills(selection, *each)


def seed_round_members_and_statistics_alone_decide(selection: Any) -> None:
    """Seed, round, members and what is known alone decide: not earlier choices, nor the order of what is known."""
    first = results(selection)
    selection.choose(range(10), 3, Known(), 9, 99)
    backwards = known(dict(reversed(STATISTICS.items())))
    again = [selection.choose(EVERYBODY, 30, backwards, 7, round) for round in reversed(range(5))][::-1]
    for round, (one, other) in enumerate(zip(first, again, strict=True)):
        require(one == other, f"round {round} chose {one[:5]} … at first, and {other[:5]} … when asked again")


def what_it_needs_to_know_is_declared(selection: Any) -> None:
    """If what is known of clients changes its choice, `needs_known` says so."""
    turned = {client: (9 - reports, -worth) for client, (reports, worth) in STATISTICS.items()}
    with_these, with_others = (selection.choose(EVERYBODY, 30, known(each), 7, 3) for each in (STATISTICS, turned))
    require(with_these == with_others or selection.needs_known, "its choice depends on it, and needs_known is not True")


def a_run_that_is_interrupted_and_resumed_ends_alike(selection: Any) -> None:
    """A run that is interrupted and resumed asks the same clients as one that never was."""
    participation = {"clients": 8, "cohort": 3, "selection": selection.model_dump(mode="json")}
    what = world(participation=participation)
    require_equal_ends(ended(what, interrupted=True), ended(what), "interrupted and resumed", "without")


CONTRACT: Sequence[Any] = [
    it_fills_the_cohort_with_different_members_in_order,
    seed_round_members_and_statistics_alone_decide,
    what_it_needs_to_know_is_declared,
]
RUNS: Sequence[Any] = [a_run_that_is_interrupted_and_resumed_ends_alike]
