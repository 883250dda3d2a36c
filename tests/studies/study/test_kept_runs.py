"""A folder of studies that somebody else has prepared: only the runs of its keys count, and no file leads elsewhere."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from commands import Command
from plugin_files import SIGNS, forget
from worlds import TINY

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.algorithms.directions import blocks
from seedbus.bus.files import WrongFileType
from seedbus.bus.ledger import Ledger, parts_of
from seedbus.plugin import TrackedRun, Tracker, TrackerRun, load_plugin
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.run_folder import RESULTS
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.tracking.tensorboard import TensorBoard
from seedbus.studies.study import study as conducting
from seedbus.studies.study import study_page
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.membership import MAX_NAME, Membership
from seedbus.studies.study.pool import Answer, Job, Pool
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.runs import Run
from seedbus.studies.study.schema import load_study
from seedbus.studies.study.store import Store, StoredRun
from seedbus.studies.study.study import Conduct, trial_of, wanted_runs
from seedbus.studies.study.study_page import write_report
from seedbus.studies.study.worker import make_run

STUDY: dict[str, Any] = {
    "name": "kept",
    "base": TINY,
    "seeds": [1, 2],
    "ask": {"splits": ["test"]},
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of studies with the runs of both seeds, measured."""
    folder = tmp_path_factory.mktemp("studies")
    for stored in kept(folder):
        run(stored.scenario, stored.folder, progress=False, page=False)
        stored.add({"test": {"loss": float(stored.scenario.seed)}})
    return folder


@pytest.fixture
def folder(studies: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(studies, tmp_path / "studies"))


def kept(folder: Path) -> list[StoredRun]:
    return [stored for _, stored in wanted_runs(plan_of(STUDY), Store(folder), {})]


def found(folder: Path, study: dict[str, Any] | None = None) -> StudyResults:
    """Return what a study without processes finds: it makes nothing, but asks for all that it lacks."""
    return Conduct(plan_of(study or STUDY), Store(folder), Pool(0)).run()


def sentence(results: StudyResults, seed: int = 1) -> str:
    """Check that the run of one seed has failed and that of the other counts, and return the reason."""
    (failure,) = results.failures
    (member,) = results.members["tiny"]
    assert (failure.seed, member.seed) == (seed, 3 - seed) and "\n" not in failure.reason
    return failure.reason


def another(folder: Path) -> StoredRun:
    """Put the run of seed 2 in the place of that of seed 1, which is returned."""
    first, second = kept(folder)
    shutil.rmtree(first.folder)
    shutil.copytree(second.folder, first.folder)
    return first


def test_a_run_under_the_key_of_another_is_a_failure_and_is_not_counted(folder: Path) -> None:
    first = another(folder)
    assert sentence(found(folder)) == (
        f"{first.folder}: it holds another run than the one that it is named for; delete it, and the run is made again"
    )


def test_a_run_whose_messages_are_lost_is_a_failure_and_not_left_out_of_a_column(folder: Path) -> None:
    first, _ = kept(folder)
    shutil.rmtree(first.folder / "messages")
    found_there = sentence(found(folder))
    assert found_there.startswith(f"{first.folder}: its messages: holds 0 of ")
    assert found_there.endswith(" messages; delete it, and the run is made again")


def in_round(folder: Path, round: int) -> None:
    """Put all messages of a run into one round, with the digest that belongs to them."""
    columns = next(parts_of(folder / "messages", 1))
    columns["round"][:] = round
    Ledger(folder / "messages")._write(columns)


def test_a_run_whose_messages_are_of_a_round_below_0_is_a_failure(folder: Path) -> None:
    in_round(kept(folder)[0].folder, -1)
    assert "it has rounds that no message can have" in sentence(found(folder))


def test_a_run_whose_messages_and_evaluations_are_of_rounds_far_ahead_needs_no_more_memory(folder: Path) -> None:
    first = kept(folder)[0].folder
    in_round(first, 2**32 - 1)
    with closing(sqlite3.connect(first / FILE)) as database, database:
        line = json.loads(database.execute("SELECT line FROM metrics ORDER BY number DESC").fetchone()[0])
        database.execute(
            "UPDATE metrics SET line = ? WHERE number = (SELECT max(number) FROM metrics)",
            (json.dumps(line | {"round": 10**15}),),
        )
    assert Run.read(first).caught_up[0] == 0  # an array as long as these rounds are many fits into no memory


