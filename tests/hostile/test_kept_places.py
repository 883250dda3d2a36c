"""The clients of a process that was cut off are kept for it, also where others could host them."""

from __future__ import annotations

import json
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from hostile_peers import HOST
from hub_peers import Member, OneClientRegistration, hub_at
from processes import logged, seedbus, wait_for
from tcp_proxy import CountingProxy
from worlds import HISO, lossy

from seedbus import run
from seedbus.bus import Declined, HostRequest, Offer
from seedbus.bus.transport import OPERATOR, Rights
from seedbus.bus.zeromq import packet as packet
from seedbus.scenarios.schema.yaml_text import dump


class Noting(OneClientRegistration):
    """A registration that notes by what peers are known, and how long the clients of those that go are kept."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.known_as: list[frozenset[str]] = []
        self.kept_s: list[float] = []

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        self.known_as.append(request.known_as)
        return super().greet(request, rights)

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        super().gone(host, why, kept_s)
        self.kept_s.append(kept_s)


async def test_a_member_is_known_by_its_first_session_however_often_it_is_cut_off() -> None:
    registration, session = Noting(), packet.NO_SESSION
    async with hub_at(registration, heartbeat_s=5.0, kept_s=7.0) as (_, port):
        for times, joins in enumerate((True, False, True, False), 1):
            member = Member(port, session)
            await member.offered()
            if joins:
                member.join()
                await member.until(lambda: bool(registration.hosts))
                registration.hosts.clear()
            member.peer.close()
            await member.until(lambda times=times: len(registration.kept_s) == times, pings=0)  # type: ignore[misc]
            session = member.session
        stranger = Member(port)
        await stranger.offered()
        stranger.peer.close()
    first, *later, other = registration.known_as
    assert later == [first] * 3 and len(first) == 2 and HOST in first and len(first & other) == 1
    assert registration.kept_s[:4] == [7.0, 0.0, 7.0, 0.0]


ELSEWHERE = "127.0.0.2"  # on loopback too, and another network host for the server
AWAY_S = 6  # several times as long as the newcomer waits before it asks again


@pytest.mark.slow
def test_a_worker_that_was_cut_off_gets_its_clients_again_though_another_host_asks_for_them(tmp_path: Path) -> None:
    scenario = lossy(algorithm=HISO, stop={"rounds": 300})
    (tmp_path / "what.yaml").write_text(dump(scenario.resolved()))
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    count = partial(logged, tmp_path / "run")
    begun = []
    with CountingProxy(port) as proxy:
        try:
            options = ("--bind", f"tcp://{HOST}:{port}", "--workers", 2, "--patience", 60)
            begun.append(seedbus("server", tmp_path / "what.yaml", *options, "--out", tmp_path / "run", "-q"))
            wait_for((tmp_path / "run" / "log.jsonl").exists)
            begun.append(seedbus("client", "--connect", f"tcp://{HOST}:{port}", "-q"))
            begun.append(seedbus("client", "--connect", proxy.endpoint, "-q"))
            wait_for(lambda: count("round") > 10)
            newcomer = seedbus("client", "--connect", f"tcp://{ELSEWHERE}:0;{HOST}:{port}", "--patience", 1000)
            begun.append(newcomer)
            wait_for(lambda: count("refused"))  # it has asked, and all clients have their processes
            proxy.target = 9  # nobody listens there
            proxy.cut()
            wait_for(lambda: count("gone"))
            joined = count("joined")
            time.sleep(AWAY_S)
            assert count("joined") == joined, "another process hosts its clients"
            proxy.target = port
            wait_for(lambda: count("joined") > joined)
            assert [each.wait() for each in begun[:3]] == [0, 0, 0]
            assert newcomer.poll() is None or newcomer.returncode == 0
        finally:
            for process in begun:
                process.kill()
                process.communicate()
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert found["digest"] == run(scenario, tmp_path / "alone", progress=False, page=False).digest
