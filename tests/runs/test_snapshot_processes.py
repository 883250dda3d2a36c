"""Snapshots between processes: workers that die, networks that break and servers that are killed change nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread, free_endpoint, run_with_replacement, stopped_and_resumed
from processes import wait_for
from snapshot_cases import rough
from tcp_proxy import CountingProxy
from worker_kills import alike, run_and_kill
from worlds import DECOMFL, HISO, outcome, scenario

from seedbus.bus import HostRequest
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement


def crowd(rounds: int, **changes: Any) -> Scenario:
    """Return a scenario of thirty clients that lag, with models of 200 chunks, on links that lose a tenth."""
    task, lag = {"name": "quadratic", "dimension": 3_000}, {"source": "peer", "window": 16}
    return rough(0.1, **({"task": task, "algorithm": HISO, "stop": {"rounds": rounds}, "lag": lag} | changes))


@pytest.mark.slow
@pytest.mark.parametrize("transport", [pytest.param("ipc", marks=pytest.mark.soak), "tcp"])
@pytest.mark.usefixtures("warm_workers")
def test_the_same_in_two_workers(tmp_path: Path, transport: Any) -> None:
    what = crowd(60, algorithm=DECOMFL)
    whole = run(what, tmp_path / "whole")
    assert whole.summary["traffic"]["by_kind"]["snapshot"]["messages"] > 1000
    results = run(what, tmp_path / "run", placement=Placement(transport, 2))
    assert outcome(results) == outcome(whole)


@pytest.mark.slow
def test_a_network_that_breaks_leaves_no_trace(tmp_path: Path) -> None:
    what = crowd(120)
    whole = run(what, tmp_path / "whole")
    with ServerThread(what, tmp_path / "run") as server, CountingProxy(server.port) as proxy:
        client = ClientsThread(what, proxy.endpoint)
        for at in (20, 50, 90):
            wait_for(lambda at=at: server.watcher.rounds >= at or not server.is_alive())  # type: ignore[misc]
            proxy.cut()
        results = server.results()
        client.join()
    assert client.failure is None and server.watcher.gone >= 3
    assert alike(results, whole)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_workers_killed_with_half_snapshots_leave_no_trace(tmp_path: Path) -> None:
    what = crowd(200)
    results, found = run_and_kill(what, tmp_path / "killed", 4)
    assert found == 4
    assert alike(results, run(what, tmp_path / "whole"))


@pytest.mark.slow
def test_clients_outlive_a_server_that_is_killed_with_snapshots_under_way(tmp_path: Path) -> None:
    what = crowd(200)
    whole = run(what, tmp_path / "whole")
    endpoint = free_endpoint(crowd(1), tmp_path / "port")
    results, *_ = stopped_and_resumed(what, tmp_path, endpoint, signal.SIGKILL)
    assert alike(results, whole)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_in_real_time_who_lags_gets_a_snapshot_too(tmp_path: Path, source: str) -> None:
    what = scenario(
        clock="wall",
        algorithm=HISO,
        participation={"clients": 30, "cohort": 3, "deadline_s": 2.0},
        network={"latency": {"distribution": "exponential", "mean": 0.002}},
        lag={"snapshot_after_commits": 4, "chunk_bytes": 256, "source": source},
        stop={"rounds": 40},
    )
    results = run(what, tmp_path / "run", placement=Placement("inproc"))
    assert results.summary["traffic"]["by_kind"]["snapshot"]["messages"] > 50
    assert results.summary["version"] == 40 and replay(tmp_path / "run").digest == results.digest
    assert set(results.summary["refusals"]) <= {"late", "not-fetched", "no-snapshot"}


@pytest.mark.slow
def test_in_real_time_a_process_that_comes_late_gets_snapshots_and_the_others_go_on(tmp_path: Path) -> None:
    what = scenario(
        clock="wall",
        algorithm=HISO,
        participation={"clients": 8, "cohort": 3, "deadline_s": 1000.0},
        network={"latency": {"distribution": "exponential", "mean": 0.002}},
        lag={"snapshot_after_commits": 20, "chunk_bytes": 256},
        stop={"rounds": 120},
        evaluation={"every": 50},
    )
    results = run_with_replacement(
        what, tmp_path / "run", HostRequest(((0, 5),)), "6-7", HostRequest(((6, 7),), evaluates=False)
    )
    assert results.summary["version"] == 120 and replay(tmp_path / "run").digest == results.digest
    pulled = set(results.messages.query("kind == 'PULL'")["sender"])
    assert pulled == {6, 7}
    assert results.messages.query("kind == 'PLAN'")["seeds"].max() <= 21
