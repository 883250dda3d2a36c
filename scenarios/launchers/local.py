"""Worker processes on this machine.

A worker gets its secrets as one line of JSON through the pipe that is its standard input. When the run's process ends,
for whatever reason, the pipe closes and the worker ends too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Literal

from seedbus.agents.errors import NotStarted
from seedbus.discovery import PLUGINS
from seedbus.scenarios.launchers.launcher import Ended, Launcher, Order, Surroundings, Worker

COMMAND = [sys.executable, "-m", "seedbus", "client", "--parent-pipe"]


class Local(Launcher):
    """Processes of this machine, started by the run's own."""

    reaches_nodes: ClassVar[bool] = False
    grace_s: ClassVar[float] = 0.7

    launcher: Literal["local"] = "local"

    def workers(self, clients: int) -> int:
        return 0  # the clients are in the run's own process

    def start(self, orders: Sequence[Order], run: Surroundings) -> list[Worker]:
        plugins = [option for plugin in PLUGINS.values() if plugin.path for option in ("--plugin", plugin.path)]
        memory = [] if run.memory is None else ["--out", str(run.memory)]
        started: list[Worker] = []
        for order in orders:
            command = [*COMMAND, "--quiet", *order.options, *plugins, *memory]
            # a process group of its own: Ctrl-C reaches this process only, which then tells its workers
            options = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True}
            try:
                process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
            except OSError as error:
                for worker in started:
                    worker.end()
                    worker.kill()
                    worker.wait()
                raise NotStarted(f"worker {order.number} cannot be started ({error.strerror})") from None
            started.append(LocalWorker(process, order.secrets))
        return started


class LocalWorker:
    """A process of this machine, see `Worker`.

    Args:
        process: the process, whose standard input is a pipe.
        secrets: the line that it is sent. The line fits into the pipe's buffer, so this does not block.
    """

    def __init__(self, process: subprocess.Popen[bytes], secrets: bytes) -> None:
        self._process = process
        if process.stdin is not None:
            with suppress(OSError):  # it has ended already; `wait` will tell
                process.stdin.write(secrets)
                process.stdin.flush()

    def wait(self) -> Ended:
        code = self._process.wait()
        self.end()
        return Ended(code)

    def end(self) -> None:
        """Close the pipe, which ends the process."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()  # a worker that is loading data does not watch its pipe
