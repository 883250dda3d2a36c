"""Slow links and slow starts: a slow message is no silence, and a peer that never joins is not waited for."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from bus_harness import FakeRegistration, Follower
from gates import Gate
from hostile_run import Worker
from hostile_server import ServerProcess
from hub_peers import WHAT, Member, OneClientRegistration, hub_at, pinging
from running_transports import echo, listening_hub, until
from tcp_proxy import CountingProxy
from worlds import go

from seedbus.agents.client.worker import prove
from seedbus.bus import Envelope, Kind, encode
from seedbus.bus.zeromq import Hub, Joining, follow
from seedbus.bus.zeromq.server.router_socket import MISSED
from seedbus.scenarios.running.prepare import bind

RATE = 4e6
HEARTBEAT_S = 1.0
LONG_S = 2.0 * MISSED * HEARTBEAT_S  # duration of a welcome; a peer that is silent for half of it counts as gone
SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")


class SlowRegistration(FakeRegistration):
    """A registration with very long welcome messages."""

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool]:
        super().admit(host, frame)
        return [encode(Envelope(Kind.WELCOME, host, 0, 0, [bytes(int(RATE * LONG_S))]))[0]], True


@asynccontextmanager
async def slow_hub(folder: Path) -> AsyncIterator[tuple[Hub, SlowRegistration]]:
    """A hub with its registration, and a follower at the end of a slow link."""
    registration = SlowRegistration((0, 3))
    async with listening_hub("tcp", folder, heartbeat_s=HEARTBEAT_S) as (hub, context):
        hub.start(registration)
        with CountingProxy(int(hub.endpoint.rpartition(":")[2]), rate=RATE) as proxy:
            make_follower = partial(Follower, handle=echo)
            thread = threading.Thread(target=partial(follow, Joining(proxy.endpoint), make_follower, context=context))
            thread.start()
            await until(lambda: bool(registration.hosts))
            yield hub, registration
            for host in sorted(registration.hosts):
                hub.post(host, encode(Envelope(Kind.BYE, host, 0, 0))[0])
            await until(lambda: not thread.is_alive())


@pytest.mark.slow
async def test_a_slow_welcome_and_a_queue_behind_it_are_not_mistaken_for_a_stalled_peer(tmp_path: Path) -> None:
    answers = list[list[bytes]]()
    async with slow_hub(tmp_path) as (hub, registration):
        for _ in range(200):  # more than ZeroMQ buffers for one peer
            hub.deliver(1, b"a question", answers.append)
            hub.flush()
        await until(lambda: len(answers) == 200)
        assert len(registration.offers) == 1 and registration.gone_hosts == []
        assert answers == [echo(b"a question")] * 200


async def test_a_member_keeps_its_clients_against_later_processes() -> None:
    registration = OneClientRegistration(b"")
    async with hub_at(registration) as (_, port):
        first = Member(port)
        await first.offered()
        first.join()
        await first.until(lambda: bool(registration.hosts))
        late = Member(port)
        await first.until(lambda: registration.refusals == ["no-clients"])
        assert registration.gone_reasons == []
        for member in (first, late):
            member.peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, False])
def test_a_stranger_that_never_joins_ends_no_run(tmp_path: Path, asked: bool) -> None:
    """A worker that requests the offered client gets it at once. If none does, the stranger is dropped after a while,
    and no process gives up before."""
    gate, join_s, is_over = Gate(), 300.0 if asked else 15.0, threading.Event()
    proof = prove(WHAT.algorithm, bind(WHAT))
    with ServerProcess(WHAT, tmp_path / "run", heartbeat_s=1.0, patience_s=10.0, join_s=join_s) as server:
        stays, leaves = Worker(WHAT, server.endpoint, ((0, 6),), gate), Worker(WHAT, server.endpoint, ((7, 7),))
        gate.open_to(5)
        server.wait_for(lambda: server.ask()["rounds"] >= 5, "begins")
        leaves.end()
        stranger = pinging(server.port, proof, is_over.is_set, joins=False)
        if not asked:
            server.wait_for(lambda: server.ask()["gone"] >= 2, "gives the stranger up")
        comes = Worker(WHAT, server.endpoint, ((7, 7),))
        server.wait_for(lambda: server.ask()["joined"] >= 3, "lets the worker in")
        assert server.ask()["gone"] == (1 if asked else 2)
        gate.open_to(2**32)
        summary = server.results()
        is_over.set()
        for worker in (stays, comes):
            worker.end()
        stranger.join()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}
