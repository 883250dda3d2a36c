"""The worker processes of a run, whichever launcher starts them: keys, restarts, and their end."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from seedbus.agents.errors import NotStarted
from seedbus.agents.observer import Observer
from seedbus.bus import Registration
from seedbus.bus.clock import wall_seconds
from seedbus.bus.zeromq.keys import Identity
from seedbus.scenarios.errors import WorkerFailed
from seedbus.scenarios.launchers.launcher import (
    EXPLAINED_BELOW,
    Ended,
    Launcher,
    Order,
    Share,
    Surroundings,
    Worker,
    cause,
)

MAX_DEATHS = 5  # deaths of one worker in a row, without a closed round between them
MIN_PATIENCE_S = 10.0  # a worker's patience is at least this: it may connect before the server answers
START_S = 15.0  # how long `close` waits for a process that is being started


class Keys(Protocol):
    """Makes the keys of worker processes. One key is one process's, and is valid until it is revoked."""

    def issue(self, share: Share) -> Identity | None:
        """Return a new key for a process; None: the server requires none."""
        ...

    def revoke(self, identity: Identity) -> None:
        """Let a key in no more."""
        ...


class WorkerProcesses:
    """Starts worker processes, restarts those that end too early, and ends them; they also end when this process ends.

    Each process that starts gets a key of its own, which is revoked when it has ended.
    """

    def __init__(
        self,
        launcher: Launcher,
        shares: Sequence[Share],
        endpoint: str,
        observer: Observer,
        keys: Keys,
        surroundings: Callable[[Callable[..., None]], Surroundings],
        *,
        patience_s: float,
        devices: Sequence[str],
    ) -> None:
        """Prepare the processes, without starting them.

        Args:
            launcher: starts them.
            shares: what each process hosts.
            endpoint: where the processes connect to.
            observer: is told of processes that ended and were restarted.
            keys: makes their keys.
            surroundings: returns what the launcher needs to know of the run, with the function that takes its notes.
            patience_s: how long they wait for a server that does not answer.
            devices: where the processes compute; they take them in turn.
        """
        self._launcher = launcher
        self._shares = shares
        self._observer = observer
        self._keys = keys
        self._surroundings = surroundings(self._note)
        patience = str(max(patience_s, MIN_PATIENCE_S))
        self._options = ["--connect", endpoint, "--patience", patience, "--device"]
        self._devices = devices
        self._workers: list[Worker] = []
        self._identities: list[Identity | None] = [None] * len(shares)
        self._deaths = [0] * len(shares)
        self._rounds = 0
        self._notes: deque[tuple[str, dict[str, Any]]] = deque()
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._starting = threading.Lock()  # held while processes are started, and while `close` forbids it
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), name="watcher", daemon=True)
            for number in range(len(shares))
        ]

    def start(self) -> None:
        """Start all processes. Raises `NotStarted` if one cannot start; none is left then."""
        self._workers = self._launcher.start(
            [self._order(number) for number in range(len(self._shares))], self._surroundings
        )
        for watcher in self._watchers:
            watcher.start()

    def check(self, registration: Registration) -> None:
        """Report what has happened to workers.

        Raises:
            WorkerFailed: one ended with an error of its own, or died more than `MAX_DEATHS` times in a row.
            NotStarted: one cannot be started again, or waits for what it will never get.
        """
        self._report()
        if self._failure is not None:
            raise self._failure
        if registration.rounds_closed > self._rounds:
            self._rounds = registration.rounds_closed
            self._deaths = [0] * len(self._deaths)

    def close(self) -> None:
        """End the workers that have not ended by themselves at the end of the run, and revoke all keys."""
        self._closing.set()
        watchers = [watcher for watcher in self._watchers if watcher.ident is not None]
        try:
            if self._starting.acquire(timeout=START_S):  # else the launcher's `close` ends what it has begun
                self._starting.release()
            for worker in self._workers:
                worker.end()
            deadline_s = wall_seconds() + self._launcher.grace_s
            for watcher in watchers:
                watcher.join(max(0.0, deadline_s - wall_seconds()))
        finally:  # also if a second Ctrl-C ends the wait
            for worker in self._workers:
                worker.kill()
            until_s = wall_seconds() + START_S  # a scheduler may not answer one that starts a worker
            for watcher in watchers:
                watcher.join(max(0.0, until_s - wall_seconds()))
            for identity in self._identities:
                if identity is not None:
                    self._keys.revoke(identity)
            self._launcher.close()
            self._report()

    def _report(self) -> None:
        while self._notes:
            event, facts = self._notes.popleft()
            self._observer.noted(event, **facts)

    def _note(self, event: str, **facts: Any) -> None:
        self._notes.append((event, facts))

    def _order(self, number: int) -> Order:
        """Return the order for a worker, with a new key; that of its predecessor is revoked."""
        share, before = self._shares[number], self._identities[number]
        if before is not None:
            self._keys.revoke(before)
        self._identities[number] = identity = self._keys.issue(share)
        options = [*self._options, self._devices[number % len(self._devices)], *share.options]
        return Order(number, options, json.dumps({} if identity is None else identity.packed()).encode() + b"\n")

    def _watch(self, number: int) -> None:
        """Wait until a worker ends, and start another one in its place unless the run is over."""
        while not self._closing.is_set():
            try:
                ended = self._workers[number].wait()
                if not ended.code or self._is_over(number, ended):
                    return
                with self._starting:
                    if self._closing.is_set():
                        return
                    self._note("worker", number=number, ended=ended.why or cause(ended.code, ""))
                    (self._workers[number],) = self._launcher.start([self._order(number)], self._surroundings)
                if self._closing.is_set():  # `close` did not wait for this one
                    self._workers[number].kill()
            except NotStarted as error:
                self._failure = error
                return

    def _is_over(self, number: int, ended: Ended) -> bool:
        """Count a death, and return whether it ends the run."""
        self._deaths[number] += 1
        is_final = ended.is_final or 0 < ended.code < EXPLAINED_BELOW or self._deaths[number] > MAX_DEATHS
        if is_final:
            self._failure = WorkerFailed(number, ended.code, ended.why)
        return is_final
