"""Processes of followers that a run's own process starts, watches and ends.

What a worker must keep to itself reaches it by the pipe that is its standard input: one line of JSON, first of all. Its
end is the worker's parent_pipe: when this process ends, however it ends, so does the worker.
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
from seedbus.scenarios.errors import WorkerFailed

DEATHS = 5  # of one worker in a row, without a round between them, that are put up with
LEASH_S = 0.7  # from the end of the leash to the end of a worker
START_S = 10.0  # patience that a worker has at least: it connects before there is anybody to answer
_OWN_WORDS = 20  # exit codes below this come with a sentence of the worker's own


class Workers:
    """Worker processes: started, watched, and started again should one die; they end when this process does.

    hosted: what each is to host, as options of `seedbus client`; memory: the folder of what clients remember; identity:
    the keys that the server asks for, if it asks for some.
    """

    def __init__(
        self,
        hosted: Sequence[Sequence[str]],
        endpoint: str,
        observer: Observer,
        *,
        patience_s: float,
        memory: Path | None,
        identity: Identity | None,
    ) -> None:
        self._hosted, self._endpoint, self._observer, self._patience_s = hosted, endpoint, observer, patience_s
        self._memory = [] if memory is None else ["--memory", str(memory)]
        self._secrets = json.dumps({} if identity is None else identity.packed()).encode() + b"\n"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths, self._rounds = [0] * len(hosted), 0
        self._ended: deque[tuple[int, int]] = deque()
        self._failure: Exception | None = None
        self._is_closing = threading.Event()
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), name="watcher", daemon=True)
            for number in range(len(hosted))
        ]

    def start(self) -> None:
        """Start them all. Raises `Unfinishable`; whatever happens, `close` ends those that were started."""
        for number, watcher in enumerate(self._watchers):
            self._children[number] = self._spawn(number)
            watcher.start()

    def check(self, registration: Registration) -> None:
        while self._ended:
            number, code = self._ended.popleft()
            self._observer.noted("worker", number=number, ended=code)
        if self._failure is not None:
            raise self._failure
        if registration.rounds_closed > self._rounds:
            self._rounds, self._deaths = registration.rounds_closed, [0] * len(self._deaths)

    def close(self) -> None:
        """They have been told that the run is over; who has not heard loses its leash."""
        self._is_closing.set()
        for child in self._children.values():
            _let_go(child)
        until = wall_seconds() + LEASH_S
        watchers = [watcher for watcher in self._watchers if watcher.ident is not None]
        for watcher in watchers:
            watcher.join(max(0.0, until - wall_seconds()))
        for child in self._children.values():
            child.kill()  # who is loading yet does not hear; for the others it is too late to mean anything
        for watcher in watchers:
            watcher.join()

    def _watch(self, number: int) -> None:
        """Wait for the end of a worker, and start another in its place if it was not the run's."""
        while (code := self._children[number].wait()) and not self._is_closing.is_set():
            self._deaths[number] += 1
            if 0 < code < _OWN_WORDS or self._deaths[number] > DEATHS:
                self._failure = WorkerFailed(number, code)
                return
            self._ended.append((number, code))
            _let_go(self._children[number])
            try:
                self._children[number] = self._spawn(number)
            except Unfinishable as error:
                self._failure = error
                return

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "seedbus", "client", "--connect", self._endpoint, "--parent-pipe", "--quiet"]
        command += [*self._hosted[number], "--patience", str(max(self._patience_s, START_S)), *self._memory]
        # a session of its own: Ctrl-C is for this process, which then tells its workers
        try:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise Unfinishable(f"worker {number} cannot be started ({error.strerror})") from None
        _tell(child, self._secrets)
        return child


def _tell(child: subprocess.Popen[bytes], line: bytes) -> None:
    """Hand a worker what nobody else may see; a pipe holds far more than that."""
    if child.stdin is not None:
        with suppress(OSError):  # it has ended already, which its watcher will find
            child.stdin.write(line)
            child.stdin.flush()


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a worker, which ends the worker too."""
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
