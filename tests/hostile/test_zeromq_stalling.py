"""Peers that stall: who says, takes or answers nothing is gone, and whoever comes in its place goes on from there."""

from __future__ import annotations

import asyncio
import signal
import socket
import statistics
import threading
from pathlib import Path

import pytest
from clusters import Following, Serving
from gates import Gate
from hostile_arena import Arena, Worker
from hostile_peers import HOST as LOCALHOST
from hostile_server import ServerProcess
from hub_peers import HEARTBEAT_S, WHAT, Door, Member, hub_at, pinging
from processes import kill, seedbus
from worlds import go, scenario

from seedbus.agents.client.worker import prove
from seedbus.bus import HostRequest
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Type
from seedbus.bus.zeromq.server.router_socket import MISSED
from seedbus.scenarios.running.prepare import bind

SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")


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
        port, proof = server.port, prove(what.algorithm, bind(what))
        guest = pinging(port, proof, lambda: not server.is_alive())
        good = Following(what, server.watcher.endpoint, HostRequest(((0, 6),)))
        summary = server.results().summary
        guest.join(5)
        good.join(10)
    assert (summary["rounds"], summary["version"]) == (5, 5) and set(summary["refusals"]) <= {"late"}
