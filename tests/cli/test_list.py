"""`seedbus list KIND NAME`, `seedbus init --from NAME`, and what a shell completes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

from seedbus.cli import completion
from seedbus.discovery import Variants
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.described import described, kinds
from seedbus.scenarios.schema.loading import load, text_of
from seedbus.scenarios.schema.yaml_text import parse

DOCS = Path(__file__).parents[2]


def is_within(part: Any, whole: Any) -> bool:
    """Whether a document holds all that a part of it says."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and is_within(value, whole[name]) for name, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(any(is_within(value, each) for each in whole) for value in part)
    return bool(part == whole)


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_each_of_a_kind_is_described_with_a_page_and_an_example_of_a_scenario_that_has_it(kind: Variants) -> None:
    for name, found in kind.all().items():
        of = described(kind, name)
        assert of["description"] and (DOCS / of["page"]).is_file(), name
        names = {each.alias or field for field, each in found.model_fields.items()}
        assert {row[0] for row in of["fields"]} == names - {kind.tag}
        if of["scenario"]:
            assert is_within(parse(of["example"]), parse(text_of(of["scenario"]))), name


@pytest.mark.parametrize(
    ("kind", "name", "example"),
    [
        ("rules", "krum", {"algorithm": {"aggregation": {"rule": "krum"}}}),
        ("methods", "fedzo", {"algorithm": {"also": [{"name": "fedzo"}]}}),
        ("faults", "trace", {"faults": [{"fault": "trace", "file": "…"}]}),
        ("partitions", "by-column", {"partition": {"kind": "by-column", "column": "…"}}),
    ],
)
def test_what_no_scenario_has_is_shown_where_it_belongs_with_what_it_needs(kind: str, name: str, example: Any) -> None:
    of = described(kinds()[kind], name)
    assert (of["scenario"], parse(of["example"])) == ("", example)


def test_one_of_a_kind_is_described_in_a_terminal(seedbus: Command) -> None:
    shown = seedbus("list", "faults", "dropout").out
    assert all(each in shown for each in ("chance that a", "- fault: dropout\n    probability: ", "docs/faults.md"))
    assert json.loads(seedbus("list", "faults", "dropout", "--format", "json").out)["page"] == "docs/faults.md"


def test_a_scenario_is_copied_whole_and_runs_as_the_one_it_is_from(seedbus: Command) -> None:
    assert seedbus("list", "scenarios", "quickstart").out == text_of("quickstart")
    assert seedbus("init", "mine.yaml", "--from", "quickstart").code == Exit.OK
    assert load("mine.yaml").resolved() == load("quickstart").resolved()


@pytest.mark.parametrize(
    ("words", "complete"),
    [
        ("run quicks", ["quickstart"]),
        ("run exam", ["examples/"]),
        ("run examples/min", ["examples/mine.yaml"]),
        ("study figures/hiso-figure-8", ["figures/hiso-figure-8"]),
        ("list part", ["partitions"]),
        ("list faults dropo", ["dropout"]),
        ("init mine.yaml --from fashion/fedac", ["fashion/fedacg"]),
        ("run quickstart --set algori", ["algorithm=", "algorithm."]),
        ("run quickstart --set algorithm.momen", ["algorithm.momentum="]),
    ],
)
def test_a_shell_completes_names_kinds_and_fields(
    seedbus: Command, words: str, complete: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "mine.yaml").touch()
    (tmp_path / "examples" / "notes.txt").touch()
    monkeypatch.setenv("_SEEDBUS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"seedbus {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert seedbus().out.split()[: len(complete)] == complete


def test_nothing_is_completed_of_a_kind_that_there_is_not() -> None:
    assert completion.lists("zz") == [] and completion.settings("zz.") == []
