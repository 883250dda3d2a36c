"""What strangers cannot do to a run: evaluate, define x₀, keep others out, take over sessions, use up connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bus_harness import FakeRegistration
from clusters import ClientsThread, ServerThread
from gates import Gate
from hostile_packets import column, hello
from hostile_peers import Caller, Peer, greeting, ready
from hostile_run import Worker
from hostile_server import ServerProcess
from hub_peers import HEARTBEAT_S, Member, OneClientRegistration, hub_at
from processes import wait_for
from running_transports import until
from worlds import lossy, outcome, scenario

from seedbus.agents.admission import bound
from seedbus.agents.client.worker import prove
from seedbus.agents.errors import Unfinishable
from seedbus.agents.messages import Join, Span
from seedbus.bus import HOST, Envelope, HostRequest, Kind, decode, encode
from seedbus.bus.transport import NO_CLIENTS, STRANGER
from seedbus.bus.zeromq import Entrance, Hub, Limits
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Type
from seedbus.bus.zeromq.server.connections import STRANGERS_OF_A_HOST
from seedbus.scenarios.launchers.worker_processes import WorkerProcesses
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports import patience
from seedbus.scenarios.transports.patience import MAX_STALLS, Patience
from seedbus.scenarios.transports.placement import Placement

WHAT = lossy(stop={"rounds": 20})
# strangers wait for the server's own process without a PING, and a busy machine takes many seconds to start one
PATIENT: dict[str, Any] = {"evaluator": "own", "heartbeat_s": 10.0}


class Stranger:
    """A peer over tcp that asks for clients and uses its offer as the test says."""

    def __init__(self, port: int, spans: bytes = b"", count: int = 0, evaluates: int = 0) -> None:
        self.peer = Peer(port).send(hello(b"", spans, count, evaluates))
        self.answer = packet.read(self.peer.receive())

    @property
    def declined(self) -> str:
        """The reason for which it was declined."""
        assert self.answer.type is Type.DECLINE
        return packet.read_decline(self.answer.content)[0]

    def join_frame(self, proof: dict[str, bytes]) -> bytes:
        """Return a JOIN with all offered clients and proofs bound to this offer."""
        _, offer, _ = packet.read_offer(self.answer.content)
        spans = tuple(Span(first, last, 0) for first, last in offer.spans)
        return encode(Join(offer.host, spans, **bound(proof, offer.nonce)).pack())[0]

    def post(self, frame: bytes) -> None:
        self.peer.send(packet.packet(Type.POST, self.answer.session, packet.entry(frame)))

    def answer_to_join(self) -> Kind:
        """Wait for the answer to its JOIN and return the kind of it."""
        while (incoming := packet.read(self.peer.receive())).type is not Type.POST:
            pass
        return decode(packet.read_entries(incoming.content)[0]).kind


@pytest.fixture
def stranger() -> Iterator[Callable[..., Stranger]]:
    """A function that makes strangers, which stay connected until the test ends."""
    with ExitStack() as stack:

        def make_stranger(*arguments: Any, **options: Any) -> Stranger:
            stranger = Stranger(*arguments, **options)
            stack.callback(stranger.peer.close)
            return stranger

        yield make_stranger


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(WHAT, tmp_path_factory.mktemp("memory") / "run")


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that the start of the server's own process waits for."""
    may_start, start = threading.Event(), WorkerProcesses.start

    def start_later(self: WorkerProcesses) -> None:
        threading.Thread(target=lambda: may_start.wait() and start(self), daemon=True).start()

    monkeypatch.setattr(WorkerProcesses, "start", start_later)
    return may_start


