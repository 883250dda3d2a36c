"""Runs need the core alone; a command that needs an extra names it before it does any work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Command

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.extras import lacks
from seedbus.scenarios.schema.yaml_text import dump

OF_EXTRAS = {"matplotlib": "study", "optuna": "study", "pandas": "study", "ray": "cluster", "submitit": "cluster"}
RUN = {
    "name": "small",
    "task": {"name": "quadratic", "dimension": 10},
    "algorithm": {"name": "decomfl", "learning_rate": 0.01},
    "participation": {"clients": 4, "cohort": 2},
    "stop": {"rounds": 4},
}


@pytest.fixture(autouse=True)
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in OF_EXTRAS:
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("package", OF_EXTRAS)
def test_the_extra_that_brings_a_package_is_what_its_metadata_say(package: str) -> None:
    assert lacks(f"{package}.part") == (
        f'{package} is not installed here; expected it after `pip install "seedbus[{OF_EXTRAS[package]}]"`'
    )


def test_what_no_extra_brings_is_a_fault() -> None:
    assert lacks("no_such_package") is None


@pytest.mark.slow
def test_runs_and_what_looks_at_them_need_no_extra(seedbus: Command) -> None:
    Path("small.yaml").write_text(dump(RUN))
    for command in (
        ["run", "small.yaml", "--out", "small", "--workers", "1"],
        ["report", "small"],
        ["analyse", "small"],
        ["verify", "small"],
        ["compare", "small", "small"],
        ["explain", "small.yaml"],
        ["list"],
        ["runs", "small"],
    ):
        answer = seedbus(*command)
        assert answer.code == Exit.OK, (command, answer.err)
    assert Path("small/report.html").is_file()


def test_a_study_says_what_it_lacks_before_its_first_run(seedbus: Command) -> None:
    Path("some.yaml").write_text(dump({"name": "some", "base": RUN, "seeds": [1]}))
    answer = seedbus("study", "some.yaml")
    assert answer.code == Exit.USAGE and answer.err == f"seedbus: seedbus study: {lacks('matplotlib')}\n"
    assert not Path("studies").exists()