def test_a_run_that_says_it_has_more_clients_than_any_can_is_a_failure(folder: Path) -> None:
    path = kept(folder)[0].folder / RESULTS
    summary = json.loads(path.read_text())
    summary["participation"]["clients"] = 2**24 + 1
    path.write_text(json.dumps(summary))
    assert "it is damaged (participation.clients: Input should be less than or equal to" in sentence(found(folder))


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_under_the_key_of_another_is_neither_measured_nor_gone_on_with(folder: Path, is_finished: bool) -> None:
    first = another(folder)
    if not is_finished:
        (first.folder / RESULTS).unlink()
    facts = {"scenario": first.scenario.resolved(), "folder": str(first.folder), "parts": ["test"]}
    with pytest.raises(RunFolderError, match="it holds another run than the one that it is named for"):
        make_run(facts | {"launch": None, "track": None}, lambda _: None)
    assert (first.folder / RESULTS).exists() == is_finished


def test_a_run_of_a_study_and_its_replay_leave_the_other_cores_to_the_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_threads", None)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    blocks.set_threads(1)  # as a study's process does
    stored = Store(tmp_path).stored(validate(TINY, "tiny"))
    facts = {"scenario": TINY, "folder": str(stored.folder), "parts": ["test"]}
    make_run(facts | {"launch": None, "track": None}, lambda _: None)
    assert blocks._threads == 1


def test_a_run_with_another_name_and_other_expectations_is_the_same_run(folder: Path) -> None:
    base = STUDY["base"] | {"name": "other", "description": "too", "expect": {"loss": {"at_most": 9.0}}}
    results = found(folder, STUDY | {"base": base})
    assert results.is_complete and not results.failures
    assert list(results.runs["test_loss"]) == [1.0, 2.0]


def test_a_run_whose_results_are_damaged_stops_no_other(folder: Path) -> None:
    (kept(folder)[0].folder / RESULTS).write_text("[" * 100_000)
    assert f"{RESULTS}: it is damaged" in sentence(found(folder))


def test_a_run_whose_results_were_changed_is_a_failure_and_counts_in_no_table(folder: Path) -> None:
    path = kept(folder)[0].folder / RESULTS
    path.write_text(path.read_text().replace('"rounds": 2', '"rounds": 3'))
    assert f"{RESULTS}: it is not what the run wrote" in sentence(found(folder))


def test_a_run_without_the_metric_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, read = kept(folder)[0], Run.read

    def forged(where: Path) -> Run:
        it = read(where)
        if where == first.folder:
            it.lines[:] = [{name: value for name, value in line.items() if name != "loss"} for line in it.lines]
        return it

    monkeypatch.setattr(Run, "read", forged)
    assert "it has no values of loss, which its scenario measures" in sentence(found(folder))


ODD = [
    "", "[1]", "[" * 200_000, '{"test": [1]}', '{"test": {"loss": "x"}}', '{"test": {"loss": true}}',
    '{"test": {"loss": {}}}', '{"test": {"loss": 1e999}}', '{"test": {"loss": NaN}}',
    '{"test": {"loss": 1' + "0" * 400 + "}}", '{"other": 1}', "\xff",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:30]))
def test_measurements_of_any_content_are_a_failure_of_their_run(folder: Path, text: str) -> None:
    first = kept(folder)[0].folder
    path = first.with_name(f"{first.name}.json")
    path.write_text(text, encoding="latin-1")
    reason = sentence(found(folder))
    assert reason.startswith(f"{path}: it is damaged (") and reason.endswith("; delete it, and it is made again")