@pytest.mark.slow
def test_strangers_neither_evaluate_nor_say_what_x0_is_nor_keep_anybody_out(
    tmp_path: Path, in_memory: Results, evaluator: threading.Event, stranger: Callable[..., Stranger]
) -> None:
    proof = prove(WHAT.algorithm, bind(WHAT))
    with ServerThread(WHAT, tmp_path / "run", **PATIENT) as server:
        assert stranger(server.port, count=NO_CLIENTS, evaluates=1).declined == "no-clients"
        liars = [stranger(server.port, column(0, 7), evaluates=1) for _ in range(6)]
        for liar in liars:
            assert not packet.read_offer(liar.answer.content)[1].evaluates
            liar.post(liar.join_frame(proof | {"x0": b"a lie..."}))
        time.sleep(0.1)
        assert server.watcher.joined == 0, "nobody says what x0 is before the server's own process"
        evaluator.set()
        assert [liar.answer_to_join() for liar in liars] == [Kind.REFUSE] * 6
        idle = [stranger(server.port, column(0, 7)) for _ in range(6)]
        gate, left = Gate(), server.watcher.gone
        honest = ClientsThread(WHAT, server.watcher.endpoint, HostRequest(evaluates=False), gate=gate)
        wait_for(lambda: server.watcher.joined == 2)
        assert server.watcher.gone == left, "six hold offers of the same clients, and lose nothing but those"
        for each in idle:
            each.peer.close()
        wait_for(lambda: server.watcher.gone == left + 6)
        gate.open_to(2**32)  # deliveries still reach the process that joined with the clients
        results = server.results()
        honest.join()
        assert honest.failure is None and len(idle) == 6
    assert outcome(results)[1] == outcome(in_memory)[1] and results.digest == in_memory.digest
    assert sum(results.summary["refusals"]["x0"].values()) == 6


@pytest.mark.slow
def test_what_was_recorded_of_a_process_that_joined_makes_nobody_a_member(
    tmp_path: Path, in_memory: Results, stranger: Callable[..., Stranger]
) -> None:
    proof = prove(WHAT.algorithm, bind(WHAT))
    with ServerThread(WHAT, tmp_path / "run", **PATIENT) as server:
        recorded = stranger(server.port, column(7, 7))
        join = recorded.join_frame(proof)
        recorded.post(join)
        assert recorded.answer_to_join() is Kind.WELCOME, "it waited until the run knew its own x0"
        assert server.watcher.joined == 2
        conversation = recorded.peer.sent
        recorded.peer.reset()
        wait_for(lambda: server.watcher.gone == 1)
        with Peer(server.port).raw(conversation.removeprefix(greeting() + ready())):
            wait_for(lambda: any(refusal.reason == "stale-session" for refusal in server.watcher.refusals))
        wait_for(lambda: server.watcher.gone == 2)
        replaying = stranger(server.port, column(7, 7))
        assert packet.read_offer(replaying.answer.content)[1].host == decode(join).client, "it names this very host"
        replaying.post(join)
        assert replaying.answer_to_join() is Kind.REFUSE
        assert server.watcher.joined == 2
        ClientsThread(WHAT, server.watcher.endpoint)
        assert server.results().digest == in_memory.digest


async def test_a_session_that_lives_is_nobody_elses_to_take() -> None:
    registration, answers = OneClientRegistration(b""), list[list[bytes]]()
    async with hub_at(registration) as (hub, port):
        owner = Member(port)
        await owner.offered()
        owner.join()
        await owner.until(lambda: bool(registration.hosts))
        thieves = [Peer(port).send(hello(b"", b"", 0, 0, session=owner.session)) for _ in range(3)]
        await owner.until(lambda: registration.refusals == ["taken"] * 3)
        hub.deliver(0, b"a question", answers.append)
        hub.flush()
        owner.say(Type.ANSWER, *packet.answers(0, [[b"an answer"]]))
        await owner.until(lambda: answers == [[b"an answer"]])
        assert registration.gone_reasons == []
        await asyncio.sleep(2.5 * HEARTBEAT_S)
        back = Peer(port).send(hello(b"", b"", 0, 0, session=owner.session))
        await until(lambda: len(registration.offers) == 2)
        for peer in (owner.peer, *thieves, back):
            peer.close()


@pytest.mark.slow
def test_strangers_that_say_nothing_leave_room_for_honest_workers(tmp_path: Path) -> None:
    what = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 5})
    with ServerProcess(what, tmp_path / "run", heartbeat_s=5.0) as server:
        before, gate = server.descriptors, Gate()
        gate.open_to(2**32)
        silent = [Caller(server.port) for _ in range(300)]
        worker = Worker(what, server.endpoint, ((0, 7),), gate)
        too_many = len(silent) - STRANGERS_OF_A_HOST
        server.wait_for(lambda: server.refusals()["too-many-connections"] >= too_many, "hangs up on the oldest")
        # ZeroMQ's own thread closes what was hung up on, a moment later
        most = before + STRANGERS_OF_A_HOST + 16
        server.wait_for(lambda: server.descriptors <= most, "closes the connections that it hung up on")
        assert server.results()["rounds"] == 5
        for caller in silent:
            caller.close()
        worker.end()


