"""Reports and plans of millions of bytes: the same bits on every transport, every byte counted, and no further than the
run says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from bus_harness import FakeRegistration
from clusters import ClientsThread, ServerThread
from hostile_peers import MORE, Peer, frame
from running_transports import SOCKET_TRANSPORTS, listening_hub
from tcp_proxy import CountingProxy
from wire_bytes import bytes_on_wire
from worlds import scenario

from seedbus.algorithms.contract import BadPayload, Packed
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HostRequest, Kind, read_ledger
from seedbus.bus.envelope import SHORT
from seedbus.bus.ledger import Fate
from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

SAME = ("rounds", "version", "digest", "ledger_hash", "metrics", "refusals", "simulated_s")
MILLION = 10**6


def vector(size: int, key: Any) -> bytes:
    """So many bytes that only this key has."""
    return np.random.default_rng([int(abs(part) * 1000) % 2**32 for part in np.ravel(key)]).bytes(size)


class Bulky(DeComFL, frozen=True):
    """DeComFL whose plans and reports carry vectors that follow from what they say, and are checked.

    size: bytes that a vector has; boast: by so many a report of round 1 is longer than the run says.
    """

    size: ClassVar[int] = 5 * MILLION
    boast: ClassVar[int] = 0

    def report_bytes(self, dimension: int) -> int:
        return self.size

    def pack_plan(self, plan: Any) -> Packed:
        packed = super().pack_plan(plan)
        return packed._replace(body=[*packed.body, vector(self.size, plan.round)])

    def unpack_plan(self, body: Any, round: int, version: int) -> Any:
        if body[-1] != vector(self.size, round):
            raise BadPayload("a plan came with another vector")
        return super().unpack_plan(body[:-1], round, version)

    def pack_report(self, plan: Any, report: Any) -> Packed:
        packed = super().pack_report(plan, report)
        size = SHORT + self.size + self.boast if self.boast and plan.round == 1 else self.size
        return packed._replace(body=[*packed.body, vector(size, report)])

    def unpack_report(self, body: Any, plan: Any) -> Any:
        report = super().unpack_report(body[:-1], plan)
        if body[-1] != vector(self.size, report):
            raise BadPayload("a report came with another vector")
        return report


class Boastful(Bulky, frozen=True):
    size: ClassVar[int] = MILLION
    boast: ClassVar[int] = 1


def bulky(algorithm: type[Bulky] = Bulky, **changes: Any) -> Scenario:
    small = scenario(
        **({"participation": {"clients": 4, "cohort": 3}, "stop": {"rounds": 3}, "verify": False} | changes)
    )
    return small.model_copy(update={"algorithm": algorithm(perturbations=3, learning_rate=0.01)})


def same(results: Results) -> dict[str, Any]:
    return {name: results.summary[name] for name in SAME} | {"by_kind": results.summary["traffic"]["by_kind"]}


def by_two(what: Scenario, folder: Path, way: str) -> tuple[Results, tuple[int, int]]:
    """A run with two processes' worth of clients; and the bytes that a proxy has counted, over tcp."""
    bind = f"ipc://{folder}/hub" if way == "ipc" else "tcp://127.0.0.1:*"
    with ServerThread(what, folder / "run", expect=2, bind=bind, transport=way) as server:
        with CountingProxy(server.port if way == "tcp" else 0) as proxy:
            endpoint = proxy.endpoint if way == "tcp" else bind
            hosts = [ClientsThread(what, endpoint, HostRequest(evaluates=number == 0)) for number in range(2)]
            results = server.results()
            for host in hosts:
                host.join(10)
                assert host.failure is None
        return results, (proxy.up, proxy.down)


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Bulky], Results]:
    return {each: run(bulky(each), tmp_path_factory.mktemp("memory") / "run") for each in (Bulky, Boastful)}


def test_long_reports_count_in_memory(in_memory: dict[type[Bulky], Results]) -> None:
    summary = in_memory[Bulky].summary
    assert summary["version"] == 3 and summary["refusals"] == {}
    assert summary["traffic"]["by_kind"]["report"]["bytes"] > 3 * 3 * 5 * MILLION


@pytest.mark.parametrize("way", SOCKET_TRANSPORTS)
def test_long_reports_make_the_same_run_on_every_transport(
    tmp_path: Path, in_memory: dict[type[Bulky], Results], way: str
) -> None:
    results = run(bulky(), tmp_path / "run", placement=Placement(way, heartbeat_s=0.2))
    assert same(results) == same(in_memory[Bulky])


@pytest.mark.parametrize("way", ["ipc", "tcp"])
def test_long_reports_of_two_processes_are_counted_to_the_byte(
    tmp_path: Path, in_memory: dict[type[Bulky], Results], way: str
) -> None:
    results, counted = by_two(bulky(), tmp_path, way)
    assert {name: results.summary[name] for name in SAME} == {name: in_memory[Bulky].summary[name] for name in SAME}
    ledger = bytes_on_wire(results, up=True), bytes_on_wire(results, up=False)
    assert way != "tcp" or ledger == counted


@pytest.mark.parametrize("way", ["memory", *SOCKET_TRANSPORTS])
def test_reports_that_are_too_long_are_named_and_stop_nothing(
    tmp_path: Path, in_memory: dict[type[Bulky], Results], way: str
) -> None:
    results = run(bulky(Boastful), tmp_path / "run", placement=Placement(way, heartbeat_s=0.2))
    assert same(results) == same(in_memory[Boastful])
    summary, rows = results.summary, read_ledger(results.folder / "messages")
    assert summary["rounds"] == 3 and summary["version"] == 2
    refused = rows["recipient"][(rows["round"] == 1) & (rows["kind"] == Kind.PLAN)]
    assert summary["refusals"] == {"malformed": {str(client): 1 for client in sorted(refused.tolist())}}
    is_refused = rows["fate"] == Fate.REFUSED
    assert is_refused.sum() == 3 and (rows["round"][is_refused] == 1).all()


@pytest.mark.slow
def test_what_is_slow_to_come_counts_as_life(tmp_path: Path) -> None:
    """Reports that take many heartbeats, at a megabyte a second."""
    what = bulky(Boastful, participation={"clients": 2}, stop={"rounds": 1})
    with ServerThread(what, tmp_path / "run", heartbeat_s=0.1) as server, CountingProxy(server.port, MILLION) as proxy:
        host = ClientsThread(what, proxy.endpoint)
        assert server.results().summary["version"] == 1
        host.join(10)
    assert host.failure is None and server.watcher.gone == 0 and server.watcher.joined == 1


async def test_strangers_may_send_no_more_than_in_any_other_run(tmp_path: Path) -> None:
    """Of one message, whole or not: of a HELLO's length, and then they are hung up on; ZeroMQ itself cuts off what is
    longer than a member's."""
    async with listening_hub("tcp", tmp_path, report_limit=50 * MILLION) as (hub, _):
        registration, port = FakeRegistration((0, 3)), int(hub.endpoint.rpartition(":")[2])
        hub.start(registration)
        for message in (frame(bytes(HELLO_BYTES)) + frame(bytes(HELLO_BYTES + 1)), frame(bytes(2**20), MORE) * 20):
            with await asyncio.to_thread(Peer, port) as peer:
                await asyncio.to_thread(peer.raw, message)
                assert await asyncio.to_thread(peer.is_hung_up)
        assert registration.refusals == ["protocol", "too-long", "too-many-refusals", "unfinished-message"]
