"""`seedbus init`: what it writes is a scenario that runs, and its comments are the defaults."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from plugin_files import SIGNS, forget

from seedbus.models.task import TASKS
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import parse
from seedbus.studies.explain.first_scenario import Choices, first_scenario

pytestmark = pytest.mark.slow

WITHOUT_DATA = ("digits", "null", "quadratic")
SMALL = ("clients=3", "rounds=2", "dropout=0.2", "stragglers=0.4")


def chosen(settings: Iterable[str]) -> list[str]:
    return [part for each in settings for part in ("--set", each)]


def run(seedbus: Command, *arguments: str) -> None:
    written = seedbus("init", "first.yaml", *chosen(arguments))
    assert (written.code, written.err) == (Exit.OK, "") and "seedbus explain first.yaml" in written.out
    assert seedbus("explain", "first.yaml", "fields").code == Exit.OK
    ran = seedbus("run", "first.yaml", "--quiet")
    assert (ran.code, ran.err) == (Exit.OK, ""), ran.err


@pytest.mark.few(10, slow=0)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS.all()))
def test_a_scenario_of_every_algorithm_runs(seedbus: Command, algorithm: str) -> None:
    few = ALGORITHMS.all()[algorithm]().facts.most_clients is not None
    run(seedbus, f"algorithm={algorithm}", *(("rounds=2",) if few else SMALL))


@pytest.mark.parametrize("task", WITHOUT_DATA)
def test_a_scenario_of_every_task_that_needs_no_data_runs(seedbus: Command, task: str) -> None:
    run(seedbus, f"task={task}", *SMALL)


COMPLETE = [
    name
    for name, task in TASKS.all().items()
    if name != "image-folder" and not any(field.is_required() for field in task.model_fields.values())
]
"""Tasks that need no further field: a folder of images is needed but for `partition: own`."""


@pytest.mark.parametrize("task", COMPLETE)
def test_the_commented_lines_are_the_defaults(task: str, tmp_path: Path) -> None:
    """Without their marks they give the same scenario."""
    text = first_scenario(Choices(task=task, dropout=0.1, stragglers=0.1))
    path = tmp_path / "first.yaml"
    path.write_text(text)
    short = load(path)
    all_lines = re.sub(r"^( *)#(\w)", r"\1\2", text, flags=re.MULTILINE)
    path.write_text(all_lines)
    assert load(path) == short and len(parse(all_lines)) > len(parse(text))
    assert max(map(len, text.splitlines())) <= 120


def test_settings_are_those_of_the_library_s_scenario_of_the_same_task_and_algorithm(tmp_path: Path) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(first_scenario(Choices(task="fashion-mnist", algorithm="scaffold")))
    ours, theirs = load(path), load("fashion/scaffold")
    assert (ours.task, ours.partition, ours.algorithm) == (theirs.task, theirs.partition, theirs.algorithm)
    assert "# Fields of algorithm are set as in decomfl-digits" in first_scenario(Choices(task="quadratic"))


@pytest.mark.parametrize(
    ("task", "algorithm", "rate", "rounds"),
    [
        ("digits", "decomfl", 0.006, 1000),
        ({"name": "digits", "model": "softmax"}, "decomfl", 0.1, 300),
        ("quadratic", "decomfl", 0.006, 1000),
        ("digits", "fedkseed", 0.005, 1000),
    ],
)
def test_a_learning_rate_comes_with_the_rounds_it_is_for(
    task: Any, algorithm: str, rate: float, rounds: int, tmp_path: Path
) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(text := first_scenario(Choices(task=task, algorithm=algorithm)))
    found = load(path).resolved()
    assert (found["algorithm"]["learning_rate"], found["stop"]["rounds"]) == (rate, rounds)
    assert f"The learning rate is one for {rounds:,} rounds of " in text
    path.write_text(first_scenario(Choices(task=task, algorithm=algorithm, rounds=7)))
    assert load(path).stop.rounds == 7


def test_the_next_command_loads_the_plug_in(seedbus: Command) -> None:
    Path("my files").mkdir()
    Path("my files/signs.py").write_text(SIGNS.read_text())
    written = seedbus("init", "first.yaml", "--plugin", "my files/signs.py")
    forget()
    assert "`seedbus run first.yaml --plugin 'my files/signs.py'`" in written.out, written


def test_it_replaces_no_file(seedbus: Command) -> None:
    Path("mine.yaml").write_text("mine")
    refused = seedbus("init", "mine.yaml")
    assert refused.code == Exit.USAGE and "mine.yaml: it exists already; name another file, or delete it" in refused.err
    assert Path("mine.yaml").read_text() == "mine"


class Terminal(io.StringIO):
    """Answers, as from a terminal."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_it_asks_for_what_no_option_says(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["", "fedav", "fedavg", "dirichlet", "0.3", "20", "", "many", "30", "0.1", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    said = seedbus("init", "first.yaml", "--set", "stragglers=0.25")
    assert said.code == Exit.OK, said.err
    assert "fedav is not known; did you mean fedavg?" in said.err and "many is not a number" in said.err
    first = load("first.yaml")
    assert (first.task.name, first.algorithm.facts.label, first.stop.rounds) == ("digits", "fedavg", 30)
    assert first.partition.model_dump()["alpha"] == 0.3
    assert (first.participation.clients, first.participation.cohort) == (20, 2)
    assert [fault.model_dump()["fault"] for fault in first.faults] == ["dropout", "straggler"]
