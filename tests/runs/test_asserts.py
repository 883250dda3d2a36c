"""Nothing depends on `assert`: runs are the same with `python -O`, which removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import outcome, scenario

from seedbus.algorithms.contract import Declined
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement


@pytest.mark.slow
def test_without_asserts_the_quickstart_has_the_same_bits_in_two_workers(tmp_path: Path) -> None:
    settings = ["stop.rounds=12", "lag.snapshot_after_commits=2"]
    chosen = [part for each in settings for part in ("--set", each)]
    _command("run", "quickstart", *chosen, "--workers", "2", "--out", str(tmp_path / "run"))
    results = Results.read(tmp_path / "run")
    assert results.summary["traffic"]["by_kind"]["snapshot"]["messages"]
    assert outcome(results) == outcome(run(load("quickstart", settings), tmp_path / "again"))


def _command(*arguments: str) -> None:
    """Run the command, and its workers, without asserts."""
    command, environment = (
        [sys.executable, "-m", "seedbus", *arguments, "--quiet"],
        os.environ | {"PYTHONOPTIMIZE": "1"},
    )
    subprocess.run(command, check=True, capture_output=True, env=environment)


def test_workers_that_no_transport_reaches_are_a_mistake_in_one_sentence(tmp_path: Path) -> None:
    for placement in (Placement(workers=2), Placement(bind="tcp://127.0.0.1:5555"), Placement("inproc", workers=2)):
        with pytest.raises(ScenarioError, match=r"^transport (memory|inproc): it reaches no other process; expected"):
            run(scenario(), tmp_path / "run", placement=placement)
    assert not (tmp_path / "run").exists()


def test_a_reason_to_decline_that_no_server_knows_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="'tired' is no reason to decline; accepted: no-masks, overflow"):
        Declined("tired", "a client has had enough")
