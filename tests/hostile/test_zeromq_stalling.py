"""Stalling peers: one that sends, receives or answers nothing is removed, and its replacement goes on from there."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from gates import Gate
from hostile_peers import HOST as LOCALHOST
from hostile_peers import frame
from hostile_run import HostileRun, Worker
from hostile_server import ServerProcess
from hub_peers import HEARTBEAT_S, WHAT, Member, OneClientRegistration, hub_at, pinging
from processes import kill, seedbus
from running_transports import until
from worlds import go, scenario

from seedbus.agents.client.worker import prove
from seedbus.bus import HostRequest
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.heartbeat import LOOKS
from seedbus.bus.zeromq.packet import Type
from seedbus.bus.zeromq.server import hub as hub_module
from seedbus.bus.zeromq.server.connection import STRANGERS_STRIKES
from seedbus.bus.zeromq.server.router_socket import MISSED
from seedbus.scenarios.running.prepare import bind

SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")
LONG_S = 1000.0  # a heartbeat that never comes by itself


async def test_a_silent_peer_is_gone_after_three_heartbeats() -> None:
    registration = OneClientRegistration(b"")
    async with hub_at(registration) as (_, port):
        began = time.monotonic()
        member = Member(port)
        await member.offered()
        await member.until(lambda: bool(registration.gone_reasons), pings=0)
        assert time.monotonic() - began > MISSED * HEARTBEAT_S
        assert "said nothing for 3 heartbeats" in registration.gone_reasons[0]
        member.peer.close()


@pytest.mark.parametrize("end", [frame(b"damaged" * 4), frame(b"")], ids=["damaged", "empty"])
async def test_the_refusal_that_ends_a_strangers_connection_ends_its_session_once(end: bytes) -> None:
    registration = OneClientRegistration(b"")
    failures: list[dict[str, Any]] = []  # any of which ends a run
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    async with hub_at(registration, heartbeat_s=LONG_S) as (_, port):
        stranger = Member(port)
        await stranger.offered()
        for _ in range(STRANGERS_STRIKES - 1):
            stranger.say(Type.POST)
        stranger.peer.raw(end)
        await until(lambda: bool(registration.gone_reasons))
        other = Member(port)
        await other.offered()
        assert len(registration.gone_reasons) == 1 and not failures
        for each in (stranger, other):
            each.peer.close()


async def test_a_member_that_was_stopped_and_wakes_up_is_gone_and_not_refused() -> None:
    registration = OneClientRegistration(b"")
    async with hub_at(registration) as (_, port):
        member = Member(port)
        await member.offered()
        member.join()
        await member.until(lambda: bool(registration.hosts))
        await member.until(lambda: bool(registration.gone_reasons), pings=0)
        await member.pass_time(HEARTBEAT_S)
        assert member.peer.is_hung_up() and not registration.refusals
        member.peer.close()


@pytest.mark.parametrize("looks_before", [0, 1, LOOKS // 3, LOOKS - 1])
async def test_silence_is_noticed_after_three_heartbeats_whenever_in_one_it_begins(
    looks_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not four: the silence is measured from when it begins, not from the next heartbeat."""
    registration, now = OneClientRegistration(b""), SimpleNamespace(s=1000.0)
    monkeypatch.setattr(hub_module, "wall_seconds", lambda: now.s)
    async with hub_at(registration, heartbeat_s=LONG_S) as (hub, port):
        member = Member(port)
        await member.offered()

        def look(number: int) -> None:
            """Let a part of a heartbeat pass; `number`: which one since the last."""
            now.s += LONG_S / LOOKS
            hub._look()
            if number % LOOKS == 0:
                hub._tick()

        for number in range(1, looks_before + 1):
            look(number)
        (session,) = hub._sessions.values()
        member.say(Type.PING)
        await until(lambda: session._was_heard)
        looks = 0
        while not registration.gone_reasons:
            looks += 1
            look(looks_before + looks)
        assert looks == MISSED * LOOKS
        member.peer.close()


@pytest.mark.slow
async def test_a_peer_that_receives_nothing_is_gone() -> None:
    """The system's buffers fill up, then ZeroMQ's queue, and then the hub cannot send."""
    registration = OneClientRegistration(bytes(2**24))
    async with hub_at(registration) as (_, port):
        member = Member(port)
        member.peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await member.offered()
        await member.until(lambda: bool(registration.gone_reasons), pings=5)
        assert "took nothing for 3 heartbeats" in registration.gone_reasons[0]
        member.peer.close()


