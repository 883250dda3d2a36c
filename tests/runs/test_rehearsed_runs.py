"""A run whose reports counted by chance of time, and its rehearsal, which takes from its journal which ones did."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from owners import own_scenario, own_table, own_tables
from processes import HANGS_S, kill, seedbus, wait_for
from worlds import DECOMFL, lossy, scenario

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.errors import Differs, ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

SLOW = {"evaluation": {"distribution": "lognormal", "median": 0.2, "sigma": 1.5}}
IN_TIME = {"clients": 3, "cohort": 3, "deadline_s": 1.0}
LATE = {"clients": 8, "cohort": 4, "deadline_s": 0.1, "late": {"discount": 0.5}}


def owned(**more: Any) -> Scenario:
    return load(own_scenario(compute=SLOW, participation=IN_TIME, stop={"rounds": 8}, **more))


WHOLE = DECOMFL | {"momentum": 0.0, "arithmetic": "integer", "precision": "int32"}
CHURN = {
    "fault": "churn",
    "stays": {"distribution": "exponential", "mean": 8},
    "away": {"distribution": "exponential", "mean": 2},
}
MASKED = {"algorithm": WHOLE, "participation": {"clients": 8, "cohort": 6, "quorum": 2, "deadline_s": 1.0}}
STREAM = {"algorithm": WHOLE, "participation": {"mode": "stream", "clients": 8, "cohort": 6, "deadline_s": 4}}
CASES: dict[str, Scenario] = {
    "deadline": lossy(compute=SLOW),
    "late": scenario(participation=LATE),
    "buffer": scenario(participation={"clients": 8, "cohort": 6, "buffer": 2, "late": {}}, compute=SLOW),
    "stream": scenario(**STREAM, faults=[CHURN, {"fault": "drop", "probability": 0.1}], compute=SLOW, stop={"rounds": 60}),
    "over-selected": scenario(participation={"clients": 8, "cohort": 3, "over_selection": 2.0}),
    "crashed": lossy(faults=[CHURN, {"fault": "server-crash", "at_round": 3}]),
    "lying": scenario(faults=[{"fault": "byzantine", "clients": [1], "attack": "sign-flip"}], compute=SLOW),
    "secure": scenario(**MASKED, secure_aggregation={}, compute=SLOW),
    "dense": scenario(algorithm={"name": "fedavg", "learning_rate": 0.1}, participation=LATE),
}


def rounds_of(folder: Path) -> list[tuple[Any, ...]]:
    """Return what decides the model of each round of a run: whom it asked, what counted, and its commit."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return [(each.cohort, each.reported, each.record.late, each.commit) for each in journal.rounds()]


@pytest.mark.parametrize("case", CASES)
def test_a_rehearsal_commits_what_counted_and_ends_with_the_digest(case: str, tmp_path: Path) -> None:
    what = CASES[case]
    there = run(what, tmp_path / "there", page=False)
    here = run(what, tmp_path / "here", page=False, as_run=tmp_path / "there")
    assert here.summary["digest"] == there.summary["digest"]
    rounds = rounds_of(tmp_path / "there")
    assert rounds_of(tmp_path / "here") == rounds
    assert case == "lying" or any(reported != cohort for cohort, reported, *_ in rounds), "time decided something"
