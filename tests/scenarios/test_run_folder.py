"""A run's folder: its contents, and errors when it is lost, damaged, full, in use or holds other files."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from plugin_files import SIGNS, forget
from worlds import go, lossy, outcome, reopened, scenario, stop_after

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.bus.errors import LedgerDamaged
from seedbus.models.tasks.quadratic import QuadraticProblem
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Exit, Interrupted, ScenarioError
from seedbus.scenarios.operations.run_state import state_of
from seedbus.scenarios.reporting.closing_table import closing_table
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.plugins import load_plugins
from seedbus.scenarios.schema.scenario import Scenario

WHAT = lossy(stop={"rounds": 12})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return go(tmp_path_factory.mktemp("whole") / "run", WHAT).folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run that a test may damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run that stopped after seven rounds."""
    stop(WHAT, tmp_path / "run", monkeypatch)
    return tmp_path / "run"


def stop(what: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stop a run after seven rounds, and return what is said."""
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(Interrupted) as said:
            run(what, folder)
    return str(said.value)


def resume(folder: Path) -> Results:
    return run(WHAT, folder, resume=True)


def test_the_scenario_in_the_folder_is_the_scenario_that_was_run(tmp_path: Path, finished: Path) -> None:
    assert load(finished / "scenario.yaml") == WHAT
    odd = scenario(stop={"rounds": 1}, name="1e5", description="yes: 日本 \x85 – 1e-3\nand more")
    assert load(go(tmp_path / "odd", odd).folder / "scenario.yaml") == odd


def test_the_metrics_in_the_folder_are_those_of_the_journal_and_of_the_results(finished: Path) -> None:
    journal = Journal.open(finished, for_writing=False)
    measured = journal.metrics()
    journal.close()
    lines = (finished / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == measured
    results = Results.read(finished)
    assert results.metrics.to_dict("records") == measured
    assert results.summary["metrics"].items() <= measured[-1].items()


def test_what_is_not_finite_is_null_in_json_and_shown_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuadraticProblem, "evaluate", lambda *_: {"loss": math.nan, "gap": math.inf})
    results = go(tmp_path / "run", WHAT)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((tmp_path / "run" / "results.json").read_text(), parse_constant=refuse)
    for name in ("metrics.jsonl", "log.jsonl"):
        for line in (tmp_path / "run" / name).read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    assert results.summary["metrics"]["gap"] is None and results.metrics["loss"].isna().all()
    assert resume(tmp_path / "run").summary == results.summary
    assert list(closing_table(results.summary).columns[1].cells)[:2] == ["not a finite number"] * 2


def test_results_that_were_lost_are_written_again(finished: Path, folder: Path) -> None:
    for lost in ("results.json", "metrics.jsonl", "scenario.yaml", "lock", "log.jsonl"):
        (folder / lost).unlink()
    assert outcome(resume(folder)) == outcome(Results.read(finished))
    assert load(folder / "scenario.yaml") == WHAT


def test_a_folder_that_is_moved_during_its_run_is_not_begun_again_and_can_be_resumed(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    def moved_after_seven(self: Journal, entry: Any) -> None:
        append(self, entry)
        if entry.round == 6:
            (tmp_path / "run").rename(tmp_path / "moved")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", moved_after_seven)
        with pytest.raises(RunFolderError, match="run: the run's folder cannot be written"):
            run(WHAT, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert outcome(resume(tmp_path / "moved")) == outcome(Results.read(finished))


def test_a_line_of_the_log_that_was_cut_off_does_not_spoil_the_next(stopped: Path) -> None:
    log = stopped / "log.jsonl"
    before = log.read_bytes()
    log.write_bytes(before + b'{"round": 7, "ver')
    resume(stopped)
    assert log.read_bytes().startswith(before)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["round"] for line in lines if "asked" in line][-1] == 11


@pytest.mark.parametrize("content", ["junk", "", "[1]", "{}", "\udcff"])
def test_damaged_results_are_refused_and_can_be_mended(finished: Path, folder: Path, content: str) -> None:
    (folder / "results.json").write_text(content, errors="surrogateescape")
    mend = f"delete results.json, and `seedbus run --resume {folder}` writes it"
    for read in (Results.read, resume):
        with pytest.raises(RunFolderError, match=mend) as raised:
            read(folder)
        assert "\n" not in str(raised.value)
    (folder / "results.json").unlink()
    assert outcome(resume(folder)) == outcome(Results.read(finished))


def test_damaged_or_missing_metrics_are_refused(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("{}\njunk\n")
    with pytest.raises(RunFolderError, match=r"metrics.jsonl: it is damaged \(Expecting value.*delete results.json"):
        _ = Results.read(folder).metrics
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"metrics.jsonl: it cannot be read \(No such file or directory\)"):
        _ = Results.read(folder).metrics


def test_a_lost_segment_of_the_ledger_is_never_passed_over(folder: Path) -> None:
    for segment in (folder / "messages").glob("*.parquet"):
        segment.unlink()
    with pytest.raises(LedgerDamaged, match=r"holds 0 of \d+ messages"):
        _ = Results.read(folder).messages
    (folder / "results.json").unlink()
    with pytest.raises(LedgerDamaged, match="0 of its 2 segments are there"):
        resume(folder)


@pytest.mark.parametrize("damage", ["missing", "junk"])
def test_a_stopped_run_whose_ledger_is_damaged_is_not_resumed(stopped: Path, damage: str) -> None:
    segment = stopped / "messages" / "000000.parquet"
    segment.unlink()
    if damage == "junk":
        segment.write_bytes(b"junk")
    with pytest.raises(LedgerDamaged, match=rf"000000.parquet: is {'missing' if damage == 'missing' else 'damaged'}"):
        resume(stopped)


def change(folder: Path, statement: str) -> None:
    database = sqlite3.connect(folder / FILE)
    database.execute(statement)
    database.commit()
    database.close()


def empty(folder: Path) -> None:
    (folder / FILE).write_bytes(b"")


def overwrite(folder: Path) -> None:
    (folder / FILE).write_bytes(b"this is not a database, whatever its name\n" * 100)


def cut(folder: Path) -> None:
    os.truncate(folder / FILE, 5000)


def damage(folder: Path, how: Any) -> None:
    if isinstance(how, str):
        change(folder, how)
    else:
        how(folder)


BODY = "UPDATE rounds SET body = CAST('x' || body AS BLOB) WHERE round = 3"
LOST = "DROP TABLE rounds"
GARBLED = "UPDATE facts SET value = 'junk' WHERE name = 'scenario'"
FACTS, CHECKPOINT = "its facts do not verify; its first", "the checkpoint does not verify; its first"


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (BODY, "round 3 does not verify; its first 3 rounds are sound"),
        ("DELETE FROM rounds WHERE round = 6", f"{CHECKPOINT} 6 rounds are sound"),
        ("UPDATE checkpoint SET state = x'c2'", f"{CHECKPOINT} 7 rounds are sound"),
        ("UPDATE checkpoint SET state = x'c1'", "(the rows of state 0 are missing); its first 7 rounds are sound"),
        ("UPDATE checkpoint SET segments = segments + 1", f"{CHECKPOINT} 7 rounds are sound"),
        ("DELETE FROM checkpoint", f"{CHECKPOINT} 7 rounds are sound"),
        ("UPDATE known SET version = version - 1 WHERE client = 1", f"{CHECKPOINT} 7 rounds are sound"),
        ("DELETE FROM held WHERE client = (SELECT max(client) FROM held)", f"{CHECKPOINT} 7 rounds are sound"),
        ("UPDATE metrics SET line = replace(line, '0', '1') WHERE number = 1", f"{CHECKPOINT} 7 rounds are sound"),
        ("UPDATE facts SET value = replace(value, '\"seed\": 1', '\"seed\": 2')", f"{FACTS} 0 rounds are sound"),
        (GARBLED, f"{FACTS} 0 rounds are sound"),
        ("DELETE FROM facts WHERE name = 'x0'", f"{FACTS} 7 rounds are sound"),
        ("DELETE FROM facts", f"{FACTS} 0 rounds are sound"),
        (LOST, "no such table: rounds"),
        (empty, "it is empty"),
        (overwrite, "file is not a database"),
        (cut, "database disk image is malformed"),
    ],
)
def test_a_damaged_journal_is_never_resumed(stopped: Path, how: Any, sentence: str) -> None:
    damage(stopped, how)
    with pytest.raises(JournalDamaged) as raised:
        resume(stopped)
    assert str(stopped / FILE) in str(raised.value)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("how", [BODY, LOST, GARBLED, empty, overwrite, cut])
def test_a_damaged_journal_is_never_replayed(folder: Path, how: Any) -> None:
    damage(folder, how)
    with pytest.raises(JournalDamaged):
        replay(folder)


@pytest.mark.parametrize(
    ("section", "changes", "sentence"),
    [
        ("algorithm", {"name": "signs"}, 'algorithm.name: "signs" is not known; '),
        ("task", {"name": "speech"}, 'task.name: "speech" is not known; there are '),
        ("participation", {"bids": 3}, "participation.bids: no such field; there are "),
    ],
)
def test_a_run_of_an_installation_that_knows_more_is_not_called_damaged(
    folder: Path, section: str, changes: dict[str, Any], sentence: str
) -> None:
    document = WHAT.resolved()
    document[section] |= changes
    reopened(folder, {"scenario": json.dumps(document)})
    for read in (resume, replay, scenario_of):
        with pytest.raises(ScenarioError) as raised:
            read(folder)
        needs = f"{folder / FILE}: this run needs what this installation does not have: {sentence}"
        assert str(raised.value).startswith(needs) and "\n" not in str(raised.value)
        assert exit_code(raised.value) is Exit.USAGE


def test_the_sound_rounds_of_a_damaged_journal_can_be_replayed(finished: Path, folder: Path) -> None:
    change(folder, BODY)
    for round in range(4):
        assert replay(folder, round).digest == replay(finished, round).digest
    with pytest.raises(JournalDamaged, match="its first 3 rounds are sound"):
        replay(folder, 4)


def test_a_run_that_another_process_is_running_is_refused(stopped: Path) -> None:
    holder = Journal.open(stopped)
    with pytest.raises(RunFolderError, match="another process is running here"):
        resume(stopped)
    holder.close()
    assert resume(stopped).summary["rounds"] == 12


def test_a_run_is_not_written_over_nor_into_a_folder_with_other_things(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbus.scenarios.running.run.prepare", None)  # it may take minutes
    with pytest.raises(RunFolderError, match="there is a run here already"):
        run(WHAT, folder)
    mine = tmp_path / "mine" / "scenario.yaml"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(RunFolderError, match="there is something else here, and no run; name a new or an empty folder"):
        run(WHAT, mine.parent)
    assert [path.name for path in mine.parent.iterdir()] == ["scenario.yaml"] and mine.read_text() == "mine"


def test_a_resumed_run_must_be_there_and_be_the_same(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"nope: there is no run here \(no journal.sqlite\)"):
        resume(tmp_path / "nope")
    with pytest.raises(RunFolderError, match="it holds another scenario's run: seed is 1 there and 9 here"):
        run(WHAT.model_copy(update={"seed": 9}), folder, resume=True)
    with pytest.raises(ScenarioError, match="resume: out is missing; expected the folder of the run to go on with"):
        run(WHAT, resume=True)
    assert not (tmp_path / "nope").exists()


def test_the_results_of_a_run_that_is_not_finished_say_how_to_finish_it(stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=rf"not finished; go on with `seedbus run --resume {stopped}`"):
        Results.read(stopped)
    with pytest.raises(RunFolderError, match="there is no run here"):
        Results.read(tmp_path / "nope")


def test_every_command_that_goes_on_with_a_run_is_one_that_a_shell_understands(
    seedbus: Command, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped.rename("a run")
    command = "seedbus run --resume 'a run'"
    monkeypatch.setattr("seedbus.scenarios.operations.stopping.stop", lambda run, wait: state_of(run))
    assert f"`{command}`" in seedbus("runs", folder, "--stop").out  # as if it had been running
    monkeypatch.undo()
    monkeypatch.chdir(stopped.parent)
    texts = [seedbus("runs", "a run", "--stop").err, seedbus("report", "a run").err]
    Path("a run", "results.json").write_text("[]")
    assert all(f"`{command}`" in text for text in [*texts, seedbus("report", "a run").err])
    Path("a run", "results.json").unlink()
    assert re.search(rf"go on\W+{command}", seedbus("runs", "a run").out)


@pytest.mark.usefixtures("no_plugins")
def test_a_command_that_goes_on_with_a_run_names_the_plug_ins_that_it_needs(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_plugins([SIGNS])
    folder = tmp_path / "run"
    said = stop(lossy(algorithm={"name": "signs", "learning_rate": 0.01}, stop={"rounds": 12}), folder, monkeypatch)
    assert f"`seedbus run --plugin {SIGNS} --resume {folder}`" in said
    forget()
    assert f"`seedbus run --plugin PATH/signs --resume {folder}`" in seedbus("report", folder).err


def test_a_run_that_was_moved_is_told_of_where_it_is(seedbus: Command, folder: Path) -> None:
    results = (folder / "results.json").read_bytes()
    for command in (["report", "run"], ["run", "--resume", "run", "-q"]):
        assert re.search(r"run folder\W+run \(plots", seedbus(*command).out)
        assert json.loads(seedbus(*command, "--format", "json").out)["run"] == "run"
    assert (folder / "results.json").read_bytes() == results


@pytest.mark.parametrize("round", [-1, 13, 10**30])
def test_a_round_that_never_was_cannot_be_replayed(finished: Path, round: int) -> None:
    with pytest.raises(ScenarioError, match=rf"^round {round}: the run in .* has 12 rounds; expected 0 to 12"):
        replay(finished, round)


@pytest.mark.parametrize(
    ("out", "why"), [("nope/model", "No such file"), (".", "it is a folder"), ("", "it is a folder")]
)
def test_a_model_that_cannot_be_written_is_one_sentence(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFolderError, match=rf"the model cannot be written \({why}"):
        replay(finished).save(out)
    assert not list(tmp_path.iterdir())
