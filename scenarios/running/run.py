"""Run a scenario: prepare, execute, report."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seedbus.agents.monitor import Monitor
from seedbus.agents.observer import NullObserver, Observer
from seedbus.bus.clock import cpu_seconds, wall_seconds
from seedbus.models.device import HOST, devices_of, on_device
from seedbus.models.numeric_state import numeric_state
from seedbus.models.task import Problem, Task
from seedbus.scenarios.errors import ScenarioError, check_methods, not_accepted, path_of
from seedbus.scenarios.reporting.progress import in_notebook, watching
from seedbus.scenarios.reporting.run_report import Process, judge_again, report
from seedbus.scenarios.run_folder import RESULTS, check_place, refuse_another, scenario_of
from seedbus.scenarios.running.as_run import OtherRun
from seedbus.scenarios.running.execute import execute
from seedbus.scenarios.running.gpu_admission import turn_of_one_process
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.open_run import opened
from seedbus.scenarios.running.prepare import prepare
from seedbus.scenarios.running.results import Results
from seedbus.scenarios.running.tracking import track_again, tracked
from seedbus.scenarios.schema.loading import listed, load, refuse_of_task, with_settings
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.tracking.tracker import Tracker, usable
from seedbus.scenarios.transports.placement import Placement


@numeric_state()
def run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    task: Task | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    resume: bool = False,
    observer: Observer | None = None,
    progress: bool | None = None,
    placement: Placement | None = None,
    problem: Problem | None = None,
    device: str | None = None,
    monitor: Monitor | None = None,
    track: str | Tracker | Sequence[str | Tracker] = (),
    page: bool = True,
    log: Literal["messages"] | None = None,
    as_run: str | Path | None = None,
) -> Results:
    """Run a scenario to its end and return its results.

    A finished run is not run again: with `resume`, its results are compared with this scenario's expectations. If the
    scenario has more rounds than it, or more time by the run's clock, the run goes on, and ends as if it had not ended
    before. In a notebook, where an asyncio loop is running already, the run gets a loop of its own. Settings of NumPy
    and torch, such as a default dtype, do not change its bits, and are afterwards as they were.

    Args:
        scenario: what to run; a file, a name of the library or a mapping of fields is loaded first.
        out: the run's folder; None: the first free one of runs/NAME-1, runs/NAME-2, …
        task: what is trained, in the place of the scenario's task; None: that one.
        settings: fields of the scenario that are changed for this run, as by `--set`: a mapping from fields, such as
            "stop.rounds", to values, or `field=value` entries.
        resume: continue the run in `out`.
        observer: is told of rounds, measurements and refusals; None: as `progress` says.
        progress: show the progress of the run; None: in a notebook only.
        placement: where the clients are; None: in this process.
        problem: stands for the scenario's task with its data, as in a rehearsal; None: they are loaded.
        device: where networks and vectors lie, such as "cuda" (see `models.device`); None: as the placement says.
        monitor: takes readings of the run's server; None: nobody does.
        track: the trackers that are told of the run, by name or as objects, such as "tensorboard".
        page: write `report.html`, 5 MB, as `seedbus report` does at any time.
        log: "messages": `log.jsonl` has a line for each message too; None: it has none.
        as_run: the folder of a run of this scenario, of which this is a rehearsal: its journal says whom rounds ask,
            which reports count, and how many rounds there are; None: this run decides for itself.

    Raises:
        ScenarioError, DataError, BadEndpoint, TooFewFiles: the scenario cannot run here as it is.
        RunFolderError, JournalDamaged: the folder cannot be used.
        Unfinishable, WorkerFailed: the run cannot go on; every closed round is kept.
        Interrupted: on Ctrl-C; every closed round is kept.
        Differs: a rehearsal is not as the run that it is of; its folder is kept.
    """
    if log not in (None, "messages"):
        raise not_accepted(log, "log", '"messages" or None')
    trackers = usable([track] if isinstance(track, str | Tracker) else track)
    for name, given, protocol in (
        ("observer", observer, Observer),
        ("monitor", monitor, Monitor),
        ("problem", problem, Problem),
    ):
        if given is not None:
            check_methods(given, protocol, name)
    settings = listed(settings)
    if task is not None:
        refuse_of_task(settings)
    loaded = with_settings(scenario, settings) if isinstance(scenario, Scenario) else load(scenario, settings)
    scenario = loaded.with_task(task)
    if not scenario.has_task:
        missing = "task: this field is required (the model and its data); it may also be given as run(…, task=…)"
        raise ScenarioError(scenario.name, [missing])
    if out is not None:
        out = path_of(out, "out", "the folder of the run")
        check_place(out, is_new=not resume)
    if resume and as_run is not None:
        raise ScenarioError(f"--as {as_run}", ["a rehearsal is not resumed; expected a new one, without --resume"])
    if resume and (finished := _finished(scenario, out)) is not None:
        track_again(trackers, scenario, finished, observer or NullObserver())
        return finished
    other = None if as_run is None else OtherRun.read(path_of(as_run, "as_run", "the folder of a run"), scenario)
    placement = placement or Placement(scenario.transport, devices=devices_of("") if device is None else (device,))
    if not isinstance(placement, Placement):
        raise ScenarioError("placement", [f"{placement!r} is not accepted; expected a Placement"])
    if device is not None:
        placement = replace(placement, devices=(device,))
    shows = in_notebook() if progress is None else progress
    watched = watching(scenario) if observer is None and shows else nullcontext(observer or NullObserver())
    device = placement.own_device
    shares_gpu = placement.is_here and scenario.has_server
    with (
        watched as watcher,
        memory_hints(scenario, device),
        on_device(device),
        turn_of_one_process(device if shares_gpu else HOST, watcher.noted) as measure,
    ):
        # data is loaded before the folder is created, so that a scenario that cannot run leaves no folder
        prepared = prepare(scenario, placement, watcher.noted, problem)
        if other is not None:
            prepared = other.rehearsed(prepared)
        with (
            opened(prepared, out, resume, watcher) as running,
            tracked(trackers, scenario, running) as tracking,
            _own_loop(),
        ):
            wall_s, cpu_s = wall_seconds(), cpu_seconds()
            outcome = execute(prepared, running, measure, monitor, logs_messages=log is not None)
            running.recorder.sync()
            results = report(
                scenario,
                running.folder,
                running.given,
                running.journal,
                outcome,
                Process(wall_seconds() - wall_s, cpu_seconds() - cpu_s, running.was_resumed),
                has_page=page,
                client_names=prepared.client_names,
            )
            tracking.end("finished", results)
            if other is not None:
                other.compare(running.given, running.journal)
            return Results.of(results, scenario.task)


def _finished(scenario: Scenario, out: str | Path | None) -> Results | None:
    """Return the results of the run that is to go on; None if it is not over. Raises `ScenarioError`: it is another."""
    if out is None:
        raise ScenarioError("resume", ["out is missing; expected the folder of the run to go on with"])
    folder = Path(out)
    before = scenario_of(folder)
    refuse_another(scenario, before, folder, of_other_length=scenario.has_server)
    is_over = (folder / RESULTS).exists() and scenario.stop == before.stop
    return Results.of(judge_again(Results.read(folder), scenario), scenario.task) if is_over else None


@contextmanager
def _own_loop() -> Iterator[None]:
    """Let a run start its own loop in a thread where one is already running, as in a notebook; the outer loop waits."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    before = signal.getsignal(signal.SIGINT)
    # the handlers of asyncio.run and of a notebook's cells that await only cancel the outer task, which waits for this
    # run; the run's own loop needs the default
    module = getattr(before.func if isinstance(before, partial) else before, "__module__", None) or ""
    is_theirs = module == "asyncio.runners" or module.startswith("ipykernel.")
    is_taken = outer is not None and is_theirs and threading.current_thread() is threading.main_thread()
    if is_taken:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if is_taken:
            signal.signal(signal.SIGINT, before)
        asyncio._set_running_loop(outer)
