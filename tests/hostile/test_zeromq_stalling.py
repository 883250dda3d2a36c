"""Peers that stall: who says, takes or answers nothing is gone, and whoever comes in its place goes on from there."""

from __future__ import annotations

import asyncio
import signal
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bus_harness import Desk
from clusters import Following, Serving
from gates import Gate
from hostile_arena import Arena, Worker
from hostile_guests import Guest
from hostile_parcels import hello
from hostile_peers import HOST as LOCALHOST
from hostile_peers import Peer
from hostile_server import ServerProcess
from processes import kill, seedbus
from worlds import go, scenario

from seedbus.agents.client.worker import prove
from seedbus.bus import HOST, Declined, Envelope, HostRequest, Kind, Offer, encode
from seedbus.bus.transport import ANYBODY, OPERATOR, Rights
from seedbus.bus.zeromq import Hub, Limits
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Type
from seedbus.bus.zeromq.server.router_socket import MISSED
from seedbus.scenarios.running.prepare import bind

HEARTBEAT_S = 0.1
WHAT = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 60})
SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")


class Door(Desk):
    """A reception for client 0 that notes why somebody has gone. scenario: what it tells of the run."""

    def __init__(self, scenario: bytes) -> None:
        super().__init__((0, 0), evaluates=False)
        self._scenario = scenario
        self.why: list[str] = []

    def greet(self, wish: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        answer = super().greet(wish)
        return replace(answer, scenario=self._scenario) if isinstance(answer, Offer) else answer

    def gone(self, host: int, why: str) -> None:
        super().gone(host, why)
        self.left.append((0, 0))
        self.why.append(why)


@asynccontextmanager
async def hub_at(door: Door, *, redelivers: bool = True, **options: Any) -> AsyncIterator[tuple[Hub, int]]:
    """A hub, and its port."""
    limits, anybody = Limits(HEARTBEAT_S, **options), lambda is_own, user: ANYBODY
    hub = Hub("tcp://127.0.0.1:*", bytes(8), limits=limits, redelivers=redelivers, rights=anybody)
    hub.start(door)
    try:
        yield hub, int(hub.endpoint.rpartition(":")[2])
    finally:
        await hub.close()


class Member:
    """A peer that hosts client 0, on the loop's own thread: it never waits for the hub."""

    def __init__(self, port: int) -> None:
        self.peer = Peer(port).send(hello(b"", b"", 0, 0))

    async def offered(self) -> None:
        """Read no more of the offer than whose session it is."""
        self.peer.socket.setblocking(False)
        head, loop = b"", asyncio.get_running_loop()
        while len(head) < 18:
            head += await loop.sock_recv(self.peer.socket, 18 - len(head))
        self.peer.socket.setblocking(True)
        self.session = head[10:] if head[0] & 2 else head[3:11]

    def say(self, type: Type, *content: bytes) -> None:
        self.peer.send(packet.packet(type, self.session, *content))

    def join(self) -> None:
        self.say(Type.POST, packet.entry(encode(Envelope(Kind.JOIN, HOST, 0, 0, [[[0, 0]]]))[0]))

    async def pass_time(self, seconds: float) -> None:
        """Live on for a while."""
        until_s = time.monotonic() + seconds
        await self.until(lambda: time.monotonic() > until_s)

    async def until(self, is_over: Callable[[], bool], *, pings: int = 1, step_s: float = HEARTBEAT_S / 4) -> float:
        """Live on, until something has come about; how long that took."""
        began = time.monotonic()
        while not is_over():
            for _ in range(pings):
                self.say(Type.PING)
            await asyncio.sleep(step_s)
            assert time.monotonic() < began + 60
        return time.monotonic() - began


async def test_whoever_says_nothing_is_gone_after_three_heartbeats() -> None:
    door = Door(b"")
    async with hub_at(door) as (_, port):
        member = Member(port)
        await member.offered()
        took_s = await member.until(lambda: bool(door.why), pings=0)
        assert (MISSED - 0.1) * HEARTBEAT_S < took_s
        assert "said nothing for 3 heartbeats" in door.why[0]
        member.peer.close()


async def test_silence_is_noticed_after_three_heartbeats_whenever_in_one_it_begins() -> None:
    """Not four: the moment at which it begins counts, and not the heartbeat after it."""
    took = []
    for phase in range(3):
        door = Door(b"")
        async with hub_at(door) as (_, port):
            member = Member(port)
            await member.offered()
            await asyncio.sleep(HEARTBEAT_S * (1 + phase / 3))
            member.say(Type.PING)
            took.append(await member.until(lambda: bool(door.why), pings=0, step_s=0.002))  # noqa: B023
            member.peer.close()
    beats = [each / HEARTBEAT_S for each in took]
    print("\ngone after so many heartbeats:", ", ".join(f"{each:.2f}" for each in sorted(beats)))
    assert min(beats) > MISSED - 0.1 and statistics.median(beats) < MISSED + 0.4


async def test_whoever_takes_nothing_is_gone() -> None:
    """What the system's buffers do not hold waits in ZeroMQ, and what that does not hold waits for it in vain."""
    door = Door(bytes(2**24))
    async with hub_at(door) as (_, port):
        member = Member(port)
        member.peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await member.offered()
        await member.until(lambda: bool(door.why), pings=5)
        assert "took nothing for 3 heartbeats" in door.why[0]
        member.peer.close()


async def test_whoever_is_offered_clients_and_never_joins_is_gone() -> None:
    door = Door(b"")
    async with hub_at(door, join_s=0.5) as (_, port):
        member = Member(port)
        await member.offered()
        assert await member.until(lambda: bool(door.why)) >= 0.4
        assert "has not joined for" in door.why[0]
        member.peer.close()


@pytest.mark.parametrize("redelivers", [True, False])
async def test_whoever_lives_and_never_answers_is_gone(redelivers: bool) -> None:
    """What it owed goes to the next, or is answered with nothing."""
    door, answers = Door(b""), list[list[bytes]]()
    async with hub_at(door, answer_s=0.5, redelivers=redelivers) as (hub, port):
        member = Member(port)
        await member.offered()
        member.join()
        await member.until(lambda: bool(door.hosts))
        hub.deliver(0, b"a question", answers.append)
        hub.flush()
        assert await member.until(lambda: bool(door.why)) >= 0.4
        assert "has not answered" in door.why[0]
        member.peer.close()
        if redelivers:
            another = Member(port)
            await another.offered()
            another.join()
            another.say(Type.ANSWER, *packet.answers(0, [[b"an answer"]]))
            await another.until(lambda: bool(answers))
            another.peer.close()
    assert answers == [[b"an answer"]] if redelivers else [[]]


def test_a_hub_closes_amid_connections_that_it_has_not_heard_of() -> None:
    """ZeroMQ's own thread stands still while it has more to tell of connections than waits to be read."""

    async def close() -> None:
        async with hub_at(Door(b"")) as (_, port):
            for _ in range(1500):
                socket.create_connection((LOCALHOST, port)).close()

    thread = threading.Thread(target=asyncio.run, args=(close(),), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_process_that_stands_still_is_found_out_and_comes_again(tmp_path: Path) -> None:
    """It is stopped, not ended: its connection stays, half open."""
    gate = Gate()
    with ServerProcess(WHAT, tmp_path / "run") as server:
        good = Worker(WHAT, server.endpoint, ((0, 3),), gate)
        clients = ["--clients", "4-7", "--quiet"]
        stopped = seedbus("client", "--connect", server.endpoint, *clients)
        try:
            gate.open_to(5)
            server.wait_for(lambda: server.ask()["rounds"] >= 5, "begins")
            before = server.ask()
            kill(stopped.pid, signal.SIGSTOP)
            gate.open_to(2**32)
            server.wait_for(lambda: server.ask()["gone"] > before["gone"], "finds it out")
            kill(stopped.pid, signal.SIGCONT)
            summary = server.results()
            assert server.ask()["joined"] > before["joined"] and stopped.wait(60) == 0
        finally:
            kill(stopped.pid, signal.SIGKILL)
            stopped.communicate()
            gate.open_to(2**32)
        good.end()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}


def test_a_member_that_only_pings_is_followed_by_one_that_works(tmp_path: Path) -> None:
    """In simulated time everybody waits for it, but not for ever."""
    with Arena(WHAT, tmp_path / "run", answer_s=3.0) as arena:
        arena.vacate()
        guest = pinging(arena.server.port, arena.proof, lambda: arena.server.ask()["gone"] >= 2)
        arena.gate.open_to(2**32)
        arena.server.wait_for(lambda: arena.server.ask()["gone"] >= 2, "gives it up")
        guest.join(5)
        arena.occupy()
        summary = arena.server.results()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}


@pytest.mark.slow
def test_in_real_time_nobody_waits_for_a_member_that_only_pings(tmp_path: Path) -> None:
    changes = {"clock": "wall", "participation": {"clients": 8, "deadline_s": 1.0}, "network": {}}
    what = scenario(**changes, stop={"rounds": 5})
    with Serving(what, tmp_path / "run", heartbeat_s=1.0) as server:
        port, proof = int(server.watcher.endpoint.rpartition(":")[2]), prove(what.algorithm, bind(what))
        guest = pinging(port, proof, lambda: not server.is_alive())
        good = Following(what, server.watcher.endpoint, HostRequest(((0, 6),)))
        summary = server.results().summary
        guest.join(5)
        good.join(10)
    assert (summary["rounds"], summary["version"]) == (5, 5) and set(summary["refusals"]) <= {"late"}


def pinging(port: int, proof: dict[str, bytes], is_over: Callable[[], bool], *, joins: bool = True) -> threading.Thread:
    """A member, or one that might become one, that says nothing but that it is there."""
    guest = Guest(port, proof)
    if joins:
        guest.post(guest.join())

    def ping() -> None:
        with guest.peer:
            while not is_over():
                guest.say(Type.PING)
                time.sleep(0.05)

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    return thread
