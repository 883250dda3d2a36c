"""What can never run is said before data and weights are loaded, in the same words everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import TINY

from seedbus.models.task import TASKS
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.running.possible import refuse_impossible
from seedbus.scenarios.schema.loading import library, load, studies
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.possible import impossible_rows

OPT = {"name": "language-model", "model": "facebook/opt-1.3b", "dataset": "squad"}
PREFIX = {"kind": "prefix", "tokens": 1000}
RELABELLED = {"participation": {"clients": 4, "cohort": 3, "deadline_s": 1}, "task": {"name": "digits"}}
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "models": (
        {"task": {"name": "quadratic", "dimension": 5 * 10**9}, "algorithm": {"name": "fedavg"}},
        ": algorithm fedavg sends models, and a message with the 5,000,000,000 coordinates of task quadratic takes "
        "20,000,000,064 bytes; at most 17,179,803,648 are accepted: choose a smaller model, a mask, or a scalar-only",
    ),
    "state": (
        {"algorithm": {"name": "mifa"}, "task": {"name": "quadratic", "dimension": 4 * 10**9}},
        ": algorithm mifa keeps 80,000,000,000 bytes at the server, for 4 clients and 4,000,000,000 coordinates; at",
    ),
    "split": (
        {"task": {"name": "digits", "validation": 0}, "evaluation": {"split": "validation"}},
        ": evaluation.split is validation, and task digits holds out no samples with task.validation: 0; expected",
    ),
    "classes": (
        RELABELLED | {"faults": [{"fault": "label-flip", "pairs": [[3, 12]]}]},
        "faults.0: pairs names class 12; the task has the classes 0 to 9",
    ),
    "no classes": (
        {"task": OPT, "faults": [{"fault": "label-flip"}]},
        "faults: faults.0 changes classes, and samples of task language-model have none; a task that classifies is",
    ),
    "transport": (
        {
            "algorithm": {"name": "decomfl", "arithmetic": "integer"},
            "participation": {"clients": 4},
            "topology": {"kind": "gossip", "graph": "ring"},
            "transport": "tcp",
        },
        "transport tcp: topology: gossip runs all nodes in one process, in simulated time; expected memory, without",
    ),
    "context": (
        {"task": OPT | {"max_length": 1049, "train": PREFIX}},
        "task.max_length: found 1049 tokens; expected at most 1048, facebook/opt-1.3b's context",
    ),
    "answers": (
        {"task": OPT | {"max_length": 50}},
        "task.max_length: found 50 tokens, and an answer of 50 leaves none for its prompt; expected more than 50",
    ),
}


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("data is loaded")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_can_never_run_is_said_before_anything_is_loaded(
    name: str, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, sentence = IMPOSSIBLE[name]
    Path("tiny.yaml").write_text(dump(TINY | fields))
    Path("own.yaml").write_text(dump({"base": TINY, "variants": {"well": {}, "ill": fields}, "seeds": [1]}))
    monkeypatch.setattr(TASKS.all()[fields.get("task", TINY["task"])["name"]], "bind", refuse)
    for command in (["explain", "fields"], ["explain", "--seconds", "0"], ["explain"], ["run", "-q"]):
        said = seedbus(command[0], "tiny.yaml", *command[1:])
        assert said.code == Exit.USAGE and sentence in said.err.splitlines()[-1], said.err
    for option in ("--dry-run", "--quiet"):
        said = seedbus("study", "own.yaml", option)
        assert said.code == Exit.USAGE and sentence.removeprefix(": ") in said.err.splitlines()[-1], said.err
    assert not Path("studies").exists() and not Path("runs").exists()


UNHELD = {"base": TINY | {"task": {"name": "digits", "validation": 0}}}
NO_SPLIT = "row tiny cannot run: evaluation.split is validation, and task digits holds out no samples"
STUDIES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "trials": (UNHELD | {"tune": {"algorithm.learning_rate": [0.1]}}, [], NO_SPLIT),
    "splits": (UNHELD | {"ask": {"splits": ["validation"]}}, [], NO_SPLIT),
    "workers": (
        {"base": TINY, "grid": {"participation": [{"clients": 1}, {"clients": 4}]}},
        ["--workers", "3"],
        "row clients 1 cannot run: --workers 3: the run has 1 client; expected 1 at most",
    ),
    "secret": (
        {"base": TINY, "grid": {"seed_shift": [False, True]}},
        [],
        "row seed_shift true cannot run: seed_shift: this process has no secret",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_names_the_rows_that_can_never_run_before_it_makes_any(name: str, seedbus: Command) -> None:
    fields, options, sentence = STUDIES[name]
    Path("own.yaml").write_text(dump(fields | {"seeds": [1]}))
    for option in ("--dry-run", "--quiet"):
        said = seedbus("study", "own.yaml", option, *options)
        assert said.code == Exit.USAGE and said.err.startswith(f"seedbus: own.yaml: {sentence}"), said.err
        assert said.err.count("\n") == 1 and "out of the study" in said.err
    assert not Path("studies", "runs").exists()


@pytest.mark.slow
def test_every_scenario_that_comes_with_seedbus_is_possible() -> None:
    """Some need weights that a person has trained or fetched; a model that a message cannot hold is in none."""
    for name in library():
        refuse_impossible(load(name))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_row_of_the_papers_figures_is_possible() -> None:
    assert [name for name in studies() if impossible_rows(plan_of(name))] == []
