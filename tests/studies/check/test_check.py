"""`seedbus check-plugin` says which promises a plug-in keeps and breaks, in one sentence a promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from commands import Command
from plugin_files import SIGNS, forget
from pydantic import BaseModel

from seedbus.plugin import ScalarOnly, check, register
from seedbus.scenarios.errors import Exit, Interrupted, ScenarioError
from seedbus.scenarios.faults.dropout import Dropout
from seedbus.scenarios.faults.label_flip import LabelFlip
from seedbus.studies.check import check as checking
from seedbus.studies.check.kinds import HOMES

pytestmark = [pytest.mark.usefixtures("no_plugins"), pytest.mark.slow]


def file(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text("from typing import Literal\nfrom seedbus.plugin import *\n" + text)
    return path


RULE = """
class Own(Rule):
    rule: Literal["own"] = "own"
    def combine(self, rows, state):
        return rows[0] * {factor}, state
    def blend(self, updates, state):
        return updates[0].astype("f8"), state
"""


def test_the_command_tells_every_promise_and_ends_with_a_code_of_its_own(tmp_path: Path, seedbus: Command) -> None:
    kept = seedbus("check-plugin", file(tmp_path, RULE.format(factor=1.0)))
    assert kept.code == 0 and kept.out.startswith("rule own\n  ✓ From finite rows comes")
    assert kept.out.endswith("\nall 6 promises are kept\n") and kept.out.count("✓") == 6
    forget()
    path = file(tmp_path, RULE.format(factor="float('nan')"))
    broken = seedbus("check-plugin", path)
    assert broken.code == Exit.BROKEN and "1 of 6 promises are broken" in broken.out and not broken.err
    assert "\n  ✗ From finite rows comes one finite float64 row" in "\n" + broken.out
    assert "combine of float64 [" in broken.out and "is float64 [" in broken.out
    answer = json.loads(seedbus("check-plugin", path, "--format", "json").out)
    assert answer["broken"] == 1 and [bool(each["problem"]) for each in answer["checked"]].count(True) == 1
    assert set(answer["checked"][0]) == {"kind", "name", "fields", "promise", "problem"}


def test_an_interrupted_check_names_no_folder_to_go_on_with(
    tmp_path: Path, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(tmp_path / "gone", "another command")

    monkeypatch.setattr(checking, "_of", interrupted)
    answer = seedbus("check-plugin", file(tmp_path, RULE.format(factor=1.0)))
    assert (answer.code, answer.err) == (Exit.INTERRUPTED, "seedbus: stopped\n")


def test_an_error_in_the_plug_in_is_one_sentence_with_its_line(tmp_path: Path, seedbus: Command) -> None:
    path = file(tmp_path, RULE.format(factor="[][len(rows)]"))
    answer = seedbus("check-plugin", path)
    assert answer.code == Exit.BROKEN and "Traceback" not in answer.out + answer.err
    assert f": {path.name}, line 7: IndexError: list index out of range\n" in answer.out


def test_a_report_that_the_algorithm_itself_refuses_is_named_before_anything_is_made_of_it(tmp_path: Path) -> None:
    text = """
class Twice(ScalarOnly):
    name: Literal["twice"] = "twice"
    def local(self, replica, memory, plan, objective):
        report, memory = super().local(replica, memory, plan, objective)
        return report.repeat(2, axis=1), memory
"""
    (told,) = check(file(tmp_path, text))
    refusal = "its scalars have shape (1, 20), not K × P = (1, 10)"
    assert told.problem == f"`check` refuses the report that `local` returns: {refusal}"


def test_a_class_is_checked_with_its_examples_and_told_if_it_cannot_be_made(tmp_path: Path) -> None:
    text = """
class Shifted(Partition):
    {config}
    kind: Literal["shifted"] = "shifted"
    by_so_many: int
    def split(self, column, clients, seed):
        import numpy as np
        if not 1 <= clients <= column.size:
            raise DataError("partition shifted", f"{{clients}} clients", "fewer")
        return [np.arange(client, column.size, clients) for client in range(clients)]
"""
    (told,) = check(file(tmp_path, text.format(config="")))
    assert told.problem.startswith("by_so_many: this field is required") and "json_schema_extra" in told.problem
    forget()
    examples = '{"examples": [{"by_so_many": 3}, {"by_so_many": 4}]}'
    checked = check(file(tmp_path, text.format(config=f"model_config = {{'json_schema_extra': {examples}}}")))
    assert [each.fields for each in checked] == [{"by_so_many": 3}] * 4 + [{"by_so_many": 4}] * 4
    assert not any(each.problem for each in checked)


def test_a_file_that_is_no_plug_in_is_one_sentence(tmp_path: Path, seedbus: Command) -> None:
    answer = seedbus("check-plugin", tmp_path / "absent.py")
    assert answer.code == Exit.USAGE and answer.err.count("\n") == 1 and "there is no such file" in answer.err


def test_a_file_without_classes_is_named(tmp_path: Path, seedbus: Command) -> None:
    path = file(tmp_path, "def network(): ...\n")
    assert seedbus("check-plugin", path).out.startswith(f"{path}: it defines no class that has a contract; functions ")


def test_a_class_of_a_notebook_is_checked_without_other_processes() -> None:
    @register
    class Mine(ScalarOnly):
        """Mine."""

        name: Literal["mine"] = "mine"

    checked = check(Mine())
    assert not [each for each in checked if each.problem] and len(checked) == 24
    with pytest.raises(ScenarioError, match="Nothing: it is of no known kind; expected one of algorithm, channel"):
        check(Nothing())


@pytest.mark.parametrize("fault", [LabelFlip(fraction=0.5), Dropout(rates=(0.1, 0.5))])
def test_a_fault_that_needs_classes_or_takes_no_probability_keeps_its_promises(fault: BaseModel) -> None:
    assert not [each for each in check(fault) if each.problem]


class Nothing(BaseModel):
    """No thing that a scenario could name."""


@pytest.mark.slow
def test_the_plug_in_of_the_documentation_keeps_all_its_promises() -> None:
    checked = check(SIGNS)
    assert not [each for each in checked if each.problem] and {each.kind for each in checked} == set(HOMES)
