"""Finished runs of a study that are kept packed: another machine has the same figures of them, and goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import kept_runs
import pytest
from worlds import TINY

from seedbus.agents.journal.file import FILE
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.figures_file import NAME
from seedbus.studies.study.pool import Pool
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.store import Store
from seedbus.studies.study.study import Conduct

STUDY: dict[str, Any] = {
    "base": TINY,
    "seeds": [1, 2],
    "tune": {"algorithm.learning_rate": [0.01, 0.02]},
    "tuning": {"rounds": 2, "further": 0},
    "ask": {"splits": ["test"], "target": 2.0},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("file") / "small.yaml"
    path.write_text(dump(STUDY), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def made(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    found(file, folder, processes=1)
    return folder


def found(file: str, folder: Path, *, processes: int = 0) -> StudyResults:
    with Pool(processes) as pool:
        return Conduct(plan_of(file), Store(folder), pool, is_idle=not processes).run()


def figures(results: StudyResults) -> Any:
    return [
        (row, member.seed, member.figures, member.run.passes, member.run.caught_up)
        for row, members in results.members.items()
        for member in members
    ]


def test_the_figures_of_kept_runs_and_trials_are_those_of_the_runs(file: str, made: Path, tmp_path: Path) -> None:
    assert kept_runs.pack(file, made, tmp_path / "kept") == 4  # two trials and two runs
    assert kept_runs.unpack(tmp_path / "there", tmp_path / "kept") == 4
    here, there = found(file, made), found(file, tmp_path / "there")
    assert there.is_complete and not there.failures
    assert figures(here) == figures(there) and here.tuned == there.tuned
    assert kept_runs.unpack(tmp_path / "there", tmp_path / "kept") == 0
    assert not list((tmp_path / "there").rglob(FILE))


def test_runs_are_found_under_the_keys_of_another_version(file: str, made: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(made, tmp_path / "older"))
    for number, folder in enumerate(sorted((older / "runs").glob("*/"))):
        if (measured := folder.with_name(f"{folder.name}.json")).exists():
            measured.rename(folder.with_name(f"{number:016x}.json"))
        folder.rename(folder.with_name(f"{number:016x}"))
    assert kept_runs.pack(file, older, tmp_path / "kept") == 4
    assert kept_runs.unpack(tmp_path / "there", tmp_path / "kept") == 4
    assert figures(found(file, made)) == figures(found(file, tmp_path / "there"))


def test_a_study_makes_what_is_not_kept_and_no_more(file: str, made: Path, tmp_path: Path) -> None:
    kept_runs.pack(file, made, tmp_path / "kept")
    kept_runs.unpack(tmp_path / "there", tmp_path / "kept")
    _, last = found(file, tmp_path / "there").members["tiny"]
    shutil.rmtree(last.run.folder)
    assert found(file, tmp_path / "there", processes=1).is_complete
    assert [path.parent for path in (tmp_path / "there").rglob(FILE)] == [last.run.folder]


def damaged(content: dict[str, Any], change: str) -> str:
    if change == "cut":
        return json.dumps(content)[:50]
    if change == "evaluations":
        content["lines"] = content["lines"][1:]
    if change == "bytes":
        content["caught_up"][0] = -1
    return json.dumps(content)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("cut", "it is damaged (Invalid JSON"),
        ("evaluations", "evaluations are not those of its other figures"),
        ("bytes", "it is damaged (caught_up.0: Input should be greater than or equal to 0)"),
    ],
)
def test_a_damaged_file_is_a_failure_that_names_it(
    file: str, made: Path, tmp_path: Path, change: str, what: str
) -> None:
    kept_runs.pack(file, made, tmp_path / "kept")
    kept_runs.unpack(tmp_path / "there", tmp_path / "kept")
    _, last = found(file, tmp_path / "there").members["tiny"]
    path = last.run.folder / NAME
    path.write_text(damaged(json.loads(path.read_text()), change), encoding="utf-8")
    (failure,) = found(file, tmp_path / "there").failures
    assert failure.reason.startswith(f"{path}: it") and what in failure.reason
