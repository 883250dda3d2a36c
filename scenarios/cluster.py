"""Where a run's followers are: in this process, on threads of it, in processes that it starts, or wherever clients
connect from."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from seedbus.agents.errors import Unfinishable
from seedbus.agents.observer import Observer
from seedbus.bus import MemoryTransport, Reception, Recruit, Transport, Wish
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.errors import WorkerFailed
from seedbus.scenarios.schema import Scenario

Name = Literal["memory", "inproc", "ipc", "tcp"]
DEATHS = 5  # of one worker in a row, without a round between them, that are put up with
LEASH_S = 0.7  # from the end of the leash to the end of a worker
START_S = 10.0  # patience that a worker has at least: it connects before there is anybody to answer
_OWN_WORDS = 20  # exit codes below this come with a sentence of the worker's own


@dataclass(frozen=True, slots=True)
class Placement:
    """workers: processes to start on this machine; bind: an endpoint that clients connect to by themselves;
    expect: how many of those, to share out the clients among them; patience_s: how long one may be away."""

    transport: Name = "memory"
    workers: int = 0
    bind: str | None = None
    expect: int = 1
    patience_s: float = 60.0
    heartbeat_s: float = 2.0

    @property
    def is_here(self) -> bool:
        """True if the followers are in this process."""
        return not self.workers and self.bind is None


Connect = Callable[[bytes], Transport]


@contextmanager
def placed(placement: Placement, scenario: Scenario, recruit: Recruit | None, observer: Observer) -> Iterator[Connect]:
    """What connects a run's server with its followers. recruit: what makes them, where they are in this process."""
    is_virtual = scenario.clock == "virtual"
    if placement.transport == "memory":
        assert recruit is not None
        made = recruit
        yield lambda run: MemoryTransport(made, offload=not is_virtual)
        return
    import zmq

    from seedbus.bus.zeromq import Hub
    from seedbus.bus.zeromq.sockets import check_files

    check_files(max(placement.workers, placement.expect), each=2)
    with tempfile.TemporaryDirectory(prefix="seedbus-") as folder, zmq.Context() as context:
        context.max_sockets = 65_535
        guard, helpers = _Guard(placement.patience_s), list[_Processes | _Thread]()

        def on_tick(reception: Reception) -> None:
            for helper in (*helpers, guard):
                helper.check(reception)

        def connect(run: bytes) -> Transport:
            options = {"heartbeat_s": placement.heartbeat_s, "redelivers": is_virtual, "on_tick": on_tick}
            hub = Hub(_endpoint(placement, folder), run, context=context, **options)  # type: ignore[arg-type]
            observer.noted("listening", endpoint=hub.endpoint, who=_who(placement, hub.endpoint))
            if placement.workers:
                helpers.append(_Processes(placement, scenario, observer, hub.endpoint))
            elif recruit is not None:
                helpers.append(_Thread(hub.endpoint, recruit, context))
            return hub

        try:
            yield connect
        finally:
            for helper in helpers:
                helper.close()


def _who(placement: Placement, endpoint: str) -> str:
    if placement.bind is not None:
        return f"clients join by `seedbus client --connect {endpoint.replace('0.0.0.0', 'THIS-HOST')}`"
    return f"{placement.workers} workers are starting" if placement.workers else "the clients are in this process"


def _endpoint(placement: Placement, folder: str) -> str:
    if placement.bind is not None:
        return placement.bind
    return {"inproc": "inproc://seedbus", "ipc": f"ipc://{folder}/hub", "tcp": "tcp://127.0.0.1:*"}[placement.transport]


class _Guard:
    """Ends a run whose followers are really gone: their clients' bits are nowhere to be had."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._since = patience_s, wall_seconds()

    def check(self, reception: Reception) -> None:
        if reception.can_go_on or not reception.was_complete:
            self._since = wall_seconds()
        elif wall_seconds() - self._since > self._patience_s:
            missing = reception.missing
            clients = sorted(client for client in missing if client >= 0)
            some = ", ".join(map(str, clients[:5])) + (", …" if len(clients) > 5 else "")
            who = f"{len(clients)} clients ({some})" if clients else "the evaluator"
            raise Unfinishable(
                f"no process has hosted {who} for {self._patience_s:.0f} s; every closed round is kept, "
                "and a resumed run goes on from there"
            )


class _Thread:
    """Followers on a thread of this process, over real sockets all the same."""

    def __init__(self, endpoint: str, recruit: Recruit, context: Any) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._follow, args=(endpoint, recruit, context), name="worker", daemon=True
        )
        self._thread.start()

    def check(self, reception: Reception) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._thread.join(5)

    def _follow(self, endpoint: str, recruit: Recruit, context: Any) -> None:
        from seedbus.bus.zeromq import follow

        try:
            follow(endpoint, [Wish()], recruit, context=context, patience_s=5.0)
        except BaseException as error:
            self._failure = error


class _Processes:
    """Worker processes: started, watched, and started again should one die; they end when this process does."""

    def __init__(self, placement: Placement, scenario: Scenario, observer: Observer, endpoint: str) -> None:
        self._observer, self._patience_s, self._endpoint = observer, placement.patience_s, endpoint
        clients, workers = scenario.participation.clients, min(placement.workers, scenario.participation.clients)
        bounds = [number * clients // workers for number in range(workers + 1)]
        self._shares = [f"{first}-{end - 1}" for first, end in pairwise(bounds)]
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths, self._rounds = [0] * workers, 0
        self._ended: deque[tuple[int, int]] = deque()
        self._failure: WorkerFailed | None = None
        self._is_closing = threading.Event()
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), name="watcher", daemon=True)
            for number in range(workers)
        ]
        for number, watcher in enumerate(self._watchers):
            self._children[number] = self._spawn(number)
            watcher.start()

    def check(self, reception: Reception) -> None:
        while self._ended:
            number, code = self._ended.popleft()
            self._observer.noted("worker", number=number, ended=code)
        if self._failure is not None:
            raise self._failure
        if reception.rounds_closed > self._rounds:
            self._rounds, self._deaths = reception.rounds_closed, [0] * len(self._deaths)

    def close(self) -> None:
        """They have been told that the run is over; who has not heard loses its leash."""
        self._is_closing.set()
        for child in self._children.values():
            _let_go(child)
        until = wall_seconds() + LEASH_S
        for watcher in self._watchers:
            watcher.join(max(0.0, until - wall_seconds()))
        for child in self._children.values():
            child.kill()  # who is loading yet does not hear; for the others it is too late to mean anything
        for watcher in self._watchers:
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
            self._children[number] = self._spawn(number)

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "seedbus", "client", "--connect", self._endpoint, "--leash", "--quiet"]
        command += ["--clients", self._shares[number], "--evaluator" if number == 0 else "--no-evaluator"]
        command += ["--patience", str(max(self._patience_s, START_S))]
        # a session of its own: Ctrl-C is for this process, which then tells its workers
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """Drop a worker's leash: its end ends it too."""
    assert child.stdin is not None
    with suppress(OSError):
        child.stdin.close()
