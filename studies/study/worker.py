"""A process that makes runs for others: `python -m seedbus.studies.study.worker FOLDER SECONDS PLUGIN…`, see `pool`.

It reads jobs from its standard input and answers on its standard output, an object of JSON a line. When its input ends,
it stops the run in progress, removes FOLDER, where temporary files are, and ends after SECONDS at the latest. Runs are
durable round by round, so it may also be killed at any moment.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from seedbus.agents.client.client_state import bytes_of_a_client
from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import MOST_ROUNDS
from seedbus.algorithms.directions import set_threads
from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import check_folder, temporary_folder
from seedbus.models.device import device_text, devices_of
from seedbus.models.numeric_state import numeric_state
from seedbus.models.task import SPLITS, Task
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Interrupted, ScenarioError
from seedbus.scenarios.reporting.results import Results, strict
from seedbus.scenarios.run_folder import MEMORY, scenario_of, writable
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.plugins import load_plugins, plugin_line
from seedbus.scenarios.tracking.tracker import Tracker, usable
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.transports import worker_transport
from seedbus.studies.analysis.quantities import quantities, served_metric
from seedbus.studies.study.membership import Membership
from seedbus.studies.study.store import StoredRun

Answer = Callable[[dict[str, Any]], None]
Work = Callable[[dict[str, Any], Answer], dict[str, Any]]
EVERY_S = 0.1  # between two answers about rounds
TRIAL_S = 0.5  # seconds of rounds after which a trial's speed is believed
COLD_S = 10.0  # a first trial that is shorter only warms up


class _Rounds(NullObserver):
    """Answers how many rounds a run has closed, and keeps what is noted of trackers."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._next_s = 0.0
        self.notes: list[str] = []

    def noted(self, event: str, **facts: Any) -> None:
        if event == "untracked":
            self.notes.append(facts["what"])

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if wall_seconds() >= self._next_s:
            self._next_s = wall_seconds() + EVERY_S
            self._answer({"rounds": closed.round + 1})


def make_run(job: dict[str, Any], answer: Answer, task: Task | None = None) -> dict[str, Any]:
    """Make a run, or go on with it, and measure its final model.

    Args:
        job: `scenario`, `folder`, and the `parts` to measure, see `Ask`; `launch` (see `_placement`) and `track` (see
            `_trackers`), or None; `shorter`, the folder of a run that this one may begin as a copy of, or None.
        answer: is given the number of closed rounds now and then.
        task: what the run trains, if only this process has it; None: its scenario says it.

    Returns:
        `measured`: see `store.Measured`; `notes`: why trackers are told no more.
    """
    from seedbus.scenarios.running.run import run

    folder, trackers, rounds = Path(job["folder"]), _trackers(job["track"]), _Rounds(answer)
    with writable(folder):
        check_folder(folder)
    fields = {name: value for name, value in job["scenario"].items() if task is None or name != "task"}
    stored = StoredRun(validate(fields, str(folder), needs_task=task is None).with_task(task), folder)
    if job.get("shorter") is not None and not stored.has_begun:
        place = _placement(job["launch"], stored.scenario.transport)
        devices = devices_of("") if place is None else place.used_devices
        stored.begin_with(Path(job["shorter"]), device_text(devices))
    has_begun = stored.has_begun
    # another study may have begun it under another name
    scenario = scenario_of(folder).with_task(task) if has_begun else stored.scenario
    stored.check(scenario)
    if trackers or not stored.is_finished:  # trackers are told what they lack of a finished run too
        placement = _placement(job["launch"], scenario.transport)
        if task is None:
            stored.check_files()
        # of hundreds of runs nobody reads the pages; `seedbus report` writes one
        run(scenario, folder, resume=has_begun, observer=rounds, placement=placement, track=trackers, page=False)
    return {"measured": _measured(folder, job["parts"], task), "notes": rounds.notes}


class _Pace(NullObserver):
    """Notes how long the last evaluation took, after which nothing else was left to do."""

    def __init__(self) -> None:
        self._closed_s = self._measured_s = 0.0

    @property
    def evaluation_s(self) -> float:
        return max(0.0, self._measured_s - self._closed_s) if self._closed_s else 0.0

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        self._closed_s = wall_seconds()

    def measured(self, line: dict[str, Any]) -> None:
        self._measured_s = wall_seconds()


