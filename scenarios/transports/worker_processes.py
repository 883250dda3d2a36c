"""Worker processes that host clients; the run's process starts, watches and ends them.

A worker gets its secrets as one line of JSON through the pipe that is its standard input. When the run's process ends,
for whatever reason, the pipe closes and the worker ends too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seedbus.agents.errors import Unfinishable
from seedbus.agents.observer import Observer
from seedbus.bus import Registration
from seedbus.bus.clock import wall_seconds
from seedbus.bus.zeromq.keys import Identity
from seedbus.discovery import PLUGINS
from seedbus.scenarios.errors import WorkerFailed

MAX_DEATHS = 5  # deaths of one worker in a row, without a closed round between them
PIPE_S = 0.7  # how long a worker may take to end after its pipe has closed
MIN_PATIENCE_S = 10.0  # a worker's patience is at least this: it may connect before the server answers
_EXPLAINED_BELOW = 20  # a worker that ends with a lower exit code has printed the reason itself


class WorkerProcesses:
    """Starts worker processes, restarts those that die, and ends them; they also end when this process ends."""

    def __init__(
        self,
        shares: Sequence[Sequence[str]],
        endpoint: str,
        observer: Observer,
        *,
        patience_s: float,
        memory: Path | None,
        identity: Identity | None,
        devices: Sequence[str],
    ) -> None:
        """Prepare the processes, without starting them.

        Args:
            shares: for each process, the options of `seedbus client` that select what it hosts.
            endpoint: where the processes connect to.
            observer: is told of processes that ended and were restarted.
            patience_s: how long they wait for a server that does not answer.
            memory: the folder for the state that clients keep between rounds; None: the processes keep it.
            identity: the keys that the server requires; None: it requires none.
            devices: where the processes compute; they take them in turn.
        """
        self._devices = devices
        self._shares = shares
        self._endpoint = endpoint
        self._observer = observer
        self._patience_s = patience_s
        self._memory = [] if memory is None else ["--memory", str(memory)]
        self._secrets = json.dumps({} if identity is None else identity.packed()).encode() + b"\n"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths = [0] * len(shares)
        self._rounds = 0
        self._ended: deque[tuple[int, int]] = deque()
        self._failure: Exception | None = None
        self._is_closing = threading.Event()
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), name="watcher", daemon=True)
            for number in range(len(shares))
        ]

    def start(self) -> None:
        """Start all processes. Raises `Unfinishable` if one cannot start; `close` ends those that were started."""
        for number, watcher in enumerate(self._watchers):
            self._children[number] = self._spawn(number)
            watcher.start()

    def check(self, registration: Registration) -> None:
        """Report workers that ended.

        Raises:
            WorkerFailed: one ended with an error of its own, or died more than `MAX_DEATHS` times in a row.
            Unfinishable: one cannot be restarted.
        """
        while self._ended:
            number, code = self._ended.popleft()
            self._observer.noted("worker", number=number, ended=code)
        if self._failure is not None:
            raise self._failure
        if registration.rounds_closed > self._rounds:
            self._rounds = registration.rounds_closed
            self._deaths = [0] * len(self._deaths)

    def close(self) -> None:
        """End the workers that have not ended by themselves at the end of the run."""
        self._is_closing.set()
        for child in self._children.values():
            _close_pipe(child)
        deadline_s = wall_seconds() + PIPE_S
        watchers = [watcher for watcher in self._watchers if watcher.ident is not None]
        for watcher in watchers:
            watcher.join(max(0.0, deadline_s - wall_seconds()))
        for child in self._children.values():
            child.kill()  # a worker that is loading data does not watch its pipe; all others have ended
        for watcher in watchers:
            watcher.join()

    def _watch(self, number: int) -> None:
        """Wait until a worker ends, and start another one in its place unless the run is over."""
        while (code := self._children[number].wait()) and not self._is_closing.is_set():
            self._deaths[number] += 1
            if 0 < code < _EXPLAINED_BELOW or self._deaths[number] > MAX_DEATHS:
                self._failure = WorkerFailed(number, code)
                return
            self._ended.append((number, code))
            _close_pipe(self._children[number])
            try:
                self._children[number] = self._spawn(number)
            except Unfinishable as error:
                self._failure = error
                return

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "seedbus", "client", "--connect", self._endpoint, "--parent-pipe", "--quiet"]
        command += [option for plugin in PLUGINS.values() if plugin.path for option in ("--plugin", plugin.path)]
        command += ["--device", self._devices[number % len(self._devices)]]
        command += [*self._shares[number], "--patience", str(max(self._patience_s, MIN_PATIENCE_S)), *self._memory]
        # a process group of its own: Ctrl-C reaches this process only, which then tells its workers
        try:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise Unfinishable(f"worker {number} cannot be started ({error.strerror})") from None
        _write_line(child, self._secrets)
        return child


def _write_line(child: subprocess.Popen[bytes], line: bytes) -> None:
    """Write a line to a worker's standard input. The line fits into the pipe's buffer, so this does not block."""
    if child.stdin is not None:
        with suppress(OSError):  # it has ended already; its watcher will notice
            child.stdin.write(line)
            child.stdin.flush()


def _close_pipe(child: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a worker, which ends the worker too."""
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
