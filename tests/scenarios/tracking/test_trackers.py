"""Runs that are followed by trackers: the real libraries offline, and one that is a few lines of a plug-in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from commands import Command
from plugin_files import SIGNS
from processes import wait_for
from wandb_files import logged
from warm_command import warm
from worlds import lossy, scenario

from seedbus.agents.messages import Evaluation
from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import Progress, Stop, all_rounds_done, averages
from seedbus.bus.files import WrongFileType
from seedbus.plugin import TrackedRun, Tracker, TrackerRun
from seedbus.scenarios.errors import Exit, Interrupted
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running import tracking
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.tracking import Tracking
from seedbus.scenarios.tracking import mlflow, wandb
from seedbus.scenarios.tracking.tracker import TRACKERS
from seedbus.studies.check.kinds import home

PROMISES = home("tracker")
STEPS = [0, 5, 10, 15, 20]
LIBRARIES = ("mlflow", "tensorboard", "wandb")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the user's decides where trackers write, or sends anything."""
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


class Told(Tracker):
    """Keeps what it is told in this process; with an event, it hangs until that is set."""

    tracker: Literal["told"] = "told"
    calls: Any
    may_go_on: Any = None

    def begin(self, run: TrackedRun) -> TrackerRun:
        self.calls.append(("begin", run))
        return ToldRun(self.calls, self.may_go_on)


class ToldRun(TrackerRun):
    def __init__(self, calls: list[Any], may_go_on: threading.Event | None) -> None:
        self.calls, self.may_go_on = calls, may_go_on

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self.may_go_on is not None:
            self.may_go_on.wait()
        self.calls.append((step, dict(values)))

    def end(self, how: str, figures: Mapping[str, str | float]) -> None:
        self.calls.append((how, dict(figures)))


class Watch(NullObserver):
    """Keeps notes, and interrupts the run after a round."""

    def __init__(self, last: int = -1) -> None:
        self.last, self.notes = last, list[str]()

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if closed.round == self.last:
            raise KeyboardInterrupt

    def noted(self, event: str, **facts: Any) -> None:
        self.notes += [facts["what"]] if event == "untracked" else []


def test_a_tracker_is_told_the_scenario_each_evaluation_and_the_closing_figures(tmp_path: Path) -> None:
    calls: list[Any] = []
    results = run(lossy(), tmp_path / "run", track=Told(calls=calls))
    (_, begun), *evaluations, (how, figures) = calls
    assert begun.folder == tmp_path / "run" and begun.parameters["algorithm.perturbations"] == 3
    assert begun.parameters["faults.0.fault"] == "drop" and begun.parameters["network.up_mbps"] is None
    assert [step for step, _ in evaluations] == STEPS and how == "finished"
    for (_, values), line in zip(evaluations, results.lines, strict=True):
        assert set(values) == {"loss", "gap", "version", "simulated_s", "bytes_up", "bytes_down", "forward_passes"}
        assert (values["loss"], values["simulated_s"]) == (line["loss"], line["time_s"])
        assert (values["bytes_up"], values["bytes_down"]) == (line["bytes_up"], line["bytes_down"])
    # as the ledger has them: each counted report is P + 1 losses
    assert evaluations[-1][1]["forward_passes"] == 4 * results.summary["participation"]["counted"]["total"]
    assert (figures["digest"], figures["bytes"]) == (results.digest, results.summary["traffic"]["bytes"])


def test_a_first_round_without_a_commit_is_not_taken_for_the_start(tmp_path: Path) -> None:
    """x₀ and what is measured after such a round are both `round` 0, `version` 0."""
    calls: list[Any] = []
    told, progress = Tracking([Told(calls=calls)], scenario(), tmp_path, "0" * 32, [], [], Watch()), Progress()
    measured = [Evaluation(0, 0, {"accuracy": 0.5}), Evaluation(0, 0, {"accuracy": 0.5})]
    measured += [Evaluation(1, 1, {"accuracy": 1.0}), Evaluation(2, 1, {"accuracy": 1.0})]
    lines = [progress.measured(each, Stop(rounds=3), 0) for each in measured]
    for line in lines:
        told.measured(line)
    told.round_closed(ClosedRound(2, 1, (1,), (1,), None), 0, 0)
    told.end("failed")
    assert [step for step, _ in calls[1:-1]] == [0, 1, 2, 3]
    assert all_rounds_done(lines) == [0, 1, 2, 3]
    assert [line["accuracy_ema"] for line in lines] == pytest.approx([0.5, 0.5, 0.55, 0.595], rel=1e-12)
    assert averages(lines, "accuracy") == [line["accuracy_ema"] for line in lines]


@pytest.mark.parametrize("last", [0, 11])
@pytest.mark.slow
def test_a_run_that_is_interrupted_tells_every_evaluation_once(tmp_path: Path, last: int, no_plugins: None) -> None:
    from seedbus.plugin import load_plugin

    load_plugin(SIGNS)
    whole, folder = run(scenario(), tmp_path / "whole", track="paper"), tmp_path / "run"
    with pytest.raises(Interrupted):
        run(scenario(), folder, track="paper", observer=Watch(last))
    for _ in range(2):  # the second finds it finished
        run(scenario(), folder, resume=True, track="paper")
        assert (folder / "paper.jsonl").read_text() == (whole.folder / "paper.jsonl").read_text()


