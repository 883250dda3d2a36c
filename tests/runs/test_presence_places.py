"""Clients that leave and return, in processes that leave and return, in real time, and with a client that lies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from availability_scenarios import availability_scenario, churn, exponential
from bus_harness import bus_on
from clusters import ClientsThread, ServerThread
from coordinator_cases import PROOF
from processes import wait_for
from registration_harness import RegistrationHarness
from worker_kills import alike
from worlds import HISO, holds, scenario, stop_after

from seedbus.agents.availability import Availability
from seedbus.agents.errors import Unfinishable
from seedbus.agents.messages import Join, Span
from seedbus.agents.server.arrivals import Arrivals
from seedbus.bus import HOST, Envelope, FaultHooks, HostRequest, Kind, MemoryTransport, Offer, WallClock, decode, encode
from seedbus.scenarios.faults.late_joiners import LateJoiners
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

FAST = {"latency": {"distribution": "exponential", "mean": 0.002}}


# -- processes


class _Leaving(MemoryTransport):
    """A transport whose process is replaced at the worst moment: when it has just been sent a WAKE."""

    def __init__(self, made: Callable[[Offer], Any], at: int) -> None:
        super().__init__(made)
        self._made, self._at, self._woken = made, at, 0

    def start(self, registration: Any) -> None:
        super().start(registration)
        self._registration = registration

    def deliver(self, address: int, frame: bytes, answered: Any, tail: bytes = b"") -> None:
        self._woken += decode(frame).kind is Kind.WAKE
        if self._woken == self._at and decode(frame).kind is Kind.WAKE:
            self._registration.gone(HOST, "it was killed")
            super().start(self._registration)
        super().deliver(address, frame, answered, tail)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all at once", "churn from another run", "crash without state", "churn"])
@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_process_that_is_replaced_as_its_clients_wake_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    whole = run(availability_scenario(name), tmp_path / "whole")
    monkeypatch.setattr("seedbus.bus.MemoryTransport", lambda made, **how: _Leaving(made, at))
    assert alike(run(availability_scenario(name), tmp_path / "run"), whole)


# -- a client that lies


@dataclass
class _Insisting:
    """A follower whose client 1 answers everything with a JOIN of another run's version."""

    follower: Any
    version: int

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        self._proof = Join.unpack(decode(self.follower.join(host, nonce)[0])).proofs
        frames: list[bytes] = self.follower.join(host, nonce)
        return frames

    def welcome(self, frame: bytes) -> None:
        self.follower.welcome(frame)

    def handle(self, frame: bytes) -> list[bytes]:
        asked: Envelope = decode(frame)
        if asked.client != 1:
            answers: list[bytes] = self.follower.handle(frame)
            return answers
        return [encode(Join(1, (Span(1, 1, self.version),), **self._proof).pack())[0]]


@pytest.mark.few(1)
@pytest.mark.parametrize("version", [2**31, 0])
@pytest.mark.parametrize("latency", [exponential(0.1), {"distribution": "constant", "value": 0.0}])
def test_a_client_that_will_not_be_told_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, latency: dict[str, Any]
) -> None:
    what = scenario(faults=[churn(0.3, 0.1, clients=[1])], network={"latency": latency}, stop={"rounds": 40})
    monkeypatch.setattr(
        "seedbus.bus.MemoryTransport",
        lambda made, **how: MemoryTransport(lambda offer: _Insisting(made(offer), version)),
    )
    summary = run(what, tmp_path / "run").summary
    assert summary["version"] == 40
    assert summary["traffic"]["by_kind"].get("refuse", {"messages": 0})["messages"] <= 80
    assert all(set(who) == {"1"} for who in summary["refusals"].values())


# -- real time


def wall(**changes: Any) -> Scenario:
    participation = {"clients": 8, "cohort": 3, "deadline_s": 0.2} | changes.pop("participation", {})
    world = {"clock": "wall", "network": FAST, "participation": participation, "algorithm": HISO}
    return scenario(**(world | changes))


@pytest.mark.few(1)
@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.parametrize("returns", ["with-state", "without-state", "from-another-run"])
def test_comings_and_goings_in_real_time_end_and_replay(tmp_path: Path, transport: Any, returns: str) -> None:
    faults = [churn(0.1, 0.1, initially=0.5, returns=returns), {"fault": "late-joiners", "clients": [7], "at_round": 9}]
    results = run(wall(faults=faults), tmp_path / "run", placement=Placement(transport))
    assert results.summary["rounds"] == 20 and results.summary["version"] > 5 and holds(results)
    assert results.summary["traffic"]["by_kind"]["join"]["messages"] > 2


@pytest.mark.slow
def test_a_short_night_in_real_time_is_no_reason_to_give_up(tmp_path: Path) -> None:
    night = {"fault": "diurnal", "low": 0.0, "high": 1.0, "period_s": 1.0}
    what = wall(faults=[night], participation={"quorum": 3}, stop={"rounds": 150})
    placement = Placement("tcp", heartbeat_s=0.2, patience_s=0.1)
    results = run(what, tmp_path / "run", placement=placement)
    assert results.summary["rounds"] == 150 and holds(results)
    assert results.summary["simulated_s"] > 0.5


