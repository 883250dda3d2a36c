"""Whole runs over tcp on a drawn schedule: a server and the processes of its clients, in one process and in memory.

All of Seedbus is the real thing but for the sockets, the threads' turns, and the time.
"""

from __future__ import annotations

import os
import selectors
import shutil
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import zmq
from clusters import RunWatcher
from drawn_sockets import Context, Dealer, Net, Poller
from drawn_threads import Deviations, Draws, Event, Executor, NotLive, Queue, Schedule, Thread
from worlds import HISO, holds, lossy, outcome, scenario

import seedbus.agents.server.server as server_module
import seedbus.bus.clock as clock_module
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest
from seedbus.bus.errors import SentAway, ServerGone
from seedbus.bus.ledger import ledger_hash, read_ledger
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import Joining, follow, heartbeat
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES, Checksums
from seedbus.bus.zeromq.packet import OVER
from seedbus.bus.zeromq.server import connection as connection_module
from seedbus.bus.zeromq.server import connections as connections_module
from seedbus.bus.zeromq.worker import monitor as monitor_module
from seedbus.bus.zeromq.worker import worker_thread
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

ENDPOINT = "tcp://10.0.0.1:5555"
FAULTS = ("reset", "stall", "flip", "kill", "crash", "stranger")
"""A connection breaks; a process stands still, for up to a minute; a bit flips under way; a process is killed, and
another takes its place; the server ends where it is, and the run is resumed from what its folder held then; a stranger
sends what nobody should."""
STEPS = 400  # of a schedule in which faults occur; one without any has some 250
_ROUNDS: dict[str, Any] = {
    "task": {"name": "quadratic", "dimension": 40},
    "participation": {"clients": 6, "cohort": 4},
    "stop": {"rounds": 6},
}
_INTEGERS = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
_LATE = {"clients": 6, "cohort": 4, "over_selection": 1.4, "deadline_s": 0.5, "late": {"max_staleness": 5}}
_QUORUM = {"clients": 6, "cohort": 4, "quorum": 2}
_BUFFER = {"clients": 6, "cohort": 4, "buffer": 2, "deadline_s": 1, "late": {"max_staleness": 5}}
WORLDS = {
    "rounds": scenario(**_ROUNDS),
    "a process a client": scenario(**_ROUNDS | {"participation": {"clients": 4, "cohort": 3}}),
    "hiso": scenario(**_ROUNDS, algorithm=HISO),
    "drops": lossy(**_ROUNDS | {"participation": {"clients": 6, "cohort": 4, "deadline_s": 0.5}}),
    "late": lossy(**_ROUNDS | {"participation": _LATE}),
    "buffer": lossy(**_ROUNDS | {"participation": _BUFFER}),
    "snapshots": scenario(
        **_ROUNDS, lag={"source": "peer", "snapshot_after_commits": 1, "chunk_bytes": 64, "window": 2}
    ),
    "secure": scenario(**_ROUNDS | {"algorithm": _INTEGERS, "participation": _QUORUM, "secure_aggregation": {}}),
    "dense": scenario(**_ROUNDS, algorithm={"name": "fedavg"}),
    "gone server": scenario(**_ROUNDS, faults=[{"fault": "server-crash", "at_round": 3, "down_s": 1}]),
}
"""Scenarios in simulated time; each of a schedule's runs is of one."""


def requests_of(world: str) -> list[HostRequest]:
    """Return what each process of clients asks for; the last one evaluates."""
    clients = WORLDS[world].participation.clients
    each = 1 if world == "a process a client" else 2
    firsts = range(0, clients, each)
    return [HostRequest(((first, first + each - 1),), evaluates=first == firsts[-1]) for first in firsts]


OF_HONEST_PEERS = {"stale-session", "said-nothing", "taken", "gone", "late", "damaged"}
"""Reasons for which what honest processes send is refused, on bad connections."""


class Crashed(BaseException):
    """The server's process has been killed."""


@dataclass
class Fault:
    """What goes wrong at a step of the schedule."""

    step: int
    kind: str
    which: int


