"""Whatever strangers do, the run ends as if they had not been there; and each refusal is counted under its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_arena import Arena
from hostile_cases import CASES, GUESTS, STRANGERS
from hostile_peers import Case
from hostile_pending import GuestCase
from worlds import go, scenario

MOST_GROWTH = 50 * 10**6
# a step of the arena is a round or two
WHAT = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 2 * len(STRANGERS) + 100})
SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")


def test_there_are_many_cases_and_no_two_have_one_name() -> None:
    names = Counter(case.name for case in CASES)
    assert len(CASES) >= 200 and not [name for name, count in names.items() if count > 1]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(WHAT, tmp_path_factory.mktemp("among-strangers") / "run") as arena:
        arena.play_together([case for case in STRANGERS if case.is_patient])
        yield arena


@pytest.fixture(scope="module")
def vacancy(arena: Arena) -> Arena:
    arena.vacate()
    return arena


@pytest.mark.parametrize("case", STRANGERS, ids=str)
def test_a_stranger_is_refused_and_the_run_goes_on(arena: Arena, case: Case) -> None:
    arena.play(case)


@pytest.mark.parametrize("case", GUESTS, ids=str)
def test_a_guest_is_refused(vacancy: Arena, case: GuestCase) -> None:
    vacancy.play_guest(case)


def test_the_run_ends_as_if_nobody_had_come(arena: Arena, tmp_path: Path) -> None:
    resident, descriptors, threads = arena.before
    arena.occupy()
    arena.step()
    arena.server.wait_for(lambda: arena.server.descriptors == descriptors, "closes what it opened")
    assert arena.server.threads == threads
    growth = arena.server.resident - resident
    arena.gate.open_to(2**32)
    summary, undisturbed = arena.server.results(), go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}
    booked = {key: count for key, count in arena.booked.items() if key[1] != "said-nothing"}
    assert {(who, reason): summary["refusals"].get(reason, {}).get(who) for who, reason in booked} == booked
    # whoever had a port again may have been silent too, while nobody looked
    silent = {who: count for (who, reason), count in arena.booked.items() if reason == "said-nothing"}
    assert all(summary["refusals"]["said-nothing"].get(who, 0) >= count for who, count in silent.items())
    print(f"refused: {_by_reason(summary)}; {growth / 1e6:.1f} MB more")
    assert growth < MOST_GROWTH
    assert not [name for name in arena.server.threads if name.startswith("ZMQ")]


def _by_reason(summary: dict[str, Any]) -> dict[str, int]:
    return {reason: sum(whose.values()) for reason, whose in summary["refusals"].items()}