@pytest.mark.parametrize(("make", "what"), [(os.mkfifo, "a pipe"), (lambda path: path.symlink_to("x"), "a symbolic")])
def test_measurements_are_not_read_from_what_is_no_file(folder: Path, make: Callable[[Path], None], what: str) -> None:
    first = kept(folder)[0].folder
    path = first.with_name(f"{first.name}.json")
    path.unlink()
    make(path)
    assert f"is {what}" in sentence(found(folder))


def test_measurements_that_cannot_be_written_are_a_failure_of_their_run(folder: Path) -> None:
    first = kept(folder)[0].folder
    path = first.with_name(f"{first.name}.json")
    path.with_name(f"{path.name}.unfinished").mkdir()  # as another study's that is written at this moment
    plan = plan_of(STUDY)
    conduct, subject = Conduct(plan, Store(folder), Pool(0)), conducting._Subject(plan.cells[0].name, kept(folder)[0])
    job = Job("run", subject, {})
    conduct._note(Answer(job, {"is_done": True, "measured": {"train": {"loss": 1.0}}, "notes": []}))
    (failure,) = conduct.failures
    assert failure.reason.startswith(f"{path}: it cannot be written ({path.name}.unfinished is a folder;")


def test_a_trial_under_the_key_of_another_has_no_score(tmp_path: Path) -> None:
    rates = [0.001, 0.01]
    path = "algorithm.learning_rate"
    study = STUDY | {"tune": {path: rates}, "tuning": {"rounds": 2, "further": 0}, "ask": {}, "seeds": [1]}
    plan, store = plan_of(study), Store(tmp_path)
    first, second = (store.stored(trial_of(plan, plan.cells[0], {path: rate}, 1)) for rate in rates)
    run(second.scenario, second.folder, progress=False, page=False)
    shutil.copytree(second.folder, first.folder)
    conduct = Conduct(plan, store, Pool(0))
    assert conduct.tuned("loss")["tiny"].chosen == {path: 0.01}
    (failure,) = conduct.failures
    assert failure.row == "tiny, learning_rate 0.001" and "it holds another run" in failure.reason


# what is written


def test_neither_a_run_nor_a_report_is_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    first, mine = kept(folder)[0], tmp_path / "mine"
    mine.mkdir()
    shutil.rmtree(first.folder)
    first.folder.symlink_to(mine)
    facts = {"scenario": first.scenario.resolved(), "folder": str(first.folder), "parts": []}
    with pytest.raises(RunFolderError, match="is a symbolic link; expected a folder"):
        make_run(facts | {"launch": None, "track": None}, lambda _: None)
    first.folder.unlink()
    results = found(folder)
    results.folder.symlink_to(mine)
    with pytest.raises(WrongFileType, match="kept is a symbolic link; expected a folder"):
        write_report(results)
    assert not list(mine.iterdir())


def test_a_report_keeps_no_figure_of_a_former_version_of_the_study_and_no_file_of_others_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_page, "file_of", lambda *_: b"a figure")
    results = found(folder)
    figures, others = results.folder / "figures", ["mine.svg", "over-rounds.svg", "loss-over-rounds.png", "pareto"]
    write_report(results)
    written = {path.name for path in figures.iterdir()}
    assert {"loss-over-rounds.svg", "loss-over-bytes.svg", "loss-over-bytes.pdf"} <= written
    former = [
        "accuracy-over-rounds.svg",
        "pareto.svg",
        "tuning.svg",
        "tuning-algorithm.learning_rate.svg",
        "pareto.pdf",
    ]
    for name in [*former, *others]:
        (figures / name).write_text("former")
    for path in (results.folder / "trials.csv", results.folder / "trials.parquet", results.folder / "notes.csv"):
        path.write_text("former")
    (figures / "tuning-of-mine.svg").mkdir()
    write_report(results)
    assert {path.name for path in figures.iterdir()} == {*written, *others, "tuning-of-mine.svg"}
    assert not (results.folder / "trials.csv").exists() and not (results.folder / "trials.parquet").exists()
    assert (results.folder / "notes.csv").exists()


class Asked(Exception):
    """A tracker was told of a run in this folder."""


class Asking(Tracker):
    tracker: str = "asking"

    def begin(self, run: TrackedRun) -> TrackerRun:
        raise Asked(run.folder)