@dataclass
class Outcome:
    """What came of a schedule.

    Attributes:
        world: the scenario's name.
        results: of the run; None if it failed.
        failure: why it failed.
        deviations: the choices of the schedule, to be given again.
        faults: what went wrong, in order.
        reached: how often each event, refusal and fault occurred.
        steps: the choices that were made.
        virtual_s: how long it took by its own time.
    """

    world: str
    results: Results | None
    failure: BaseException | None
    deviations: Deviations
    faults: list[Fault]
    reached: Counter[str]
    steps: int
    virtual_s: float


@dataclass
class World:
    """Everything that one schedule drives; a source of the schedule's, for the faults."""

    schedule: Schedule
    net: Net
    faults: list[Fault]
    folder: Path
    requests: list[HostRequest]
    scenario: Scenario
    reached: Counter[str] = field(default_factory=Counter)
    hosts: int = 0
    is_serving: bool = False  # the server listens, so that it has a folder

    def __post_init__(self) -> None:
        self.schedule.sources.insert(0, self)  # what it changes, others say after it

    # -- a source of the schedule's

    def due(self, now_s: float) -> list[tuple[str, Callable[[], None]]]:
        if self.faults and self.faults[0].step <= self.schedule.steps:
            self._happen(self.faults.pop(0))
        return []

    def next_s(self) -> float:
        return inf

    def _happen(self, fault: Fault) -> None:
        net, which = self.net, fault.which
        groups = [each for each in self.schedule.groups if each.startswith("host")]
        self.reached[f"fault: {fault.kind}"] += 1
        if fault.kind == "reset" and net.connections:
            net.reset(net.connections[which % len(net.connections)])
        elif fault.kind == "stall" and groups:
            self.schedule.stalled[groups[which % len(groups)]] = self.schedule.now_s + (1.0, 7.0, 60.0)[which % 3]
        elif fault.kind == "flip":
            ways = [
                way for each in net.connections for way in (each.up, each.down) if way.under_way and way.under_way[0][1]
            ]
            if ways:
                way = ways[which % len(ways)]
                due_s, data = way.under_way[0]
                at = which % len(data)
                way.under_way[0] = due_s, data[:at] + bytes([data[at] ^ 1 << which % 8]) + data[at + 1 :]
        elif fault.kind == "kill" and groups:
            group = groups[which % len(groups)]
            self.schedule.kill(group)
            net.cut(group)
            self.start_host(self.requests[int(group.split("-")[1]) % len(self.requests)], group)
        elif fault.kind == "crash" and self.is_serving:
            self.is_serving = False
            shutil.copytree(self.folder / "run", self.folder / "crashed", dirs_exist_ok=True)
            self.schedule.interrupt(Crashed())

        elif fault.kind == "stranger":
            self.schedule.spawn(partial(self._stranger, Random(which)), "a stranger", f"stranger {which}")

    # -- processes

    def _stranger(self, draw: Random) -> None:
        dealer, checksums = Dealer(self.net), Checksums(True)
        dealer.connect(ENDPOINT)
        for _ in range(draw.randrange(1, 20)):
            if not self.schedule.wait(lambda: dealer.can_send, self.schedule.now_s + 20.0):
                break
            with suppress(zmq.Again):
                dealer.send(_nonsense(draw, self.net.seen, checksums), zmq.NOBLOCK)
        dealer.close(500)

    def start_host(self, request: HostRequest, name: str = "") -> None:
        """Start a process of clients. name: of the one whose place it takes."""
        number = int(name.split("-")[1]) if name else self.hosts
        self.hosts += 1
        self.schedule.spawn(partial(self._host, request), "link", f"host-{number}-{self.hosts}")

    def _host(self, request: HostRequest) -> None:
        make = recruit(self.scenario, bind(self.scenario), NullObserver())

        def made(offer: Any) -> Follower:
            follower: Follower = make(offer)
            return follower

        follow(Joining(ENDPOINT, request, patience_s=120.0, note=self._noted), made)

    def _noted(self, event: str, **facts: Any) -> None:
        self.reached[f"a process: {event}"] += 1


def _nonsense(draw: Random, seen: list[bytes], checksums: Checksums) -> bytes:
    """Return what a stranger sends: any bytes, or a packet seen before, whole, cut, longer, or with a flipped bit; with
    the right checksum, or without."""
    if not seen or draw.random() < 0.2:
        return draw.randbytes(draw.choice((0, 1, 9, 40, 5000)))
    data = draw.choice(seen)
    if draw.random() < 0.3:
        return _changed(draw, data)
    return checksums.added(_changed(draw, data[:-CHECKSUM_BYTES]))