class Waiting(SimpleNamespace):
    """A registration whose run has begun and waits for clients."""

    missing: Any
    has_begun: bool = True
    can_go_on: bool = False
    could_go_on: bool = False
    rounds_closed: int = 0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A wall clock that the test sets, in seconds."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(patience, "wall_seconds", lambda: now.s)
    return now


def test_an_offer_that_is_passed_along_for_ever_holds_up_the_end_of_a_run_once(now: SimpleNamespace) -> None:
    guard, waiting = Patience(Placement("tcp", patience_s=10.0, join_s=30.0)), Waiting(missing={7}, could_go_on=True)
    for now.s in range(0, 40, 2):
        guard.check(waiting, 0)
    with pytest.raises(Unfinishable, match=r"no process has hosted 1 client \(7\) for 40 s"):
        for now.s in range(40, 46, 2):
            guard.check(waiting, 0)


def test_a_run_whose_clients_nobody_is_offered_ends_after_its_patience(now: SimpleNamespace) -> None:
    guard, waiting = Patience(Placement("tcp", patience_s=10.0, join_s=30.0)), Waiting(missing={3, 7})
    for now.s in range(0, 12, 2):
        guard.check(waiting, 0)
    now.s = 12
    with pytest.raises(Unfinishable, match=r"no process has hosted 2 clients \(3, 7\) for 10 s"):
        guard.check(waiting, 0)


def test_a_server_that_was_stopped_does_not_take_that_for_the_absence_of_its_clients(now: SimpleNamespace) -> None:
    """Nobody can come back to a server that a suspended job, or Ctrl-Z, has stopped."""
    guard, waiting = Patience(Placement("tcp", patience_s=10.0, join_s=30.0)), Waiting(missing={7})
    for now.s in (2, 4, 1000):
        guard.check(waiting, 0)
    with pytest.raises(Unfinishable, match=r"no process has hosted 1 client \(7\) for 10 s"):
        for now.s in range(1002, 1010, 2):
            guard.check(waiting, 0)


def test_a_round_that_closes_gives_a_run_all_its_time_again(now: SimpleNamespace) -> None:
    guard, waiting = Patience(Placement("tcp", patience_s=10.0, join_s=30.0)), Waiting(missing={7}, could_go_on=True)
    for now.s in range(0, 400, 2):
        waiting.rounds_closed = now.s // 38
        guard.check(waiting, now.s // 19)


def test_processes_that_join_and_answer_nothing_end_a_run_without_rounds(now: SimpleNamespace) -> None:
    guard, there = Patience(Placement("tcp", answer_s=5.0)), Waiting(missing=set(), can_go_on=True, rounds_closed=4)
    for stalls in range(MAX_STALLS):
        guard.check(there, stalls)
    with pytest.raises(Unfinishable, match=r"round 4: 3 processes joined and did not answer for 5 s each"):
        guard.check(there, MAX_STALLS)


async def test_connections_that_come_and_go_faster_than_they_are_heard_of_are_not_taken_for_others() -> None:
    """Of 400 connections, one after the other, none is left, and the hub hangs up on none in place of another."""
    registration = OneClientRegistration(b"")
    async with hub_at(registration) as (_, port):

        def come_and_go() -> None:
            for _ in range(400):
                with Peer(port) as peer:
                    peer.send(b"x").send(b"x").end()
                    peer.is_hung_up()

        await asyncio.to_thread(come_and_go)
        await until(lambda: len(registration.refusals) >= 800)
    assert registration.refusals == ["short-packet"] * 800


@pytest.mark.parametrize(("size", "is_let_in"), [(900 * 12, True), (900 * 40, False)])
async def test_a_join_may_hold_the_version_of_each_client(size: int, is_let_in: bool) -> None:
    """Clients that return after some rounds may all be at different versions."""
    registration = FakeRegistration((0, 899))
    hub = Hub(Entrance("tcp://127.0.0.1:*", rights=lambda is_own, user: STRANGER), bytes(8), limits=Limits(HEARTBEAT_S))
    hub.start(registration)
    try:
        member = Member(int(hub.endpoint.rpartition(":")[2]))
        await member.offered()
        long = encode(Envelope(Kind.JOIN, HOST, 0, 0, [[[0, 899]], bytes(size)]))[0]
        member.say(Type.POST, packet.entry(long))
        await until(lambda: bool(registration.hosts) or "too-long" in registration.refusals)
        assert bool(registration.hosts) == is_let_in
        member.peer.close()
    finally:
        await hub.close()
