"""Input from peers, files and users appears in the terminal, the log and the page only as plain text."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Command, CommandResult
from worlds import go, scenario

import seedbus
from seedbus.agents.errors import RunFolderError
from seedbus.agents.messages import Evaluation
from seedbus.bus import EVALUATOR, Envelope, Kind
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.ledger import MESSAGES
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting import closing_table
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.results_schema import lines_problem
from seedbus.scenarios.reporting.terminal import console, shown
from seedbus.scenarios.run_folder import RESULTS
from seedbus.scenarios.schema.yaml_text import dump, parse
from seedbus.studies.study.compare import compare
from seedbus.studies.study.comparison import markdown, page

ODD = [
    "[/b]",
    "[link=file:///etc]:smile:",
    "\x1b]0;title\x07",
    "\x9b31m\u2028\u202e",
    "two\nlines\r",
    "\udcff",
    "x" * 300,
    "x" * 5000,
    "1" * 5000,
    "{0.__class__}%s",
    "",
    "[" * 3000,
    "~",
]


def is_clean(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def assert_plain(result: CommandResult) -> None:
    """Assert one sentence or a clean result; a bug in Seedbus would exit with another code or raise."""
    assert is_clean(result.out) and is_clean(result.err)
    assert result.code in set(Exit) - {Exit.BUG}
    assert result.code in (Exit.OK, Exit.MISSED) or result.err.startswith(("seedbus: ", "round "))
    assert len(result.err) < 10_000


@pytest.mark.few(1)
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: ascii(odd[:20]))
def test_no_odd_text_on_the_command_line_ends_in_a_traceback(seedbus: Command, odd: str) -> None:
    for arguments in (
        ("run", "small.yaml", "--set", "stop.rounds=1", "--out", f"runs/{odd}"),
        ("run", odd),
        ("run", "small.yaml", "--out", "named", "--set", f"name={odd}"),
        ("explain", "small.yaml", "fields", "--set", f"description={odd}"),
        ("explain", "small.yaml", "fields", "--set", f"{odd}=1"),
        ("explain", "small.yaml", "fields", "--set", f"stop.target={{metric: loss, value: 1, direction: '{odd}'}}"),
        ("explain", odd),
        ("report", f"runs/{odd}"),
        ("compare", f"runs/{odd}", "--at", odd),
        ("compare", "small.yaml", "--out", odd),
        ("compare", "small.yaml", "--target", f"{odd}=1"),
        ("client", "--connect", "tcp://127.0.0.1:1", "--clients", odd or ","),
        ("server", "small.yaml", "--bind", odd),
        (odd,),
    ):
        if all(arguments):  # an empty argument makes the command show its help
            assert_plain(seedbus(*arguments))


def test_a_folder_named_like_markup_is_shown_by_that_name(seedbus: Command) -> None:
    ran = seedbus("run", "small.yaml", "-q", "--out", "runs/[/b]")
    assert ran.code == Exit.OK and "runs/[/b] (plots: report.html)" in ran.out
    assert seedbus("report", "runs/[/b]").out == ran.out
    assert seedbus("compare", "runs/[/b]").code == Exit.OK


def test_a_text_that_is_cut_keeps_its_end() -> None:
    cut = shown("seedbus: " + "x" * 5000 + ": it cannot be written (File name too long)")
    assert len(cut) <= 2000 and cut.startswith("seedbus: x") and cut.endswith("(File name too long)")


def test_a_scenario_with_marks_of_direction_is_shown_in_escapes_that_are_read_back() -> None:
    document = {"description": "a\u202e\u200b\xa0b\x9b café 雪", "\u2066key": 1}
    assert is_clean(dump(document)) and parse(dump(document)) == document


def test_nothing_but_the_terminal_module_makes_a_console_or_prints_sentences() -> None:
    folder = Path(seedbus.__file__).resolve().parent.parent / "scenarios"
    for file in folder.glob("*.py"):
        if file.name != "terminal.py":
            assert not re.search(r"\bConsole\(|[^.]\bprint\(|echo\(f|\berr=True", file.read_text("utf-8")), file


# an evaluator that reports unknown metrics


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["event", "self", "method_name", "[/nope]", "\x1b]0;title\x07"])
def test_a_metric_that_no_scenario_knows_is_refused_and_the_run_goes_on(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    problem = type(Quadratic().bind(seed=1, clients=2, partition=scenario().partition))
    monkeypatch.setattr(problem, "evaluate", lambda self, x, split: {"loss": 0.5, "gap": 0.5, name: 0.999})
    target = "{metric: gap, value: 1, direction: below}"  # the first evaluation would have met it
    ran = seedbus("run", "small.yaml", "--out", "run", "--set", f"stop.target={target}")
    assert_plain(ran)
    results = Results.read(Path("run"))
    assert results.summary["rounds"] == 5 and results.lines == [] and results.summary["metrics"] == {}
    assert results.summary["refusals"] == {"bad-payload": {str(EVALUATOR): 2}}  # the evaluations at x₀ and at the end
    lines = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in lines if line["event"] == "refused"] == ["bad-payload"] * 2


def test_nonsense_from_the_evaluator_is_an_answer_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = [Envelope(Kind.EVALUATION, EVALUATOR, 0, 0, ["x"]), Envelope(Kind.DECLINE, EVALUATOR, 0, 0)]
    monkeypatch.setattr(Evaluation, "pack", lambda self: nonsense[self.round % 2])
    results = go(tmp_path / "run", scenario(stop={"rounds": 2}, clock="wall", network={}))
    assert results.summary["rounds"] == 2 and results.lines == []


# results from another source

WRONG: list[Any] = [None, True, -1, 10**400, 2**63, 1e308, "[/b]", "\x1b[2J\ud800", "x" * 20_000, [], {}, {"[/b]": {}}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Results:
    what = scenario(
        stop={"rounds": 3}, expect={"gap": {"at_most": 1e9}}, faults=[{"fault": "drop", "probability": 0.0}]
    )
    return go(tmp_path_factory.mktemp("foreign") / "run", what)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) in a document."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
def test_results_of_any_content_are_refused_in_a_sentence_or_shown_as_text(run: Results, turn: int) -> None:
    count, good, refused = len(list(places(run.summary))), json.dumps(run.summary), 0
    try:
        for number in range(count):
            foreign = copy.deepcopy(run.summary)
            container, key = list(places(foreign))[number]
            container[key] = WRONG[(number + 5 * turn) % len(WRONG)]
            (run.folder / RESULTS).write_text(json.dumps(foreign))
            try:
                summary = Results.read(run.folder).summary
            except RunFolderError as error:
                assert str(error).startswith(f"{run.folder / RESULTS}: it is damaged (")
                refused += 1
                continue
            out = io.StringIO()
            console(file=out, width=200).print(closing_table.closing_table(summary))
            assert is_clean(out.getvalue()) and len(out.getvalue()) < 100_000
            try:
                report_of = compare([run.folder])
            except LedgerDamaged as error:  # it counts other messages than there are
                assert str(error).startswith(f"{run.folder / MESSAGES}: holds ") and "\n" not in str(error)
                continue
            assert is_clean(markdown(report_of)) and page(report_of)
    finally:
        (run.folder / RESULTS).write_text(good)
    assert refused > 20


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "", "null", "[]", "{}", '{"scenario": NaN}', "\ufeff{}"],
    ids=lambda text: ascii(text[:20]),
)
def test_results_that_cannot_be_read_are_one_sentence(run: Results, seedbus: Command, text: str) -> None:
    good = (run.folder / RESULTS).read_text()
    (run.folder / RESULTS).write_text(text, encoding="utf-8")
    try:
        for command in ("report", "compare"):
            result = seedbus(command, run.folder)
            assert_plain(result)
            assert result.code == Exit.FOLDER and result.err.count("\n") == 1
    finally:
        (run.folder / RESULTS).write_text(good)


@pytest.mark.parametrize("wrong", [None, "x", -1, 1e300, [], {}, 10**400])
def test_measurements_lack_nothing_that_is_computed_with(wrong: Any) -> None:
    line = {"round": 1, "version": 1, "time_s": 0.5, "bytes_up": 3, "bytes_down": 4, "loss": None, "gap": 1e300}
    assert lines_problem([line]) is None
    for name in ("round", "version", "time_s", "bytes_up", "bytes_down"):
        assert lines_problem([line, line | {name: wrong}]) is not None
