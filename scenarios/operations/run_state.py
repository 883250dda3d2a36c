"""The runs in a folder and the state of each, read from their files. Nothing is written, and no run waits for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.holder import Holder, holder
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Glance
from seedbus.agents.server.state import ServerState
from seedbus.bus.files import check_file
from seedbus.bus.records import record
from seedbus.scenarios.operations.log_follower import LogFollower, number
from seedbus.scenarios.reporting.remaining_time import rounds_within
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import RESULTS
from seedbus.scenarios.running.recording import LOG


class State(StrEnum):
    """What has become of a run.

    Attributes:
        RUNNING: a process writes it.
        STOPPED: no process writes it, and it can be resumed.
        FINISHED: it has its results.
        DIVERGED: it has its results, and replicas differed from the evaluator's.
        TRAINING_DIVERGED: it has its results, and ended early because training diverged.
        DAMAGED: its files cannot be read, or durable rounds are lost.
    """

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    DIVERGED = "diverged"
    TRAINING_DIVERGED = "training-diverged"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RunState:
    """One run.

    Attributes:
        folder: its folder.
        state: what has become of it.
        scenario: its scenario's name.
        algorithm: its algorithm's name.
        rounds: number of closed rounds.
        last_round: number of rounds after which it ends at the latest; 0 if that is not known.
        expected_rounds: number of rounds that it will have had at its end if it goes on as before; 0: not known.
        version: the newest version of the model.
        line: the last measurement.
        bytes: bytes of the algorithm so far.
        changed_s: when its files changed last, in seconds since 1970.
        process: the process that writes it.
        what: what is wrong with it, or why it ended; "": nothing is known.
        refusals: reason → number of refused messages, as of the last closed round.
        glance: its journal, if the run is not finished.
    """

    folder: Path
    state: State
    scenario: str = ""
    algorithm: str = ""
    rounds: int = 0
    last_round: int = 0
    expected_rounds: int = 0
    version: int = 0
    line: Mapping[str, Any] = field(default_factory=dict)
    bytes: int = 0
    changed_s: float = 0.0
    process: Holder | None = None
    what: str = ""
    refusals: Mapping[str, int] = field(default_factory=dict)
    glance: Glance | None = None

    def packed(self) -> dict[str, Any]:
        """Return what `--format json` prints."""
        return {
            "run": str(self.folder),
            "state": self.state.value,
            "scenario": self.scenario,
            "algorithm": self.algorithm,
            "rounds": self.rounds,
            "last_round": self.last_round or None,
            "version": self.version,
            "metrics": dict(self.line),
            "bytes": self.bytes,
            "changed_s": self.changed_s,
            "pid": self.process.pid if self.process is not None else None,
            "what": self.what,
        }


def runs_in(folder: Path) -> list[RunState]:
    """Return the runs in a folder, or the one whose folder it is, the newest first.

    Raises:
        RunFolderError: the folder cannot be read.
    """
    if is_run(folder):
        return [state_of(folder)]
    try:
        found = [each for each in folder.iterdir() if each.is_dir() and is_run(each)]
    except OSError as error:
        raise RunFolderError(folder, f"it cannot be read ({error.strerror}); expected a folder of runs") from None
    return sorted(map(state_of, found), key=lambda run: (-run.changed_s, run.folder))


def is_run(folder: Path) -> bool:
    """Return whether a folder looks like a run's. One into which nobody may look could be one."""
    try:
        return any((folder / name).is_file() for name in (FILE, RESULTS))
    except PermissionError:
        return True
    except OSError:  # a name that is too long
        return False


def state_of(folder: Path, log: LogFollower | None = None) -> RunState:
    """Return the state of the run in a folder.

    Args:
        folder: the run's folder.
        log: follows its log; None: it is read for this call.

    Raises:
        RunFolderError: there is no run in the folder.
    """
    if not is_run(folder):
        raise RunFolderError(folder, f"there is no run here (no {FILE})")
    process, changed_s = None, 0.0
    try:
        files = [folder / name for name in (FILE, LOG, RESULTS)]
        changed_s = max((path.stat().st_mtime for path in files if check_file(path)), default=0.0)
        process = holder(folder)
        if process is None and (folder / RESULTS).exists():
            return _finished(folder, changed_s)
        log = log or LogFollower(folder)
        log.read()
        return _unfinished(folder, changed_s, process, log)
    except (RunFolderError, JournalDamaged) as error:
        what = error.what
    except OSError as error:
        what = error.strerror or str(error)
    return RunState(folder, State.DAMAGED, changed_s=changed_s, process=process, what=what)


def _finished(folder: Path, changed_s: float) -> RunState:
    results = Results.read(folder)
    summary = results.summary
    refusals = {reason: sum(counts.values()) for reason, counts in summary["refusals"].items()}
    ended = State.TRAINING_DIVERGED if results.training_diverged else State.FINISHED
    return RunState(
        folder,
        State.DIVERGED if "diverged" in refusals else ended,
        scenario=summary["scenario"],
        algorithm=_text(summary.get("algorithm")),
        rounds=summary["rounds"],
        version=summary["version"],
        line={name: value for name, value in summary["metrics"].items() if value is not None},
        bytes=summary["traffic"]["up"]["bytes"] + summary["traffic"]["down"]["bytes"],
        changed_s=changed_s,
        what=summary["reason"],
        refusals=refusals,
    )


def _unfinished(folder: Path, changed_s: float, process: Holder | None, log: LogFollower) -> RunState:
    with closing(Journal.open(folder, for_writing=False)) as journal:
        scenario, glance = _scenario(journal.facts().get("scenario", "")), journal.glance()
    last_round, expected = _ends(scenario.get("stop"), log)
    return RunState(
        folder,
        State.STOPPED if process is None else State.RUNNING,
        scenario=_text(scenario.get("name")),
        algorithm=_text(scenario.get("algorithm")),
        rounds=glance.rounds,
        last_round=last_round,
        expected_rounds=expected,
        version=glance.version,
        line=log.line,
        bytes=int(log.sent_bytes),
        changed_s=changed_s,
        process=process,
        refusals=_refusals(folder, glance),
        glance=glance,
    )


def _scenario(text: str) -> dict[str, Any]:
    """Return a scenario as it was stored, unvalidated: it may need what this installation does not have."""
    try:
        scenario = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return scenario if isinstance(scenario, dict) else {}


def _ends(stop: Any, log: LogFollower) -> tuple[int, int]:
    """Return `last_round` and `expected_rounds` of a run with this section `stop`."""
    stop = stop if isinstance(stop, dict) else {}
    rounds, limit_s = int(number(stop, "rounds")) or None, number(stop, "simulated_s") or None
    newest = log.rounds[-1] if log.rounds else {}
    expected = rounds_within(rounds, limit_s, int(number(newest, "round")) + 1, number(newest, "time_s"))
    return rounds or 0, expected or 0


def _text(value: Any) -> str:
    """Return a name, or the name in a section of a scenario; "" if there is none."""
    if isinstance(value, dict):
        value = value.get("name")
    return value if isinstance(value, str) else ""


def _refusals(folder: Path, glance: Glance) -> dict[str, int]:
    counts: dict[str, int] = {}
    try:
        if glance.state is not None:
            for refused in record(ServerState, glance.state).coordinator.refusals:
                counts[refused.reason] = counts.get(refused.reason, 0) + refused.times
    except (TypeError, ValueError) as error:
        raise JournalDamaged(folder / FILE, 0, f"its checkpoint cannot be read ({error})") from None
    return counts