def member(folder: Path, name: str) -> Membership:
    return Membership(tracker="asking", told=Asking(), folder=folder, name=name, tags={})


def tracked(folder: Path) -> TrackedRun:
    return TrackedRun("0" * 32, "run", folder / "run", {}, [])


@pytest.mark.parametrize("name", ["kept", "kept/tracked", "kept/tracked/a, seed 1"])
def test_trackers_write_through_no_link_of_a_study(tmp_path: Path, name: str) -> None:
    mine, link = tmp_path / "mine", tmp_path / "studies" / name
    mine.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    with pytest.raises(WrongFileType, match="is a symbolic link; expected a folder"):
        member(tmp_path / "studies" / "kept", "a, seed 1").begin(tracked(tmp_path))
    assert not list(mine.iterdir())


def test_the_folder_of_a_tracked_run_has_a_name_that_the_system_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(name: str) -> str:
        with pytest.raises(Asked) as asked:
            member(tmp_path / "kept", name).begin(tracked(tmp_path))
        where: Path = asked.value.args[0]
        assert where.parent == tmp_path / "kept" / "tracked" and where.is_dir()
        return where.name

    assert place("é/雪") == "é%2F雪" and place("雪" * MAX_NAME) == "run"
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("ascii"))  # as with PYTHONUTF8=0 LC_ALL=C
    assert place("a/b") == "a%2Fb" and place("é/雪") == "run"


@pytest.mark.slow
def test_no_event_file_is_read_through_a_link(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason='needs pip install "seedbus[track]"')
    events = tmp_path / "run" / "tensorboard"
    events.mkdir(parents=True)
    os.mkfifo(events / "events.out.tfevents.1.here")
    with pytest.raises(WrongFileType, match="is a pipe; expected a file"):
        TensorBoard().begin(tracked(tmp_path))


