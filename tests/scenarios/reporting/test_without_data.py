"""A finished run is read where its data or its plug-in is not; what computes with these names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command
from plugin_files import SIGNS, forget
from worlds import go, lossy

from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.plugins import load_plugin

ON_TABLE = {
    "name": "mine",
    "task": {"name": "table", "file": "", "target": "c", "hidden": []},
    "algorithm": {"name": "fedavg"},
    "participation": {"clients": 2},
    "stop": {"rounds": 1},
}


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """The folder of a run whose table is gone."""
    table = tmp_path / "table.csv"
    table.write_text("a,b,c\n" + "".join(f"{row},{row * row % 7},{'xy'[row % 2]}\n" for row in range(40)))
    scenario = ON_TABLE | {"task": ON_TABLE["task"] | {"file": str(table)}}  # type: ignore[operator]
    folder = run(validate(scenario, "mine"), tmp_path / "run", progress=False, page=False).folder
    table.unlink()
    return folder


def test_a_run_is_reported_and_compared_without_its_data(seedbus: Command, moved: Path) -> None:
    result = seedbus("report", moved)
    assert (result.code, result.err) == (0, "") and "accuracy" in result.out
    assert b"table" in (moved / "report.html").read_bytes()
    assert seedbus("compare", moved).code == 0


def test_a_replay_and_a_new_run_need_the_data(seedbus: Command, moved: Path) -> None:
    result = seedbus("export", moved)
    assert result.code == Exit.DATA and result.err.startswith("seedbus: task.file: found no file ")
    with pytest.raises(ScenarioError, match=r"task\.file: found no file "):
        validate(scenario_of(moved).resolved(), "mine")
    with pytest.raises(DataError, match=r"task\.file: found no file "):
        _ = scenario_of(moved).dimension


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
def test_the_figures_of_a_run_are_read_without_its_plug_in(tmp_path: Path) -> None:
    load_plugin(SIGNS)
    own = lossy(
        algorithm={"name": "signs", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
        task={"name": "bowl"},
        compute={"replay": {"distribution": "exponential", "mean": 0.1}},
        privacy={"clip": 2_000_000, "noise_multiplier": 8},
    )
    here = go(tmp_path / "run", own)
    assert here.rounds["epsilon"].iloc[-1] > 0 and here.clients["replay_s"].sum() > 0
    forget()
    there = Results.read(here.folder)
    for name in ("metrics", "messages", "rounds", "clients"):
        assert getattr(there, name).equals(getattr(here, name)), name
    with pytest.raises(ScenarioError, match="has not loaded that plug-in"):
        there.memory(0)