@pytest.mark.slow
async def test_a_peer_that_is_offered_clients_and_never_joins_is_gone() -> None:
    registration, began = OneClientRegistration(b""), time.monotonic()
    async with hub_at(registration, join_s=0.5) as (_, port):
        member = Member(port)
        await member.offered()
        await member.until(lambda: bool(registration.gone_reasons))
        assert time.monotonic() - began >= 0.5
        assert "has not joined for" in registration.gone_reasons[0]
        member.peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("redelivers", [True, False])
async def test_a_member_that_pings_and_never_answers_is_gone(redelivers: bool) -> None:
    """What it has not answered is delivered to its replacement, or is answered with nothing."""
    registration, answers = OneClientRegistration(b""), list[list[bytes]]()
    async with hub_at(registration, answer_s=0.5, redelivers=redelivers) as (hub, port):
        member = Member(port)
        await member.offered()
        member.join()
        await member.until(lambda: bool(registration.hosts))
        began = time.monotonic()
        hub.deliver(0, b"a question", answers.append)
        hub.flush()
        await member.until(lambda: bool(registration.gone_reasons))
        assert time.monotonic() - began >= 0.5
        assert "has not answered" in registration.gone_reasons[0]
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
    """ZeroMQ's own thread blocks while more events of connections wait to be read than its queue holds."""

    async def close() -> None:
        async with hub_at(OneClientRegistration(b"")) as (_, port):
            with suppress(TimeoutError):  # then its thread accepts no more, for this one does not read meanwhile
                for _ in range(4000):
                    socket.create_connection((LOCALHOST, port), timeout=1.0).close()

    thread = threading.Thread(target=asyncio.run, args=(close(),), daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_process_that_stands_still_is_found_out_and_comes_again(tmp_path: Path) -> None:
    """The process is stopped, not killed: its connection stays half open. Its heartbeat is so long that no other is."""
    gate = Gate()
    with ServerProcess(WHAT, tmp_path / "run", heartbeat_s=2.0) as server:
        good = Worker(WHAT, server.endpoint, ((0, 3),), gate)
        clients = ["--clients", "4-7", "--quiet"]
        stopped = seedbus("client", "--connect", server.endpoint, *clients)
        try:
            gate.open_to(5)
            server.wait_for(lambda: server.ask()["rounds"] >= 5, "begins")
            before = server.ask()
            kill(stopped.pid, signal.SIGSTOP)
            gate.open_to(2**32)
            server.wait_for(lambda: "clients 4…7" not in server.ask()["hosting"], "finds it out")
            kill(stopped.pid, signal.SIGCONT)
            summary = server.results()
            assert server.ask()["joined"] > before["joined"] and stopped.wait() == 0
            assert not summary["refusals"]
        finally:
            kill(stopped.pid, signal.SIGKILL)
            stopped.communicate()
            gate.open_to(2**32)
        good.end()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}


@pytest.mark.slow
def test_a_member_that_only_pings_is_followed_by_one_that_works(tmp_path: Path) -> None:
    """In simulated time the run waits for it, but not for ever."""
    with HostileRun(WHAT, tmp_path / "run", heartbeat_s=2.0, answer_s=5.0) as hostile_run:
        server = hostile_run.server
        hostile_run.stop_worker()
        server.wait_for(lambda: "client 7" not in server.ask()["hosting"], "lets it leave")
        joined, is_over = server.ask()["joined"], threading.Event()
        guest = pinging(server.port, hostile_run.proof, is_over.is_set)
        server.wait_for(lambda: server.ask()["joined"] > joined, "lets it join")
        hostile_run.gate.open_to(2**32)
        server.wait_for(lambda: "client 7" not in server.ask()["hosting"], "gives it up")
        is_over.set()
        guest.join()
        hostile_run.start_worker()
        summary = server.results()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}


@pytest.mark.slow
def test_in_real_time_nobody_waits_for_a_member_that_only_pings(tmp_path: Path) -> None:
    changes = {"clock": "wall", "participation": {"clients": 8, "deadline_s": 5.0}, "network": {}}
    what = scenario(**changes, stop={"rounds": 2})
    with ServerThread(what, tmp_path / "run") as server:
        port, proof = server.port, prove(what.algorithm, bind(what))
        guest = pinging(port, proof, lambda: not server.is_alive())
        good = ClientsThread(what, server.watcher.endpoint, HostRequest(((0, 6),)))
        summary = server.results().summary
        guest.join()
        good.join()
    assert (summary["rounds"], summary["version"]) == (2, 2) and set(summary["refusals"]) <= {"late"}