def _changed(draw: Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    flipped = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    return draw.choice((data, data[:at], flipped, data + draw.randbytes(30)))


def drawn_faults(seed: int, most_steps: int) -> list[Fault]:
    """Return what goes wrong on a seed's schedule: of a random part of the kinds, one and a half times on average."""
    draw = Random(f"faults {seed}")
    kinds = [kind for kind in FAULTS if draw.random() < 0.5]
    count = min(6, int(draw.expovariate(0.5))) if kinds else 0
    return sorted(
        (Fault(draw.randrange(most_steps), draw.choice(kinds), draw.randrange(2**16)) for _ in range(count)),
        key=lambda each: each.step,
    )


def drawn_run(
    seed: int,
    world: str,
    folder: Path,
    *,
    faults: list[Fault] | None = None,
    given: Mapping[tuple[str, int], int] | None = None,
) -> Outcome:
    """Run a scenario on a seed's schedule.

    Args:
        seed: of the schedule, and of the faults.
        world: one of `WORLDS`.
        folder: an empty one.
        faults: what goes wrong, instead of what the seed draws.
        given: the deviations to follow, instead of those that the seed draws.
    """
    draws = Draws(seed, given)
    schedule = Schedule(draws)
    net = Net(schedule)
    planned = drawn_faults(seed, STEPS) if faults is None else faults
    requests = requests_of(world)
    present = World(schedule, net, list(planned), folder, requests, WORLDS[world])
    watcher = _Watcher(present)
    results: Results | None = None
    failure: BaseException | None = None
    with _replaced(schedule, net, Random(f"bytes {seed}")):
        try:
            for request in requests:
                present.start_host(request)
            results = _served(present, watcher)
            schedule.wait(lambda: not any(each.startswith("host") for each in schedule.groups))
        except (Exception, NotLive) as error:
            failure = error
        finally:
            schedule.close()
    for task in schedule.ended_with("host"):
        if _is_of_the_end(task.failure):
            present.reached[f"a process: ends with {type(task.failure).__name__}"] += 1
        else:
            failure = failure or task.failure
    for event, _ in watcher.events:
        present.reached[f"the server: {event}"] += 1
    for refusal in watcher.refusals:
        present.reached[f"refused: {refusal.reason}"] += 1
    return Outcome(
        world, results, failure, draws.deviations, planned, present.reached, schedule.steps, schedule.now_s - 1000.0
    )


class _Watcher(RunWatcher):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def noted(self, event: str, **facts: Any) -> None:
        super().noted(event, **facts)
        self._world.is_serving = self._world.is_serving or event == "listening"


def _served(world: World, watcher: RunWatcher) -> Results:
    """Run the server, and after each crash another one that resumes what was in the folder then."""
    placement = Placement(
        transport="tcp", bind=ENDPOINT, evaluator="anybody", heartbeat_s=2.0, patience_s=120.0, join_s=60.0
    )
    folder, resume = world.folder / "run", False
    while True:
        try:
            results = run(world.scenario, folder, resume=resume, placement=placement, observer=watcher)
            world.is_serving = False
            return results
        except Crashed:
            world.net.routers.clear()
            for each in list(world.net.connections):
                world.net.reset(each)
            shutil.rmtree(folder)
            (world.folder / "crashed").rename(folder)
            resume = True


def reference(world: str, folder: Path) -> Results:
    """Run a world in memory, to be compared with."""
    return run(WORLDS[world], folder)


def _is_of_the_end(error: BaseException | None) -> bool:
    """Whether a process says so because the run had ended without it: it came late, or its connection broke then."""
    last = error.reason if isinstance(error, SentAway) else ""  # which it tells when nobody answers any more
    return isinstance(error, ServerGone) or last in (OVER, "taken", "stale-session")


def _told(results: Results) -> tuple[Any, ...]:
    """Return the parts of the results that no schedule may change: all but what was refused on the way."""
    end, metrics = outcome(results)
    return {name: end[name] for name in end if not name.startswith("refusal")}, metrics


def what_is_wrong(found: Outcome, expected: Results) -> str:
    """Return which property does not hold, or ""."""
    if found.failure is not None or found.results is None:
        return f"the run ends with {found.failure!r}"
    if not holds(found.results):
        return "its journal and its ledger do not give its results"
    kinds = {fault.kind for fault in found.faults}
    refused = {each.removeprefix("refused: ") for each in found.reached if each.startswith("refused: ")}
    has_lost_secrets = found.world == "secure" and "kill" in kinds  # which are in the memory of its process alone
    if "stranger" not in kinds and not has_lost_secrets and not refused <= OF_HONEST_PEERS:
        return f"it refuses what honest processes send: {', '.join(sorted(refused - OF_HONEST_PEERS))}"
    if has_lost_secrets:
        return ""
    if _told(found.results) != _told(expected):
        return "its results are not those in memory"
    sent, expected_sent = (ledger_hash(read_ledger(each.folder / "messages")) for each in (found.results, expected))
    return "" if sent == expected_sent else "its messages are not those in memory"


def shrunk(
    seed: int, world: str, expected: Results, found: Outcome, folders: Iterator[Path]
) -> tuple[list[Fault], Deviations]:
    """Return fewer faults and deviations from the plain order with which the run goes wrong too."""

    def fails(faults: list[Fault], given: Deviations) -> bool:
        outcome_ = drawn_run(seed, world, next(folders), faults=faults, given=given)
        return bool(what_is_wrong(outcome_, expected))

    faults, given = list(found.faults), dict(found.deviations)
    for fault in list(faults):
        fewer = [each for each in faults if each is not fault]
        if fails(fewer, given):
            faults = fewer
    size = len(given)
    while size:
        for start in range(0, len(given), size):
            part = set(list(given)[start : start + size])
            fewer_given = {place: choice for place, choice in given.items() if place not in part}
            if part and fails(faults, fewer_given):
                given = fewer_given
                break
        else:
            size //= 2
        size = min(size, len(given))
    return faults, given


class _Pipes:
    """Stands for the module `os`, and closes in the end the pipes that nobody has closed."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open |= set(ends)
        return ends

    def close(self, descriptor: int) -> None:
        self._open.remove(descriptor)
        os.close(descriptor)

    def close_all(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


@contextmanager
def _replaced(schedule: Schedule, net: Net, bytes_of: Random) -> Iterator[None]:
    """Put what the schedule drives in the place of sockets, threads, the clock and the system's random bytes."""

    class Polled(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            look = partial(selectors.EpollSelector.select, self, 0)
            if timeout is None or timeout > 0:
                schedule.wait(lambda: bool(look()), inf if timeout is None else schedule.now_s + timeout)
            else:
                schedule.pause()
            ready = look()
            return ready[::-1] if len(ready) > 1 and schedule.draws.below(2, "order") else ready

    class Selector(clock_module._JumpingSelector, Polled):
        pass

    threads = types.SimpleNamespace(Thread=partial(Thread, schedule), Event=partial(Event, schedule))
    pipes = _Pipes()
    real_clock = clock_module.wall_seconds
    replaced: list[tuple[Any, str, Any]] = [
        (zmq, "Context", partial(Context, net)),
        (zmq, "Poller", partial(Poller, schedule)),
        (clock_module, "_JumpingSelector", Selector),
        (server_module, "ThreadPoolExecutor", partial(Executor, schedule)),
        (heartbeat, "threading", threads),
        (heartbeat, "WATCH_S", 0.5),
        (heartbeat, "resident_bytes", lambda: 0),
        (monitor_module, "resident_bytes", lambda: 0),
        (worker_thread, "threading", threads),
        (worker_thread, "queue", types.SimpleNamespace(SimpleQueue=partial(Queue, schedule))),
        (worker_thread, "os", pipes),
        (heartbeat, "os", pipes),
        (os, "urandom", bytes_of.randbytes),
    ]
    for module, names in (
        (connection_module, ("counted", "name_of")),
        (connections_module, ("abort", "name_of", "own_path")),
        (monitor_module, ("counted", "ends")),
    ):
        replaced += [(module, name, getattr(net, name)) for name in names]
    for name, module in list(sys.modules.items()):
        if name.startswith("seedbus.") and getattr(module, "wall_seconds", None) is real_clock:
            replaced.append((module, "wall_seconds", schedule.read_clock))
    undo = [patch.object(module, name, value) for module, name, value in replaced]
    try:
        for each in undo:
            each.start()
        yield
    finally:
        for each in reversed(undo):
            each.stop()
        pipes.close_all()
        net.close()
