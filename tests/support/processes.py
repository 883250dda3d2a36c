"""Starting, finding and killing processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from warm_command import command_of, warm

HANGS_S = 600.0
"""What has not happened by then never will, however busy the machine is. Nothing but a hang depends on it."""


def seedbus(
    *arguments: object, within: Sequence[str] = (), cold: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """Start the command in a session of its own.

    Args:
        arguments: the command's.
        within: the command that runs it.
        cold: it imports everything itself, which takes seconds. Else it is a fork of a process that has (see
            `warm_command`), unless it runs within another command or in an environment of its own.
        options: of `Popen`.
    """
    is_cold = cold or within or "env" in options
    own = [sys.executable, "-m", "seedbus"] if is_cold else [str(warm() / "seedbus")]
    command = [*within, *own, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **(pipes | options))


def workers_of(pid: int) -> list[int]:
    """Return the pids of the live worker processes that a process has started."""
    workers = []
    for task in Path(f"/proc/{command_of(pid)}/task").glob("*/children"):
        with suppress(OSError):
            workers += [int(child) for child in task.read_text().split() if _is_worker(child)]
    return workers


def started_by(pid: int) -> list[int]:
    """Return the pids of a process and of all that it has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(each for task in tasks for child in task.read_text().split() for each in started_by(int(child)))]


def _is_worker(pid: str) -> bool:
    with suppress(OSError):
        return b"--parent-pipe" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + HANGS_S
    while not condition():
        assert time.monotonic() < until, f"the condition did not hold within {HANGS_S:.0f} s"
        time.sleep(0.01)


def logged(folder: Path, event: str = "round") -> int:
    """Return how many events of a kind the log of a run tells of; 0 before there is one."""
    log = folder / "log.jsonl"
    return log.read_text().count(f'"event": "{event}"') if log.exists() else 0


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, or to the command that it runs; once that has ended, it has no file and port."""
    with suppress(ProcessLookupError):
        os.kill(command_of(pid), number)