def test_what_an_evaluator_says_makes_no_names(tmp_path: Path) -> None:
    calls: list[Any] = []
    told = Tracking([Told(calls=calls)], scenario(), tmp_path, "0" * 32, [], [], Watch())
    line = {"round": 0, "version": 0, "time_s": 0.0, "bytes_up": 1, "bytes_down": 2, "loss": "<script>", "\x1b[2J": 1.0}
    told.measured(line)
    told.round_closed(ClosedRound(0, 1, (1,), (1,), None), 0, 0)
    told.end("failed")
    assert calls[1:] == [
        (0, {"version": 0, "simulated_s": 0, "bytes_up": 1, "bytes_down": 2, "forward_passes": 0}),
        ("failed", {}),
    ]


def test_a_tracker_that_hangs_delays_no_round_and_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "PATIENCE_S", 0.2)
    watch, calls, may_go_on = Watch(), list[Any](), threading.Event()
    run(scenario(), tmp_path / "run", track=Told(calls=calls, may_go_on=may_go_on), observer=watch)
    may_go_on.set()
    assert calls[0][0] == "begin"
    expected = "the tracker told is told no more of this run: it has not finished within 0.2 seconds"
    assert watch.notes == [expected]
    assert expected in (tmp_path / "run" / "log.jsonl").read_text()


def test_ctrl_c_while_a_finished_run_waits_for_a_tracker_begins_no_other_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def interrupted_join(teller: Any, timeout: float) -> None:
        waits.append(timeout)
        raise KeyboardInterrupt

    monkeypatch.setattr(tracking._Teller, "join", interrupted_join)
    with pytest.raises(Interrupted):
        run(scenario(), tmp_path / "run", track=Told(calls=[]), observer=Watch())
    assert len(waits) == 1 and (tmp_path / "run" / "results.json").exists()


