"""Processes that tests start, find and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def seedbus(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The command, in a session of its own."""
    command = [sys.executable, "-m", "seedbus", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, preexec_fn=hears_ctrl_c, **(pipes | options))


def hears_ctrl_c() -> None:
    """Called in a process before it begins: tests that run in the background ignore Ctrl-C, and so would it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def workers_of(pid: int) -> list[int]:
    """The worker processes that a process has started and that live; it may have other children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in task.read_text().split() if _is_worker(child)]
    return found


def _is_worker(pid: str) -> bool:
    with suppress(OSError):
        return b"--parent-pipe" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_alive(pid: int) -> bool:
    """True unless it is gone, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
