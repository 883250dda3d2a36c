"""The folder of a run while it runs: its journal, its log and its measurements."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbus.agents.errors import NotStarted, RunFolderError, StopRequested
from seedbus.agents.journal.holder import held
from seedbus.agents.journal.journal import Journal
from seedbus.agents.observer import Observer
from seedbus.agents.stop_request import StopRequest
from seedbus.bus.errors import BadEndpoint, BadKey, TooFewFiles
from seedbus.models.device import device_text
from seedbus.scenarios.errors import Interrupted, WorkerFailed
from seedbus.scenarios.run_folder import journal_in, lost_rounds, next_folder, resuming, writable
from seedbus.scenarios.running.prepare import Prepared, build_of
from seedbus.scenarios.running.recording import Recorder
from seedbus.versions import version

REHEARSES = "rehearses"
"""The name of the fact in a rehearsal's journal that says which run it is of."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run's folder, open for writing.

    Attributes:
        folder: its absolute path: the program may change its working directory during the run.
        given: the folder as it was given.
        recorder: writes the log and the measurements, and passes them on.
        lines: the measurements that it had before.
        was_resumed: whether the run had closed rounds before.
        stop: asks the run to stop after the round in progress.
    """

    folder: Path
    given: Path
    journal: Journal
    recorder: Recorder
    lines: Sequence[dict[str, Any]]
    was_resumed: bool
    stop: StopRequest


def _journal(folder: Path, prepared: Prepared, resume: bool) -> Journal:
    placement = prepared.placement
    scenario, problem = prepared.scenario, prepared.problem
    build = {"seedbus": version("seedbus")} if problem is None else build_of(scenario, problem)
    build |= {} if REHEARSES in prepared.files else {REHEARSES: "nothing"}
    device, other_device = device_text(placement.used_devices), placement.other_device
    return journal_in(
        folder, scenario, prepared.files, resume=resume, build=build, device=device, other_device=other_device
    )


@contextmanager
def opened(prepared: Prepared, out: str | Path | None, resume: bool, observer: Observer) -> Iterator[OpenRun]:
    """Create a run's folder, or open an existing one.

    A new folder is removed again if the run could not begin. Ctrl-C, and a request to stop, become `Interrupted`.

    Args:
        prepared: the checked scenario with its data.
        out: the run's folder; None: the first free one of runs/NAME-1, runs/NAME-2, …
        resume: whether to continue the run in `out`.
        observer: receives everything that the recorder records.

    Raises:
        RunFolderError, JournalDamaged: the folder cannot be used.
        Interrupted: on Ctrl-C or a request to stop; every closed round is kept.
    """
    scenario = prepared.scenario
    given = Path(out) if out is not None else next_folder(scenario.name)
    folder = given.absolute()
    is_unused = False
    losses = lost_rounds(given, scenario) if resume else {}
    try:
        with closing(_journal(given, prepared, resume)) as journal:
            try:
                checkpoint = journal.checkpoint()  # a damaged one is refused before anything is written
                lines = checkpoint.metrics if checkpoint is not None else journal.metrics()
                stop = StopRequest()
                opens = 0 if checkpoint is None else checkpoint.last.round + 1
                run_id = journal.run_id.hex()
                with (
                    writable(given),
                    closing(Recorder(folder, lines, observer, run=run_id, round=opens)) as recorder,
                    stop.by_signal() as listens,
                    held(folder, listens=listens),
                ):
                    recorder.opened()
                    for event, what in losses.items():
                        recorder.noted(event, what=what)
                    if resume:
                        _end_left(folder, run_id, recorder)
                    yield OpenRun(folder, given, journal, recorder, lines, checkpoint is not None, stop)
            except (KeyboardInterrupt, StopRequested):
                raise Interrupted(given, f"`{resuming(given, scenario)}`, or as it was started") from None
            except RunFolderError as error:
                if not _is_full(error.__context__):
                    raise
                resumes = "every closed round is kept, and the run can be resumed (--resume) once there is room"
                raise RunFolderError(error.path, f"{error.what}; {resumes}") from None
            except (BadEndpoint, BadKey, TooFewFiles, WorkerFailed, NotStarted):
                is_unused = not resume and journal.checkpoint() is None
                raise
    finally:
        if is_unused:
            _remove(folder, is_named=out is not None)


def _remove(folder: Path, *, is_named: bool) -> None:
    """Remove the folder of a run that could not begin, and the folder of all runs if nothing is left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if not is_named:
        with suppress(OSError):  # it holds other runs
            folder.parent.rmdir()


def _end_left(folder: Path, run: str, observer: Observer) -> None:
    """End what the process that ran it before has left on a cluster if it was killed."""
    from seedbus.scenarios.launchers.named import end_left  # a new run needs no launchers

    end_left(folder, run, observer.noted)


def _is_full(error: BaseException | None) -> bool:
    """Whether an error says that there is no room on a disk, or that the user's share of it is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