def test_a_tracker_that_cannot_be_used_is_a_sentence_before_the_run(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = seedbus("run", "small.yaml", "--out", "run", "--track", "tensorbord")
    assert (unknown.code, unknown.err.count("\n")) == (Exit.USAGE, 1)
    assert "--track tensorbord: there is no such tracker; did you mean tensorboard?" in unknown.err
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    missing = seedbus("run", "small.yaml", "--out", "run", "--track", "wandb")
    assert missing.code == Exit.USAGE and not Path("run").exists()
    assert missing.err == 'seedbus: --track wandb: wandb is not installed: pip install "seedbus[track]"\n'


@pytest.mark.slow
def test_a_tracker_whose_place_is_taken_is_one_note(seedbus: Command) -> None:
    pytest.importorskip("tensorboard", reason='needs pip install "seedbus[track]"')
    seedbus("run", "small.yaml", "--out", "run", "-q")
    Path("other").mkdir()
    Path("run/tensorboard").symlink_to("../other")
    answer = seedbus("run", "--resume", "run", "--track", "tensorboard", "-q", "--format", "json")
    assert answer.code == 0 and answer.err.count("\n") == 1 and not list(Path("other").iterdir())
    assert answer.err.startswith("seedbus: note: the tracker tensorboard is told no more of this run: WrongFileType:")
    assert json.loads(answer.out)["rounds"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("promise", [*PROMISES.CONTRACT, *PROMISES.RUNS], ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_keeps_the_promises_of_trackers(name: str, promise: Any) -> None:
    tracker = TRACKERS.all()[name]()
    for package in tracker.packages:
        pytest.importorskip(package, reason='needs pip install "seedbus[track]"')
    promise(tracker)


@pytest.fixture
def interrupted(tmp_path: Path) -> Results:
    """A run in two parts, followed by all three libraries."""
    for package in LIBRARIES:
        pytest.importorskip(package, reason='needs pip install "seedbus[track]"')
    folder, watch = tmp_path / "run", Watch()
    with pytest.raises(Interrupted):
        run(scenario(), folder, track=LIBRARIES, observer=Watch(11))
    assert status(folder) == "KILLED"
    results = run(scenario(), folder, resume=True, track=LIBRARIES, observer=watch)
    assert not watch.notes and status(folder) == "FINISHED"
    return results


def in_mlflow(folder: Path) -> tuple[Any, Any]:
    """The client, and the only run of the store in a run's folder."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    (found,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return client, found


def status(folder: Path) -> str:
    return str(in_mlflow(folder)[1].info.status)


@pytest.mark.slow
def test_all_three_libraries_read_the_same_run_back(interrupted: Results) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, losses = interrupted.folder, [line["loss"] for line in interrupted.lines]
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    scalars = events.Scalars("loss")
    assert [each.step for each in scalars] == STEPS
    assert [each.value for each in scalars] == pytest.approx(losses, rel=1e-6)  # its numbers are float32
    assert events.Scalars("final/bytes")[0].value == interrupted.summary["traffic"]["bytes"]
    assert events.PluginTagToContent("hparams")

    client, found = in_mlflow(folder)
    history = client.get_metric_history(found.info.run_id, "loss")
    assert [(each.step, each.value) for each in history] == list(zip(STEPS, losses, strict=True))
    assert found.data.params["algorithm.name"] == "decomfl"
    assert found.data.tags["seedbus.digest"] == interrupted.digest

    ids, rows, summary = logged(folder / "wandb")
    assert ids == {found.data.tags["seedbus.run"]}
    assert [(row["_step"], row["loss"]) for row in rows] == list(zip(STEPS, losses, strict=True))
    assert summary["final/digest"] == interrupted.digest and summary["ended"] == "finished"


@pytest.mark.slow
def test_a_variable_that_is_empty_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "wandb"):
        pytest.importorskip(name, reason='needs pip install "seedbus[track]"')
    monkeypatch.chdir(tmp_path)
    names = ["MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_ALLOW_FILE_STORE"]
    for name in [*names, "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"]:
        monkeypatch.setenv(name, "")
    watch = Watch()
    folder = run(scenario(), Path("run"), track=("mlflow", "wandb"), observer=watch).folder
    assert not watch.notes and list(tmp_path.iterdir()) == [folder]
    client, found = in_mlflow(folder)
    assert client.get_experiment(found.info.experiment_id).name == "seedbus"
    assert [row["_step"] for row in logged(folder / "wandb")[1]] == STEPS


def begun(name: str, folder: Path) -> Any:
    """A run at a library."""
    pytest.importorskip(name, reason='needs pip install "seedbus[track]"')
    return TRACKERS.all()[name]().begin(TrackedRun("0" * 16, "run", folder, {}, ["loss"]))


@pytest.mark.slow
def test_event_files_that_vanish_are_one_error_and_no_traceback_of_a_thread(tmp_path: Path) -> None:
    at_tracker = begun("tensorboard", tmp_path)
    at_tracker.log(0, {"loss": 1.0})
    shutil.rmtree(tmp_path / "tensorboard")
    with pytest.raises(FileNotFoundError, match="tfevents"):
        at_tracker.log(1, {"loss": 0.5})
    at_tracker.end("interrupted", {})


@pytest.mark.slow
def test_steps_that_a_full_disk_kept_from_an_offline_file_are_an_error_and_are_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_tracker = begun("wandb", tmp_path)
    for step in range(3):
        at_tracker.log(step, {"loss": 1.0})
    monkeypatch.setattr(wandb, "WRITTEN_WITHIN_S", 0.2)
    finish = at_tracker._run.finish

    def finish_on_a_full_disk(exit_code: int) -> None:
        finish(exit_code=exit_code)
        (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
        while len(logged(tmp_path / "wandb")[1]) < 3:  # the library's own process writes it
            time.sleep(0.01)
        while len(logged(tmp_path / "wandb")[1]) > 1:
            os.truncate(file, file.stat().st_size - 20)

    monkeypatch.setattr(at_tracker._run, "finish", finish_on_a_full_disk)
    with pytest.raises(OSError, match="it lacks the steps from 1 to 2"):
        at_tracker.end("finished", {})
    again = begun("wandb", tmp_path)
    assert again.last_step == 0
    again.end("interrupted", {})


@pytest.mark.slow
def test_a_run_whose_process_is_killed_leaves_every_evaluation_once(tmp_path: Path) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason='needs pip install "seedbus[track]"'
    )
    pytest.importorskip("wandb", reason='needs pip install "seedbus[track]"')
    folder = tmp_path / "run"
    what = ["quickstart", "--set", "stop.rounds=300", "--set", "evaluation.every=1", "--out", str(folder)]
    order, track = [str(warm() / "seedbus"), "run"], ["--track", "tensorboard", "--track", "wandb", "-q"]

    def steps() -> list[int]:
        if not (folder / "tensorboard").is_dir():
            return []
        events = accumulators.EventAccumulator(str(folder / "tensorboard"), {"scalars": 0}).Reload()
        return [each.step for each in events.Scalars("loss")] if "loss" in events.Tags()["scalars"] else []

    started = subprocess.Popen([*order, *what, *track], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: started.poll() is not None or len(steps()) > 10)
        assert started.poll() is None
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()

    assert 10 < len(steps()) < 301
    subprocess.run([*order, "--resume", str(folder), *track], check=True, stdout=subprocess.DEVNULL)
    assert steps() == [*range(301)]
    assert [row["_step"] for row in logged(folder / "wandb")[1]] == [*range(301)], "it had most of them in memory alone"


def test_a_link_in_a_foreign_folder_leads_mlflow_to_no_file_of_the_user(tmp_path: Path) -> None:
    own, folder = tmp_path / "own", tmp_path / "mlruns"
    own.write_text("precious")
    folder.mkdir()
    (folder / ".lock").symlink_to(own)
    with pytest.raises(WrongFileType), mlflow._alone(folder):
        pass
    assert own.read_text() == "precious"
