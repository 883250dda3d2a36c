"""Plug-ins that break a promise are caught by it, and `seedbus check-plugin` says how, in one sentence a promise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from commands import Command
from plugin_files import SIGNS, forget
from pydantic import BaseModel

from seedbus.discovery import KINDS, PLUGINS
from seedbus.plugin import ScalarOnly, check, load_plugin, register
from seedbus.scenarios.conformance.elsewhere import found_elsewhere, found_of
from seedbus.scenarios.conformance.kinds import HOMES, home
from seedbus.scenarios.errors import Exit, ScenarioError

BROKEN = SIGNS.with_name("broken.py")
NAMES = [
    *(("algorithm", name) for name in "thawed lenient aliased careless unsteady underpaid nosy idle counting".split()),
    *(("algorithm", name) for name in "repeating gapless skipping owning first-come secretive wearing".split()),
    *(("algorithm", name) for name in "averaging misdated trusting shapeless rounding naive local remembering".split()),
    *(("fault", name) for name in "stateful stubborn impostor silent threaded forgetting lossy".split()),
    *(("task", name) for name in "longer shared wandering crowded poor blind steep open".split()),
    *(("partition", name) for name in "wasteful twofold drifting generous".split()),
    *(("codec", name) for name in "dice fat cleaning gullible boasting quantum".split()),
    *(("rule", name) for name in "narrow sorting fading hopeful strict latecomer".split()),
    *(("selection policy", name) for name in "shy backwards touring undeclared resuming".split()),
    *(("tracker", name) for name in "forgetful finite once scribbling".split()),
    *(("law", name) for name in "loose endless downhill lopsided unsettled cramped binary unwritten".split()),
    *(("channel", name) for name in "flickering wide hissing".split()),
]
HASHING = {
    "algorithm": "hashing",
    "task": "hashed",
    "partition": "hashmap",
    "selection policy": "processed",
    "law": "scrambled",
}

pytestmark = [pytest.mark.usefixtures("no_plugins"), pytest.mark.slow]


@pytest.fixture
def broken() -> Iterator[Any]:
    """The classes of the broken plug-in by (kind, name), and the promise that each breaks."""
    load_plugin(BROKEN)
    plugin = PLUGINS["broken"]
    yield {(kind.noun, name): found for kind in KINDS for name, found in kind.of(plugin).items()}


def all_of(module: Any) -> list[Any]:
    return [promise for name in ("CONTRACT", "RUNS", "WORKERS") for promise in getattr(module, name, ())]


@pytest.mark.parametrize(("noun", "name"), NAMES)
def test_what_breaks_a_promise_is_caught_by_it(broken: Any, noun: str, name: str) -> None:
    found, module = broken[noun, name], home(noun)
    promises = {promise.__name__: promise for promise in all_of(module)}
    with pytest.raises(AssertionError) as raised:
        promises[found.breaks](module.subject(found()))
    assert str(raised.value)


def test_every_promise_of_every_kind_is_broken_by_somebody_but_those_of_whole_contracts(broken: Any) -> None:
    assert {pair for pair in broken if hasattr(broken[pair], "breaks")} == {*NAMES, *HASHING.items()}
    caught = {(noun, broken[noun, name].breaks) for noun, name in NAMES}
    promises = {(noun, promise.__name__) for noun in HOMES for promise in all_of(home(noun))}
    assert {name for _, name in promises - caught} == {
        "fields_survive_a_round_trip_as_text",
        "a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere",
        "it_lets_no_replica_diverge",
        "a_run_in_two_worker_processes_ends_as_in_one",
        "two_worker_processes_give_the_same_bits_as_one",
        "fedavg_keeps_its_contract_with_it",
        "algorithms_keep_their_contract_with_it",
    }


def test_another_process_finds_what_this_one_finds_unless_it_depends_on_the_process(broken: Any) -> None:
    lying = [(noun, broken[noun, name]()) for noun, name in HASHING.items()]
    honest = [(kind.noun, next(iter(kind.all().values()))()) for kind in KINDS if kind.noun in ("rule", "channel")]
    elsewhere = found_elsewhere([*lying, *honest])
    here = [found_of(noun, home(noun).subject(model)) for noun, model in [*lying, *honest]]
    agree = [one == other for one, other in zip(elsewhere, here, strict=True)]
    assert agree == [False] * len(lying) + [True] * len(honest)


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


def test_an_error_in_the_plug_in_is_one_sentence_with_its_line(tmp_path: Path, seedbus: Command) -> None:
    path = file(tmp_path, RULE.format(factor="[][len(rows)]"))
    answer = seedbus("check-plugin", path)
    assert answer.code == Exit.BROKEN and "Traceback" not in answer.out + answer.err
    assert f": {path.name}, line 7: IndexError: list index out of range\n" in answer.out


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


def test_a_class_of_a_notebook_is_checked_without_other_processes() -> None:
    @register
    class Mine(ScalarOnly):
        """Mine."""

        name: Literal["mine"] = "mine"

    checked = check(Mine())
    assert not [each for each in checked if each.problem] and len(checked) == 23
    with pytest.raises(ScenarioError, match="Nothing: it is of no known kind; expected one of algorithm, channel"):
        check(Nothing())


class Nothing(BaseModel):
    """No thing that a scenario could name."""


@pytest.mark.slow
def test_the_plug_in_of_the_documentation_keeps_all_its_promises() -> None:
    checked = check(SIGNS)
    assert not [each for each in checked if each.problem] and {each.kind for each in checked} == set(HOMES)
