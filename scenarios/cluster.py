"""Where a run's followers are: in this process, on threads of it, in processes that it starts, or wherever clients
connect from."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seedbus.agents.errors import Unfinishable
from seedbus.agents.observer import Observer
from seedbus.bus import MemoryTransport, Reception, Recruit, Transport, Wish
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.errors import ScenarioError, WorkerFailed
from seedbus.scenarios.schema import Scenario

if TYPE_CHECKING:
    from seedbus.bus.zeromq import Limits

Name = Literal["memory", "inproc", "ipc", "tcp"]
DEATHS = 5  # of one worker in a row, without a round between them, that are put up with
HEARING_S = 0.2  # that followers on a thread may take to hear of the end
FILES_EACH = 2  # descriptors for a connection: its socket, and what is open beside it
LEASH_S = 0.7  # from the end of the leash to the end of a worker
START_S = 10.0  # patience that a worker has at least: it connects before there is anybody to answer
_OWN_WORDS = 20  # exit codes below this come with a sentence of the worker's own


@dataclass(frozen=True, slots=True)
class Placement:
    """workers: processes to start on this machine; bind: an endpoint that clients connect to by themselves;
    expect: how many of those, to share out the clients among them; patience_s: how long one may be away; join_s: how
    long one that was offered clients may take to build what they need; memory: the folder of what clients remember;
    spoil: makes bad followers of good ones, where these are in this process."""

    transport: Name = "memory"
    workers: int = 0
    bind: str | None = None
    expect: int = 1
    patience_s: float = 60.0
    join_s: float = 300.0
    heartbeat_s: float = 2.0
    memory: Path | None = None
    spoil: Callable[[Recruit], Recruit] | None = None

    @property
    def is_here(self) -> bool:
        """True if the followers are in this process."""
        return not self.workers and self.bind is None

    @property
    def command(self) -> str:
        """What a person types to go on with a run so placed, but for `--resume` and the folder."""
        if self.bind is not None:
            return f"seedbus server --bind {shlex.quote(self.bind)} --expect-workers {self.expect}"
        return f"seedbus run --workers {self.workers}" if self.workers else "seedbus run"

    def check(self, scenario: Scenario) -> None:
        """Raises `ScenarioError` or `BadEndpoint` for what can be told to be wrong before anything begins."""
        if self.transport in ("memory", "inproc") and not self.is_here:
            raise ScenarioError(f"transport {self.transport}", ["it reaches no other process; expected ipc or tcp"])
        clients = scenario.participation.clients
        for option, count in (("--workers", self.workers), ("--expect-workers", self.expect)):
            if count > clients:
                expected = f"the run has {clients} clients; expected {clients} at most, for each hosts one at least"
                raise ScenarioError(f"{option} {count}", [expected])
        if self.bind is not None:
            from seedbus.bus.zeromq.sockets import check_bind

            check_bind(self.bind)


Connect = Callable[[bytes], Transport]


@contextmanager
def placed(
    placement: Placement, scenario: Scenario, recruit: Recruit | None, observer: Observer, report_limit: int
) -> Iterator[Connect]:
    """What connects a run's server with its followers. recruit: what makes them, where they are in this process;
    report_limit: bytes that a REPORT may have."""
    is_virtual = scenario.clock == "virtual"
    if recruit is not None and placement.spoil is not None:
        recruit = placement.spoil(recruit)
    if placement.transport == "memory":
        yield lambda run: MemoryTransport(recruit, offload=not is_virtual, gathers=is_virtual)
        return
    import zmq

    from seedbus.bus.zeromq import Hub
    from seedbus.bus.zeromq.sockets import allow_files, check_files

    check_files(max(placement.workers, placement.expect), each=FILES_EACH)
    if placement.bind is not None:
        allow_files(scenario.participation.clients * FILES_EACH)  # each may come with a socket of its own
    with _endpoint(placement) as endpoint, zmq.Context() as context:
        context.max_sockets = 65_535
        guard, helpers, hubs = _Guard(placement.patience_s), list[_Processes | _Thread](), list[Hub]()

        def on_tick(reception: Reception) -> None:
            for helper in (*helpers, guard):
                helper.check(reception)

        def connect(run: bytes) -> Transport:
            hub = Hub(
                endpoint,
                run,
                limits=_limits(placement),
                redelivers=is_virtual,
                report_limit=report_limit,
                context=context,
                on_tick=on_tick,
            )
            hubs.append(hub)
            observer.noted("listening", endpoint=hub.endpoint, who=_who(placement, hub.endpoint))
            if placement.workers:
                workers = _Processes(placement, scenario, observer, hub.endpoint)
                helpers.append(workers)
                workers.start()
            elif recruit is not None:
                helpers.append(_Thread(hub.endpoint, recruit, context))
            return hub

        try:
            yield connect
        finally:
            for helper in helpers:
                helper.close()
            for hub in hubs:
                hub.end()  # it has ended already, unless the run did before it began


def _who(placement: Placement, endpoint: str) -> str:
    if placement.bind is not None:
        command = f"seedbus client --connect {endpoint.replace('0.0.0.0', 'THIS-HOST')}"
        return f"clients join by `{command}`, and the run begins when all have"
    return f"{placement.workers} workers are starting" if placement.workers else "the clients are in this process"


@contextmanager
def _endpoint(placement: Placement) -> Iterator[str]:
    """Where the server listens."""
    if placement.bind is None and placement.transport == "ipc":
        with tempfile.TemporaryDirectory(prefix="seedbus-") as folder:
            yield f"ipc://{folder}/hub"
    else:
        yield placement.bind or {"inproc": "inproc://seedbus", "tcp": "tcp://127.0.0.1:*"}[placement.transport]


def _limits(placement: Placement) -> Limits:
    # whoever asks in vain has the same patience as this side, and is let in before it ends
    from seedbus.bus.zeromq import Limits
    from seedbus.bus.zeromq.port import MISSED

    yield_s = max(MISSED * placement.heartbeat_s, placement.patience_s / 3)
    return Limits(placement.heartbeat_s, join_s=placement.join_s, yield_s=yield_s)


class _Guard:
    """Ends a run whose followers are really gone: their clients' bits are nowhere to be had.

    Time counts while they are not even offered to anybody: whoever has an offer has a limit of its own.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._looked, self._gone_s = patience_s, wall_seconds(), 0.0

    def check(self, reception: Reception) -> None:
        before, self._looked = self._looked, wall_seconds()
        if reception.can_go_on or not reception.was_complete:
            self._gone_s = 0.0
        elif not reception.could_go_on:
            self._gone_s += self._looked - before
        if self._gone_s > self._patience_s:
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
        self._leash, self._end = os.pipe()
        self._thread = threading.Thread(
            target=self._follow, args=(endpoint, recruit, context), name="worker", daemon=True
        )
        self._thread.start()

    def check(self, reception: Reception) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """They have been told that the run is over; who is building yet does not hear, and loses its leash."""
        self._thread.join(HEARING_S)
        os.close(self._end)
        self._thread.join()
        os.close(self._leash)

    def _follow(self, endpoint: str, recruit: Recruit, context: Any) -> None:
        from seedbus.bus.zeromq import follow

        try:
            follow(endpoint, [Wish()], recruit, context=context, patience_s=5.0, leash=self._leash)
        except BaseException as error:
            self._failure = error