def test_in_real_time_too_there_is_an_end_to_waiting_for_those_who_have_gone_for_good(tmp_path: Path) -> None:
    with pytest.raises(Unfinishable, match="0 of 8 are there, and nobody comes or goes any more"):
        run(wall(faults=[{"fault": "crash"}]), tmp_path / "run")


@pytest.mark.slow
def test_a_process_does_not_bring_clients_that_the_scenario_keeps_away(tmp_path: Path) -> None:
    faults = [{"fault": "ramp", "start": 4, "stages": [{"rounds": 10, "target": 4}, {"rounds": 1, "target": 8}]}]
    what = wall(faults=faults, stop={"rounds": 300}, evaluation={"every": 50})
    with ServerThread(what, tmp_path / "run") as server:
        first = ClientsThread(what, server.watcher.endpoint, HostRequest(((0, 7),)))
        wait_for(lambda: server.watcher.rounds > 30 or not server.is_alive())
        results = server.results()
        first.join()
    assert holds(results)
    returned = [facts["client"] for event, facts in server.watcher.events if event == "returned"]
    assert len(returned) == 4, "they came by themselves, when it was time"
    assert results.summary["traffic"]["by_kind"]["join"]["messages"] == 4


@pytest.mark.slow
def test_a_client_that_was_told_to_join_is_not_forgotten_when_another_process_goes(tmp_path: Path) -> None:
    faults = [{"fault": "late-joiners", "clients": [0], "at_round": 1}]
    participation = {"cohort": 8, "deadline_s": 30.0}
    what = wall(faults=faults, network={"latency": 0.5}, participation=participation, stop={"rounds": 4})
    reading, writing = os.pipe()
    with ServerThread(what, tmp_path / "run") as server:
        stays = ClientsThread(what, server.watcher.endpoint, HostRequest(((0, 3),)))
        goes = ClientsThread(what, server.watcher.endpoint, HostRequest(((4, 7),), 0, False), parent_pipe=reading)
        wait_for(lambda: any(event == "returned" for event, _ in server.watcher.events))
        os.close(writing)  # while the client's JOIN is on its way
        results = server.results()
        for process in (stays, goes):
            process.join()
    os.close(reading)
    assert server.watcher.gone == 1 and "not-a-member" not in results.summary["refusals"]
    assert 0 in results.messages["sender"][results.messages["kind"] == "REPORT"].to_numpy()


class _Hostless(MemoryTransport):
    """A transport in real time whose processes are gone."""

    def reaches(self, address: int) -> bool:
        return False

    def deliver(self, address: int, frame: bytes, answered: Any, tail: bytes = b"") -> None:
        answered([])


def test_no_round_waits_in_real_time_for_a_client_that_returns_while_its_process_is_gone() -> None:
    async def until(is_done: Callable[[], bool]) -> None:
        assert is_done(), "it waits for a JOIN that never comes"

    async def until_time(latest_ns: int, is_done: Callable[[], bool]) -> None:
        raise AssertionError

    harness = RegistrationHarness(clients=4, is_virtual=False)
    availability = Availability(
        FaultHooks([LateJoiners(clients=[2], at_round=1), LateJoiners(clients=[3], at_round=9)], 7, 4)
    )
    harness.coordinator.open_round()
    harness.coordinator.close_round()
    bus = bus_on(WallClock(), _Hostless())
    parts = {"bus": bus, "coordinator": harness.coordinator, "observer": harness.observer, "lacks_processes": True}
    server: Any = SimpleNamespace(until=until, until_time=until_time, **parts)
    arrivals = Arrivals(server, availability)
    asyncio.run(arrivals.gather())
    assert not availability.has_left(2) and not arrivals.pending_joins
    harness.coordinator.handlers[Kind.JOIN] = arrivals.joined
    join = Join(2, (Span(2, 2, 2**31),), **PROOF).pack()._replace(round=1)  # on its way when the process went
    harness.coordinator.handle(join)
    assert harness.coordinator.refusals.reasons == {"foreign-version": 1} and not arrivals.pending_joins


def test_a_client_that_is_away_as_its_process_joins_in_real_time_is_no_member() -> None:
    harness = RegistrationHarness(clients=4, processes=1, is_virtual=False)
    away = {1}
    harness.coordinator.joining.apart = away
    harness.register(HostRequest())
    assert list(harness.coordinator.positions.members) == [0, 2, 3]
    away.clear()
    harness.coordinator.joined(Join(1, (Span(1, 1, 0),), **harness.coordinator.joining.proofs), is_due=True)
    assert list(harness.coordinator.positions.members) == [0, 1, 2, 3]
    harness.registration.gone(HOST, "…")
    away.add(2)
    harness.register(HostRequest(), 0)
    assert list(harness.coordinator.positions.members) == [0, 1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_a_run_in_real_time_is_resumed_with_clients_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: Any
) -> None:
    faults = [churn(0.1, 0.1, initially=0.5), {"fault": "crash", "clients": [1, 2], "at_round": 5, "for_rounds": 9}]
    what, where = wall(faults=faults), Placement(transport)
    with monkeypatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(KeyboardInterrupt):
            run(what, tmp_path / "run", placement=where)
    results = run(what, tmp_path / "run", resume=True, placement=where)
    assert results.summary["rounds"] == 20 and holds(results)
