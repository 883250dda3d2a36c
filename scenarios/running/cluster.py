"""Where a run's followers are: in this process, on threads of it, in processes that it starts, or wherever clients
connect from."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seedbus.agents.errors import Unfinishable
from seedbus.agents.observer import Observer
from seedbus.bus import HostRequest, MemoryTransport, Recruit, Registration, Transport
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.access import Access, is_public
from seedbus.scenarios.schema.scenario import Scenario

if TYPE_CHECKING:
    from seedbus.bus.zeromq import Limits
    from seedbus.bus.zeromq.keys import Identity

Name = Literal["memory", "inproc", "ipc", "tcp"]
LONGEST_PLACE = 80  # bytes of a folder's name that leave room for a socket's
HEARING_S = 0.2  # that followers on a thread may take to hear of the end
FILES_EACH = 2  # descriptors for a connection: its socket, and what is open beside it
LEAST_S = 10.0  # that a process may owe an answer, if nothing else is said
STALLS = 3  # processes in a row, without a round between them, that were gone because they did not answer


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run's followers are.

    workers: processes to start on this machine
    bind: an endpoint that clients connect to by themselves
    expect: how many of those, to share out the clients among them
    patience_s: how long one may be away
    join_s: how long one that was offered clients may take to build what they need
    answer_s: how long one that somebody else started may owe an answer; None: as long as `patience_s`, and `LEAST_S`
        at least
    memory: the folder of what clients remember
    spoil: makes bad followers of good ones, where these are in this process
    keys: the folder with the server's keys and the table of those that it lets in; None: no encryption
    evaluator: who evaluates, and says what x₀ is: a process that the server starts (own); whoever has a key that is
        authorised for it (keys); or whoever asks first (anybody): where all peers are the caller's own, as in tests
    """

    transport: Name = "memory"
    workers: int = 0
    bind: str | None = None
    expect: int = 1
    patience_s: float = 60.0
    join_s: float = 300.0
    answer_s: float | None = None
    heartbeat_s: float = 2.0
    memory: Path | None = None
    spoil: Callable[[Recruit], Recruit] | None = None
    keys: Path | None = None
    evaluator: Literal["own", "keys", "anybody"] = "own"

    @property
    def answer_within_s(self) -> float:
        return max(self.patience_s, LEAST_S) if self.answer_s is None else self.answer_s

    @property
    def is_here(self) -> bool:
        """True if the followers are in this process."""
        return not self.workers and self.bind is None

    @property
    def command(self) -> str:
        """What a person types to go on with a run so placed, but for `--resume` and the folder."""
        if self.bind is not None:
            said = f"seedbus server --bind {shlex.quote(self.bind)} --expect-workers {self.expect}"
            if self.keys is not None:
                said += f" --keys {shlex.quote(str(self.keys))}"
            elif is_public(self.bind):
                said += " --insecure"
            if self.answer_s is not None:
                said += f" --answer-within {self.answer_s:g}"
            return said + " --evaluator keys" * (self.evaluator == "keys")
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
        if self.evaluator == "keys" and self.keys is None:
            raise ScenarioError("--evaluator keys", ["there are no keys; expected --keys too, or --evaluator own"])


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
    from seedbus.scenarios.running.workers import Workers

    check_files(max(placement.workers, placement.expect), each=FILES_EACH)
    if placement.bind is not None:
        allow_files(scenario.participation.clients * FILES_EACH)  # each may come with a socket of its own
    with _own_address(placement) as own, zmq.Context() as context:
        context.max_sockets = 65_535
        guard, helpers, hubs = _Guard(placement), list[Workers | _Thread](), list[Hub]()
        access = Access(
            own,
            context,
            transport=placement.transport,
            bind=placement.bind,
            keys=placement.keys,
            evaluator=placement.evaluator,
        )

        def on_tick(registration: Registration) -> None:
            access.tell(registration)
            for helper in helpers:
                helper.check(registration)
            guard.check(registration, hubs[-1].stalls)

        def connect(run: bytes) -> Transport:
            hub = Hub(
                access.endpoint,
                run,
                limits=_limits(placement),
                redelivers=is_virtual,
                report_limit=report_limit,
                context=context,
                on_tick=on_tick,
                rights=access.rights,
                own=access.own,
                keys=access.keys,
                offers=scenario.participation.clients,  # each may come with a socket of its own
            )
            hubs.append(hub)
            observer.noted("listening", endpoint=hub.endpoint, who=_who(placement, hub.endpoint, access))
            hosted = _hosted(placement, scenario)
            if hosted:
                # by the address that nobody else finds, unless a run is to show what another one carries
                inside = hub.endpoint if placement.workers and placement.transport == "tcp" else access.own
                workers = Workers(
                    hosted,
                    inside,
                    observer,
                    patience_s=placement.patience_s,
                    memory=placement.memory if placement.workers else None,
                    identity=access.identity,
                )
                helpers.append(workers)
                workers.start()
            elif recruit is not None:
                helpers.append(_Thread(hub.endpoint, recruit, context, access.identity))
            return hub

        try:
            yield connect
        finally:
            for helper in helpers:
                helper.close()
            for hub in hubs:
                hub.end()  # it has ended already, unless the run did before it began
            access.close()


