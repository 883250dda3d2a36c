"""A finished run is reported and compared where its data is not; what computes with the data names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

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
    result = seedbus("replay", moved)
    assert result.code == Exit.DATA and result.err.startswith("seedbus: task.file: found no file ")
    with pytest.raises(ScenarioError, match=r"task\.file: found no file "):
        validate(scenario_of(moved).resolved(), "mine")
    with pytest.raises(DataError, match=r"task\.file: found no file "):
        _ = scenario_of(moved).dimension
