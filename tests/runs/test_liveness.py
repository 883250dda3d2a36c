"""Once faults stop, every member is at the newest version within two rounds, whatever happened before.

A client that returns has to join first. In the worst case it is refused and sends a second JOIN: three trips, which
may take two more rounds.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, HISO, scenario

from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import MemberPosition
from seedbus.scenarios.running.run import run
from seedbus.studies.stress.draws import Chooser

CALM = 2  # rounds without a fault at the end
COMES = 2  # rounds that a client may need to become a member again
CLIENTS = 7


def faults(choose: Chooser, rounds: int) -> list[dict[str, Any]]:
    """Some faults, all of which end in time."""
    kinds: list[dict[str, Any]] = [
        {"fault": "drop", "probability": choose.one((0.1, 0.3))},
        {"fault": "duplicate", "probability": choose.one((0.2, 0.5)), "copies": choose.whole(1, 4)},
        {"fault": "reorder", "probability": 0.5, "window_s": choose.scale(0.1, 3)},
        {"fault": "delay", "probability": 0.3, "by": {"distribution": "pareto", "minimum": 0.2, "shape": 1.0}},
        {"fault": "partition", "fraction": choose.one((0.3, 1.0)), "direction": choose.one(("up", "down", "both"))},
        {"fault": "corrupt", "probability": 0.2},
        {"fault": "dropout", "probability": 0.5, "when": choose.one(("before-training", "after-training"))},
        {"fault": "straggler", "fraction": 0.5, "pause_s": choose.scale(0.1, 5)},
        {"fault": "crash", "fraction": 0.5, "returns": choose.one(("with-state", "without-state", "from-another-run"))},
    ]
    found = []
    for _ in range(choose.whole(1, 4)):
        fault = choose.one(kinds)
        until = rounds - CALM - COMES * (fault["fault"] == "crash")
        begins = choose.whole(0, until - 1)
        found.append(fault | {"at_round": begins, "for_rounds": choose.whole(1, until - begins)})
    return found


def check(seed: int, folder: Path) -> None:
    choose = Chooser(seed)
    rounds = choose.whole(6, 25)
    what = scenario(
        seed=seed,
        algorithm=choose.one((DECOMFL, HISO)),
        faults=faults(choose, rounds),
        participation={"clients": CLIENTS, "deadline_s": 10_000.0 if choose.chance(0.2) else 3.0},
        network={"latency": {"distribution": "uniform", "low": 0.01, "high": 0.2}},
        stop={"rounds": rounds},
    )
    results = run(what, folder)
    with closing(Journal.open(folder, for_writing=False)) as journal:
        checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert len(checkpoint.last.reported) == CLIENTS, "everybody reports in the last round"
    before = MemberPosition(results.summary["version"] - 1)
    assert set(checkpoint.positions.values()) == {before}, "the version that it began at"
    assert "diverged" not in results.summary["refusals"]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(15))
def test_everybody_is_at_the_head_two_rounds_after_the_last_fault(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(100, 125), pytest.param(range(125, 300), marks=pytest.mark.soak)])
def test_everybody_is_at_the_head_for_more_seeds(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        check(seed, tmp_path / str(seed))
