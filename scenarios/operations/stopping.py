"""Ask the process that writes a run to stop after the round in progress."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.holder import Holder, holder
from seedbus.bus.clock import wall_seconds
from seedbus.bus.text import counted
from seedbus.scenarios.operations.run_state import RunState, State, state_of
from seedbus.scenarios.run_folder import resuming

LOOK_S = 0.05


def stop(folder: Path, wait_s: float) -> RunState:
    """Ask the process that writes a run to stop after the round in progress, and wait until it has.

    The request is a signal to the process that holds the run's lock, as the system names it, and to no other: where the
    system has descriptors of processes, not even to one that gets the same number in this moment.

    Args:
        folder: the run's folder.
        wait_s: how long to wait.

    Returns:
        The run's state then; it is still running if the wait was not long enough.

    Raises:
        RunFolderError: no process writes the run, or it cannot be asked.
    """
    run = state_of(folder)
    if run.process is None:
        raise RunFolderError(folder, _not_running(run))
    _ask(folder, run.process)
    until_s = wall_seconds() + wait_s
    while _holder(folder) == run.process and wall_seconds() < until_s:
        threading.Event().wait(LOOK_S)
    return state_of(folder)


def _ask(folder: Path, process: Holder) -> None:
    if not process.pid:
        raise RunFolderError(folder, "it runs on another machine or in another container; stop it there")
    if not process.listens:
        what = f"process {process.pid} runs it as a part of another program, and takes no requests; stop that program"
        raise RunFolderError(folder, what)
    try:
        with _send(process.pid) as send:
            if _holder(folder) == process:  # else it has just ended
                send(signal.SIGUSR1)
    except ProcessLookupError:
        return
    except PermissionError:
        raise RunFolderError(folder, f"it is run by process {process.pid} of another user, who may stop it") from None


@contextmanager
def _send(pid: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that sends a signal to the process that has this number now."""
    if not hasattr(os, "pidfd_open"):
        yield lambda number: os.kill(pid, number)
        return
    process = os.pidfd_open(pid)
    try:
        yield lambda number: signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def _holder(folder: Path) -> Holder | None:
    try:
        return holder(folder)
    except OSError as error:
        raise RunFolderError(folder, error.strerror or str(error)) from None


def _not_running(run: RunState) -> str:
    if run.state is State.DAMAGED:
        return f"it is not running, and is damaged: {run.what}"
    if run.state is State.STOPPED:
        return f"it is not running; it was stopped after {counted(run.rounds, 'round')} (`{resuming(run.folder)}`)"
    return f"it is not running; it has ended: {run.what}"
