"""Reports and plans of millions of bytes: the same bits on every transport, every byte counted, and a length limit
set by the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from bus_harness import FakeRegistration
from clusters import ClientsThread, ServerThread
from hostile_peers import MORE, Peer, frame
from own_task import own
from running_transports import SOCKET_TRANSPORTS, listening_hub, until
from tcp_proxy import CountingProxy
from wire_bytes import bytes_on_wire
from worlds import scenario

from seedbus.algorithms.contract import BadPayload, Packed, Sizes
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HostRequest, Kind, read_ledger
from seedbus.bus.envelope import SHORT
from seedbus.bus.ledger import Fate
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES
from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.possible import refuse_size
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

SAME = ("rounds", "version", "digest", "ledger_hash", "metrics", "refusals", "simulated_s")
MILLION = 10**6


def vector(size: int, key: Any) -> bytes:
    """Return `size` bytes that are unique to the key."""
    return np.random.default_rng([int(abs(part) * 1000) % 2**32 for part in np.ravel(key)]).bytes(size)


class Bulky(DeComFL, frozen=True):
    """DeComFL whose plans and reports also carry vectors that are derived from their content and checked.

    Attributes:
        size: bytes of a vector.
        boast: bytes by which a report of round 1 exceeds the run's limit.
    """

    size: ClassVar[int] = 5 * MILLION
    boast: ClassVar[int] = 0

    def sizes(self, dimension: int, clients: int) -> Sizes:
        return Sizes(self.size)

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


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Bulky], Results]:
    return {each: run(bulky(each), tmp_path_factory.mktemp("memory") / "run") for each in (Bulky, Boastful)}


def test_long_reports_are_counted_in_memory(in_memory: dict[type[Bulky], Results]) -> None:
    summary = in_memory[Bulky].summary
    assert summary["version"] == 3 and summary["refusals"] == {}
    assert summary["traffic"]["by_kind"]["report"]["bytes"] > 3 * 3 * 5 * MILLION


@pytest.mark.slow
@pytest.mark.parametrize("transport", SOCKET_TRANSPORTS)
def test_long_reports_make_the_same_run_on_every_transport(
    tmp_path: Path, in_memory: dict[type[Bulky], Results], transport: str
) -> None:
    results = run(bulky(), tmp_path / "run", placement=Placement(transport, heartbeat_s=0.2))
    assert same(results) == same(in_memory[Bulky])


@pytest.mark.slow
def test_long_reports_of_two_hosts_are_counted_to_the_byte(
    tmp_path: Path, in_memory: dict[type[Bulky], Results]
) -> None:
    what = bulky()
    with ServerThread(what, tmp_path / "run", expect=2) as server, CountingProxy(server.port) as proxy:
        hosts = [ClientsThread(what, proxy.endpoint, HostRequest(evaluates=number == 0)) for number in range(2)]
        results = server.results()
        for host in hosts:
            host.join()
            assert host.failure is None
    assert {name: results.summary[name] for name in SAME} == {name: in_memory[Bulky].summary[name] for name in SAME}
    assert (bytes_on_wire(results, up=True), bytes_on_wire(results, up=False)) == (proxy.up, proxy.down)


@pytest.mark.parametrize("transport", ["memory", *SOCKET_TRANSPORTS])
def test_reports_that_are_too_long_are_refused_by_name_and_the_run_continues(
    tmp_path: Path, in_memory: dict[type[Bulky], Results], transport: str
) -> None:
    results = run(bulky(Boastful), tmp_path / "run", placement=Placement(transport, heartbeat_s=0.2))
    assert same(results) == same(in_memory[Boastful])
    summary, rows = results.summary, read_ledger(results.folder / "messages")
    assert summary["rounds"] == 3 and summary["version"] == 2
    refused = rows["recipient"][(rows["round"] == 1) & (rows["kind"] == Kind.PLAN)]
    assert summary["refusals"] == {"malformed": {str(client): 1 for client in sorted(refused.tolist())}}
    is_refused = rows["fate"] == Fate.REFUSED
    assert is_refused.sum() == 3 and (rows["round"][is_refused] == 1).all()


@pytest.mark.slow
def test_a_slow_long_message_counts_as_a_sign_of_life(tmp_path: Path) -> None:
    """A report takes many heartbeats at one megabyte a second."""
    what = bulky(Boastful, participation={"clients": 2}, stop={"rounds": 1})
    with ServerThread(what, tmp_path / "run", heartbeat_s=0.1) as server, CountingProxy(server.port, MILLION) as proxy:
        host = ClientsThread(what, proxy.endpoint)
        assert server.results().summary["version"] == 1
        host.join()
    assert host.failure is None and server.watcher.gone == 0 and server.watcher.joined == 1


async def test_long_reports_do_not_raise_the_limit_for_strangers(tmp_path: Path) -> None:
    """The limit is that of a HELLO, for a complete or partial message; then the connection is closed. ZeroMQ itself
    cuts off
    a message that is longer than a member's."""
    async with listening_hub("tcp", tmp_path, report_limit=50 * MILLION) as (hub, _):
        registration, port = FakeRegistration((0, 3)), int(hub.endpoint.rpartition(":")[2])
        hub.start(registration)
        most = HELLO_BYTES + CHECKSUM_BYTES
        for message in (frame(bytes(most)) + frame(bytes(most + 1)), frame(bytes(2**20), MORE) * 20):
            with await asyncio.to_thread(Peer, port) as peer:
                await asyncio.to_thread(peer.raw, message)
                assert await asyncio.to_thread(peer.is_hung_up)
        expected = ["protocol", "too-long", "too-many-refusals", "unfinished-message"]
        await until(lambda: len(registration.refusals) >= len(expected))  # a thread of its own cuts connections off
        assert registration.refusals == expected


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [("fedavg", 67092464), ("fedcm", 33546240), ("fedacg", 33546240), ("feddc", 33546224)],
)
def test_a_model_that_no_message_can_hold_is_refused_before_it_is_loaded(
    algorithm: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedCM sends a second vector down, FedDC in both directions; FedACG's evaluator is sent two models."""

    def bound(dimension: int, **fields: Any) -> Any:
        task = {"name": "quadratic", "dimension": dimension}
        return bind(scenario(task=task, algorithm={"name": algorithm}, **fields))

    def no_problem(task: Any, **_: Any) -> Any:
        raise DataError("quadratic", f"{task.dimension} coordinates", "nothing")

    monkeypatch.setattr("seedbus.models.tasks.quadratic.Quadratic.bind", no_problem)
    monkeypatch.setattr("seedbus.scenarios.running.possible.LONGEST_VECTORS", 2**28 - SHORT)
    what = f"sends models, and a message with the {most + 1:,} coordinates of task quadratic takes 268,"
    with pytest.raises(ScenarioError, match=what):
        bound(most + 1)
    for fields in ({"dimension": most}, {"dimension": most + 1, "mask": {"rule": "random", "density": 0.5}}):
        with pytest.raises(DataError):
            bound(**fields)


@pytest.mark.parametrize(
    ("compression", "most"),
    [("none", 2**31), ("fixed-point", 2**30 - 17), ({"kind": "top-k", "fraction": 0.5}, 2**31 - 2), ("qsgd", 2**31)],
)
def test_a_vector_that_a_codec_makes_one_string_of_that_msgpack_has_not_is_refused(compression: Any, most: int) -> None:
    fields = {} if compression == "none" else {"compression": compression, "weighting": "uniform"}
    what = scenario(algorithm={"name": "fedavg", **fields})
    refuse_size(what, most)
    if most < 2**31:
        with pytest.raises(
            ScenarioError, match=r"compression makes one string of 4,294,967,\d+ bytes .* 4,294,967,295 a"
        ):
            refuse_size(what, most + 1)


def test_a_state_that_no_journal_can_hold_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    what = scenario(algorithm={"name": "mifa"}, task={"name": "quadratic", "dimension": 25})
    clients = what.participation.clients
    monkeypatch.setattr("seedbus.scenarios.running.possible.LARGEST_STATE", 100 * (1 + clients))
    assert bind(what)
    with pytest.raises(
        ScenarioError, match=rf"mifa keeps {104 * (1 + clients):,} bytes at the server, for {clients} cl"
    ):
        bind(what.model_copy(update={"task": what.task.model_copy(update={"dimension": 26})}))


def test_a_custom_model_that_no_message_can_hold_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbus.scenarios.running.possible.LONGEST_VECTORS", 100)
    with pytest.raises(ScenarioError, match=r"the \d+ coordinates of task torch takes \d+ bytes; at most 100 are"):
        run(scenario(algorithm={"name": "fedavg"}), tmp_path / "run", task=own())
    assert not (tmp_path / "run").exists()