def test_what_was_found_is_printed_where_its_report_cannot_be_written(
    folder: Path, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(results: StudyResults, meter: Meter) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(study_page, "write_report", full)
    Path("kept.yaml").write_text(dump(STUDY))
    result = seedbus("study", "kept.yaml", "--out", folder, "--so-far", "--format", "csv")
    said = f"seedbus: {folder / 'kept'}: the report cannot be written (No space left on device)\n"
    assert (result.code, result.err) == (Exit.FOLDER, said) and "\ntiny," in result.out


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
def test_runs_of_another_source_of_a_plug_in_are_counted_and_their_report_is_not_replaced_by_an_empty_one(
    tmp_path: Path, seedbus: Command
) -> None:
    plugin, page = tmp_path / "signs.py", tmp_path / "studies" / "signed" / "report.html"
    plugin.write_text(SIGNS.read_text())
    load_plugin(plugin)
    study = STUDY | {"name": "signed", "base": TINY | {"algorithm": "signs"}, "ask": {}}
    store = Store(page.parents[1])
    for _, stored in wanted_runs(plan_of(study), store, {}):
        run(stored.scenario, stored.folder, progress=False, page=False)
    (store.folder / "runs" / "broken").mkdir()
    (store.folder / "runs" / "broken" / RESULTS).touch()
    Path("signed.yaml").write_text(dump(study))
    command = ("study", "signed.yaml", "--out", store.folder, "--plugin", plugin)
    result = seedbus(*command, "--so-far")
    assert (result.code, result.err) == (Exit.OK, f"written: {page}, and tables and figures beside it\n")
    report = page.read_bytes()
    plugin.write_text(plugin.read_text() + "# a comment\n")
    forget()
    told = f"seedbus: note: {plugin}: 2 kept runs are of another source of it and do not count; "
    result = seedbus(*command, "--so-far")
    assert result.code == Exit.OK and told in result.err and page.read_bytes() == report
    assert f"note: no run is finished; the former report stays as it is: {page.parent}\n" in result.err
    assert told in seedbus(*command, "--dry-run").err
    page.with_name("runs.csv").write_text("\n")  # a report of no run
    assert f"written: {page}" in seedbus(*command, "--so-far").err


@pytest.mark.slow
def test_a_report_so_far_says_how_many_trials_are_made_and_of_which_rows_none_is(seedbus: Command) -> None:
    rate = "algorithm.learning_rate"
    rows = {name: {"algorithm.perturbations": count} for name, count in (("few", 1), ("many", 4))}
    tuned = {"name": "tuned", "variants": rows, "tune": {rate: [1e-3, 1e-2]}, "tuning": {"rounds": 1, "further": 0}}
    study = STUDY | tuned
    Path("tuned.yaml").write_text(dump(study))
    plan, store = plan_of(study), Store(Path("studies"))
    said = seedbus("study", "tuned.yaml", "--so-far", "--format", "markdown").out
    assert "- trials: 0 of 4 are finished" in said and "nothing could be chosen" not in said
    for value in (1e-3, 1e-2):
        stored = store.stored(trial_of(plan, plan.cells[0], {rate: value}, 1))
        run(stored.scenario, stored.folder, progress=False, page=False)
    said = seedbus("study", "tuned.yaml", "--so-far", "--format", "markdown").out
    assert "- trials: 2 of 4 are finished; the values that rows have here may change\n" in said
    assert "- no trial of these rows has been made yet: many\n" in said
    assert "nothing could be chosen" not in said and "different numbers of trials" not in said
    said = seedbus("study", "tuned.yaml", "--quiet", "--format", "markdown").out
    assert "are finished" not in said and "no trial" not in said
    assert list(pd.read_csv("studies/tuned/trials.csv")["seeds"]) == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_report_waits_until_another_process_has_written_its_own(folder: Path) -> None:
    results = found(folder)
    results.folder.mkdir()
    writing = threading.Thread(target=write_report, args=[results])
    other = os.open(results.folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        writing.start()
        writing.join(0.2)
        assert writing.is_alive() and not any(path.is_file() for path in results.folder.rglob("*"))
    finally:
        os.close(other)
    writing.join()
    assert (results.folder / "report.html").exists()


# the file of a study


def test_a_study_is_not_read_from_what_is_no_file(tmp_path: Path, seedbus: Command) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(ScenarioError) as error:
            load_study(path)
        (told,) = error.value.sentences
        assert told == f"{path}: it is not a file; expected the file of a study, or a name from `list studies`"
    assert seedbus("study", tmp_path / "pipe").code == Exit.USAGE


@pytest.mark.parametrize("name", ["runs", "Runs"])
def test_no_study_has_the_folder_of_the_runs(name: str) -> None:
    with pytest.raises(ScenarioError, match=f'name: "{name}" is not accepted; expected another'):
        plan_of(STUDY | {"name": name})


def test_a_base_with_a_long_name_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(json.dumps({"base": "x" * 5000}))
    with pytest.raises(ScenarioError, match=r"base: x+…: it cannot be read \(File name too long\)"):
        plan_of(tmp_path / "long.yaml")


@pytest.mark.parametrize("odd", ["\U0001f600", "é雪", "\x7f\x85\u2028\ufeff"])
def test_settings_may_have_any_characters(odd: str, tmp_path: Path) -> None:
    variants = {"a": {"description": odd}, f"b{odd}": {"algorithm.learning_rate": 0.01}}
    fields = STUDY | {"variants": variants, "grid": {"description": [odd]}}
    (tmp_path / "odd.yaml").write_text(json.dumps(fields))
    for source in (fields, tmp_path / "odd.yaml"):
        cells = plan_of(source).cells
        assert [cell.name for cell in cells] == ["a", f"b{odd}"]
        assert [cell.scenario.description for cell in cells] == [odd] * 2
        assert cells[1].with_settings({"description": f"{odd}!"}).scenario.description == f"{odd}!"


@pytest.mark.slow
def test_a_job_that_cannot_be_sent_ends_the_study_and_does_not_leave_it_waiting() -> None:
    with Pool(1, stop_s=0.1) as workers, pytest.raises(TypeError, match="not JSON serializable"):
        list(workers.do([Job("run", None, {"scenario": object()})]))