def try_out(job: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """Run a scenario's first rounds in a folder that is thrown away.

    Returns:
        `start_s`: seconds before the first round; `round_s`: seconds of a round, but for evaluations; `evaluation_s`:
        of an evaluation; `round_bytes`: bytes of a round; `remembered`: bytes of what a client remembers; `parts`:
        `foreseen.Takes` of the job's `parts`.
    """
    from seedbus.scenarios.running.run import run
    from seedbus.studies.analysis.foreseen import foreseen

    most, count, is_first = job["scenario"]["stop"]["rounds"] or MOST_ROUNDS, 1, True
    while True:
        count = min(count, most)
        began_s = wall_seconds()
        with temporary_folder() as folder:
            evaluation = job["scenario"]["evaluation"] | {"every": count}
            short = job["scenario"] | {"stop": {"rounds": count}, "expect": {}, "evaluation": evaluation}
            pace = _Pace()
            summary = run(validate(short, "a trial"), folder / "run", observer=pace, page=False).summary
            wall_s = summary["wall_s"]
            rounds_s = max(0.0, wall_s - 2 * pace.evaluation_s)
            is_cold, is_first = is_first and wall_s < COLD_S, False  # libraries may have been loaded meanwhile
            if not is_cold and (rounds_s >= TRIAL_S or wall_s >= COLD_S or count == most):
                start_s = wall_seconds() - began_s - wall_s
                rounds = max(1, summary["rounds"])  # training may have diverged
                return {
                    "start_s": start_s,
                    "round_s": rounds_s / rounds,
                    "evaluation_s": pace.evaluation_s,
                    "round_bytes": summary["traffic"]["bytes"] / rounds,
                    "remembered": bytes_of_a_client(folder / "run" / MEMORY),
                    "parts": foreseen(folder / "run", job["parts"]),
                }
        count *= 4


def _placement(launch: dict[str, Any] | None, transport: str) -> Placement | None:
    """Return where the clients of a run are.

    Args:
        launch: `launcher`, the launcher's name with its fields, the `workers` of each run, and its `patience_s`; None:
            in this process.
        transport: the scenario's.
    """
    if launch is None:
        return None
    from seedbus.scenarios.launchers.named import launcher_of

    options = dict(launch["launcher"])
    launcher = launcher_of(options.pop("launcher"), options)
    devices = devices_of(
        "", launch["workers"], are_here=not launcher.reaches_nodes
    )  # of SEEDBUS_DEVICE, as without workers
    name = worker_transport(transport, launcher.reaches_nodes)
    return Placement(name, launch["workers"], patience_s=launch["patience_s"], devices=devices, launcher=launcher)


def _trackers(track: dict[str, Any] | None) -> list[Tracker]:
    """Return the trackers of a run.

    Args:
        track: `trackers`, their names, and the `folder`, `name` and `tags` of a `Membership`; None: there are none.
    """
    if track is None:
        return []
    of = {name: track[name] for name in ("folder", "name", "tags")}
    return [Membership(tracker=each.tracker, told=each, **of) for each in usable(track["trackers"])]


@numeric_state()
def _measured(folder: Path, parts: list[str], task: Task | None) -> dict[str, Any]:
    splits = [part for part in parts if part in SPLITS]
    instruments = {part: part.partition(":")[::2] for part in parts if part not in SPLITS}
    found: dict[str, Any] = {}
    if splits:
        from seedbus.scenarios.running.replay import replay

        final = replay(folder, Results.read(folder).summary["rounds"], task=task)
        found = {split: strict(final.problem.evaluate(final.point, split)) for split in splits}
    if instruments:
        from seedbus.studies.analysis.analyse import analyse
        from seedbus.studies.analysis.curvature import Effort

        metric = served_metric(scenario_of(folder).task, next((of for _, of in instruments.values() if of), None))
        findings = analyse(
            folder,
            only=[name for name, _ in instruments.values()],
            effort=Effort(metric=metric),
            task=task,
            page=False,
        )
        facts = {finding.name: finding.facts for finding in findings}
        found |= {part: quantities(name, facts[name]) for part, (name, _) in instruments.items()}
    return found


def measure_rates(job: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """Return the fields of `rates.Rates`, measured in this process."""
    from seedbus.studies.study.rates import measured

    return measured()._asdict()


def stress(job: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """Examine a random scenario. Returns `verdict`: the fields of `stress.Verdict`."""
    from seedbus.studies.stress.stress import examine

    return {"verdict": asdict(examine(job["seed"], until_s=job["until_s"]))}


JOBS: dict[str, Work] = {"run": make_run, "trial": try_out, "rates": measure_rates, "stress": stress}


def done(job: dict[str, Any], answer: Answer, work: Work | None = None) -> dict[str, Any]:
    """Return the last answer to a job: `is_done`, or what `failed`; work: does it, in place of what its `do` names.

    Raises:
        Interrupted: on Ctrl-C.
    """
    try:
        return {"is_done": True} | (work or JOBS[job["do"]])(job, answer)
    except (Exception, SystemExit) as error:
        if exit_code(error) is None:
            return {"failed": plugin_line(error) or traceback.format_exc()}
        return {"failed": "; ".join(error.sentences if isinstance(error, ScenarioError) else [str(error)])}


def main() -> None:
    """Answer jobs until standard input ends."""
    folder, seconds, *plugins = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is inherited, and may be ignored
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else may be written on the channel, as by a plug-in that prints
    tempfile.tempdir = folder
    load_plugins(plugins)
    set_threads(1)  # the study's other processes use the other cores
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    is_over = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line)
        is_over.set()
        # the study is over, perhaps in the middle of a run; a signal to the thread also ends a wait in a system call
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        threading.Event().wait(float(seconds))
        end()

    def answer(facts: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the study's process has ended; `listen` ends this one
            channel.write(json.dumps(facts) + "\n")
            channel.flush()

    def end() -> NoReturn:
        if is_over.is_set():  # a signal may have ended this process alone
            shutil.rmtree(folder, ignore_errors=True)  # the study's process may have been killed
        os._exit(0)

    with suppress(KeyboardInterrupt):
        threading.Thread(target=listen, name="stdin", daemon=True).start()
        while not is_over.is_set():
            try:
                last = done(json.loads(jobs.get()), answer)
            except Interrupted:  # where nobody reads this answer the study was stopped; else only this run
                last = {"failed": "it was stopped; every closed round is kept, and the same study goes on with it"}
            answer(last)
    end()


if __name__ == "__main__":
    main()