@contextmanager
def _own_address(placement: Placement) -> Iterator[str]:
    """An address in a folder that only this user may enter, where one is needed."""
    if placement.transport == "ipc" or (placement.bind is not None and placement.evaluator != "anybody"):
        # a socket's path has 107 bytes at most, and clusters have long folders for what is temporary
        place = None if len(os.fsencode(tempfile.gettempdir())) <= LONGEST_PLACE else "/tmp"
        with tempfile.TemporaryDirectory(prefix="seedbus-", dir=place) as folder:
            yield f"ipc://{folder}/own"
    else:
        yield ""


def _hosted(placement: Placement, scenario: Scenario) -> list[list[str]]:
    """What each process that a server starts is to host, as options of `seedbus client`."""
    if placement.bind is not None:
        return [["--clients", "none", "--evaluator"]] if placement.evaluator == "own" else []
    clients, workers = scenario.participation.clients, placement.workers
    bounds = [number * clients // workers for number in range(workers + 1)] if workers else []
    shares = [["--clients", f"{first}-{end - 1}", "--no-evaluator"] for first, end in pairwise(bounds)]
    if shares:
        shares[0][-1] = "--evaluator"
    return shares


def _who(placement: Placement, endpoint: str, access: Access) -> str:
    if placement.bind is not None:
        command = f"seedbus client --connect {endpoint.replace('0.0.0.0', 'THIS-HOST')}"
        if access.keys is not None:
            command += f" --server-key '{access.keys.public.decode()}'"
        return f"clients join by `{command}`, and the run begins when all have"
    return f"{placement.workers} workers are starting" if placement.workers else "the clients are in this process"


def _limits(placement: Placement) -> Limits:
    from seedbus.bus.zeromq import Limits

    return Limits(placement.heartbeat_s, join_s=placement.join_s, answer_s=placement.answer_within_s)


class _Guard:
    """Ends a run whose followers are really gone: their clients' bits are nowhere to be had.

    Time counts while clients are missing, until a round closes. While somebody has an offer of all of them it has the
    time to join, once; and processes that join and then answer nothing end the run after `STALLS` of them.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement, self._looked = placement, wall_seconds()
        self._unoffered_s = self._gone_s = 0.0
        self._rounds = self._stalls = 0

    def check(self, registration: Registration, stalls: int) -> None:
        """stalls: how many processes have been gone so far because they did not answer. Raises `Unfinishable`."""
        before, self._looked = self._looked, wall_seconds()
        if registration.rounds_closed > self._rounds or not registration.was_complete:
            self._rounds, self._stalls = registration.rounds_closed, stalls
            self._gone_s = self._unoffered_s = 0.0
        if registration.can_go_on or not registration.was_complete:
            self._unoffered_s = 0.0
        else:
            self._gone_s += self._looked - before
            self._unoffered_s += 0.0 if registration.could_go_on else self._looked - before
        patience_s, most_s = self._placement.patience_s, self._placement.patience_s + self._placement.join_s
        if self._unoffered_s > patience_s or self._gone_s > most_s:
            missing = registration.missing
            clients = sorted(client for client in missing if client >= 0)
            some = ", ".join(map(str, clients[:5])) + (", …" if len(clients) > 5 else "")
            who = f"{len(clients)} clients ({some})" if clients else "the evaluator"
            lasted_s = patience_s if self._unoffered_s > patience_s else most_s
            raise Unfinishable(
                f"no process has hosted {who} for {lasted_s:.0f} s; every closed round is kept, "
                "and a resumed run goes on from there"
            )
        if stalls - self._stalls >= STALLS:
            raise Unfinishable(
                f"round {registration.rounds_closed}: {STALLS} processes joined and did not answer for "
                f"{self._placement.answer_within_s:.0f} s each (--answer-within); "
                "every closed round is kept"
            )


class _Thread:
    """Followers on a thread of this process, over real sockets all the same."""

    def __init__(self, endpoint: str, recruit: Recruit, context: Any, identity: Identity | None) -> None:
        self._failure: BaseException | None = None
        self._parent_pipe, self._end = os.pipe()
        self._thread = threading.Thread(
            target=self._follow, args=(endpoint, recruit, context, identity), name="worker", daemon=True
        )
        self._thread.start()

    def check(self, registration: Registration) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """They have been told that the run is over; who is building yet does not hear, and loses its leash."""
        self._thread.join(HEARING_S)
        os.close(self._end)
        self._thread.join()
        os.close(self._parent_pipe)

    def _follow(self, endpoint: str, recruit: Recruit, context: Any, identity: Identity | None) -> None:
        from seedbus.bus.zeromq import follow

        try:
            options: dict[str, Any] = {"patience_s": 5.0, "parent_pipe": self._parent_pipe, "identity": identity}
            follow(endpoint, [HostRequest()], recruit, context=context, **options)
        except BaseException as error:
            self._failure = error
