"""Paths that no system accepts end in one sentence, wherever a user may give a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Command
from scenario_files import SMALL, write_scenario

from seedbus.agents.errors import RunFolderError
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import dump, parse

LONG = "x" * 5000
DEEP = "/".join(["d" * 100] * 60)


@pytest.mark.parametrize("path", [LONG, DEEP, "a\x00b", "~nobody-of-this-name/data"])
@pytest.mark.parametrize("field", ["data", "model"])
def test_a_folder_in_a_scenario_that_cannot_be_one_is_one_sentence(tmp_path: Path, field: str, path: str) -> None:
    scenario = tmp_path / "s.yaml"
    document: Any = {"name": "sentence-encoder", "dataset": "sst2", field: path}
    scenario.write_text(dump(parse(SMALL) | {"task": document}), encoding="utf-8")
    with pytest.raises((DataError, ValueError)) as raised:
        what = load(scenario)
        what.task.bind(seed=1, clients=4, partition=what.partition)
    said = str(raised.value)
    assert f"task.{field}: found no folder " in said and len(said.splitlines()) == 1


COMMANDS = [
    ["run", "PATH"],
    ["explain", "PATH"],
    ["run", "s.yaml", "-q", "--out", "PATH"],
    ["run", "-q", "--resume", "PATH"],
    ["server", "s.yaml", "-q", "--bind", "ipc://PATH"],
    ["client", "--connect", "ipc://PATH"],
    ["export", "PATH"],
    ["export", "run", "--out", "PATH"],
    ["report", "PATH"],
    ["compare", "run", "PATH"],
    ["compare", "run", "--out", "PATH"],
    ["explain", "s.yaml", "fields", "--set", "faults=[{fault: trace, file: PATH}]"],
    ["explain", "s.yaml", "fields", "--set", "name=PATH"],
]


@pytest.mark.slow
@pytest.mark.parametrize("path", [LONG, DEEP], ids=["long", "deep"])
def test_a_path_that_is_too_long_is_one_sentence(seedbus: Command, tmp_path: Path, path: str) -> None:
    write_scenario(tmp_path)
    assert seedbus("run", "s.yaml", "-q", "--out", "run").code == Exit.OK
    for command in COMMANDS:
        said = seedbus(*(part.replace("PATH", path) for part in command))
        assert said.code in (Exit.USAGE, Exit.FOLDER), command
        assert said.out == "" and said.err.startswith("seedbus: ") and said.err.count("\n") == 1, command
    with pytest.raises(RunFolderError):
        Results.read(Path(path))