class _Processes:
    """Worker processes: started, watched, and started again should one die; they end when this process does."""

    def __init__(self, placement: Placement, scenario: Scenario, observer: Observer, endpoint: str) -> None:
        self._observer, self._patience_s, self._endpoint = observer, placement.patience_s, endpoint
        self._memory = [] if placement.memory is None else ["--memory", str(placement.memory)]
        clients, workers = scenario.participation.clients, placement.workers
        bounds = [number * clients // workers for number in range(workers + 1)]
        self._shares = [f"{first}-{end - 1}" for first, end in pairwise(bounds)]
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._deaths, self._rounds = [0] * workers, 0
        self._ended: deque[tuple[int, int]] = deque()
        self._failure: Exception | None = None
        self._is_closing = threading.Event()
        self._watchers = [
            threading.Thread(target=self._watch, args=(number,), name="watcher", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Start them all. Raises `Unfinishable`; whatever happens, `close` ends those that were started."""
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
        command = [sys.executable, "-m", "seedbus", "client", "--connect", self._endpoint, "--leash", "--quiet"]
        command += ["--clients", self._shares[number], "--evaluator" if number == 0 else "--no-evaluator"]
        command += ["--patience", str(max(self._patience_s, START_S)), *self._memory]
        # a session of its own: Ctrl-C is for this process, which then tells its workers
        try:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise Unfinishable(f"worker {number} cannot be started ({error.strerror})") from None


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """Drop a worker's leash: its end ends it too."""
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
