"""Runs in real time: deadlines pass and peers leave, and the digests are those of a replay of the journal."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread, run_with_replacement
from processes import seedbus, wait_for
from worlds import DECOMFL, HISO, holds, scenario, stop_after

from seedbus.agents.catch_up.client import SnapshotSource
from seedbus.agents.client.evaluator import Evaluator
from seedbus.agents.errors import Unfinishable
from seedbus.algorithms.contract import Replica
from seedbus.bus import Envelope, HostRequest
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

NEVER_S = 1000.0  # longer than any test: a test that waits for such a deadline fails
DEADLINE_S = 4.0  # longer than any round whose clients answer at once
FAST = {"latency": {"distribution": "exponential", "mean": 0.002}}


def wall(deadline_s: float | None = 0.1, **changes: Any) -> Scenario:
    participation = {"clients": 8, "cohort": 3, "deadline_s": deadline_s}
    world = {"clock": "wall", "algorithm": HISO, "network": FAST, "participation": participation}
    return scenario(**(world | changes))


@pytest.mark.few(1)
@pytest.mark.parametrize("transport", ["memory", "inproc", "tcp"])
def test_a_run_in_real_time_takes_real_time_and_replays(tmp_path: Path, transport: Any) -> None:
    what = wall(compute={"evaluation": {"distribution": "constant", "value": 0.002}}, stop={"rounds": 10})
    began = time.monotonic()
    results = run(what, tmp_path / "run", placement=Placement(transport))
    took = time.monotonic() - began
    assert results.summary["rounds"] == 10 and holds(results)
    # K 2, P 5: twelve evaluations a client and round
    assert 10 * 12 * 0.002 < results.summary["simulated_s"] < took


@pytest.mark.slow
def test_a_deadline_passes_in_real_time_and_late_reports_are_refused(tmp_path: Path) -> None:
    by = {"distribution": "constant", "value": 0.15}
    slow = {"fault": "delay", "kind": "report", "clients": [0, 1, 2, 3], "by": by}
    what = wall(0.08, faults=[slow], stop={"rounds": 12})
    results = run(what, tmp_path / "run")
    assert holds(results) and results.summary["version"] < 12 + 1
    assert set(results.summary["refusals"]["late"]) & {"0", "1", "2", "3"}
    assert 0.9 * 12 * 0.08 < results.summary["simulated_s"]


@pytest.mark.slow
def test_a_deadline_begins_when_plans_are_sent_however_long_a_snapshot_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [1.2 * DEADLINE_S]

    def busy(source: SnapshotSource, envelope: Envelope, replica: Replica) -> list[Envelope]:
        while waits:
            time.sleep(waits.pop())
        return pieces(source, envelope, replica)

    pieces = SnapshotSource.pieces
    monkeypatch.setattr(SnapshotSource, "pieces", busy)
    participation = {"clients": 3, "cohort": 1, "deadline_s": DEADLINE_S}
    lag = {"snapshot_after_commits": 1}
    what = wall(participation=participation, algorithm=DECOMFL, network={}, lag=lag, stop={"rounds": 6})
    results = run(what, tmp_path / "run")
    assert results.summary["simulated_s"] > DEADLINE_S and results.summary["version"] == 6


@pytest.mark.slow
def test_clients_that_go_are_not_waited_for_and_may_come_back_from_x0(tmp_path: Path) -> None:
    what = wall(NEVER_S, stop={"rounds": 150}, evaluation={"every": 50})
    results = run_with_replacement(what, tmp_path / "run", HostRequest(((0, 3),)), "4-7", HostRequest(((4, 7),)))
    assert results.summary["rounds"] == 150 and holds(results)
    assert results.messages["sender"].isin([4, 5, 6, 7]).to_numpy()[-100:].any(), "they take part again at the end"


@pytest.mark.slow
def test_an_evaluator_that_goes_has_missed_nothing_when_another_comes(tmp_path: Path) -> None:
    what = wall(NEVER_S, stop={"rounds": 150}, evaluation={"every": 10})
    results = run_with_replacement(
        what, tmp_path / "run", HostRequest(((0, 5),), evaluates=False), "6-7", HostRequest(((6, 7),))
    )
    assert holds(results) and list(results.metrics["round"]) == [0, *range(9, 150, 10)]


@pytest.mark.slow
def test_a_run_whose_clients_are_all_gone_ends_by_name_and_can_be_resumed(tmp_path: Path) -> None:
    what = wall(stop={"rounds": 100_000})
    with ServerThread(what, tmp_path / "run", patience_s=0.5, evaluator="own") as server:
        client = seedbus("client", "--connect", server.watcher.endpoint)
        wait_for(lambda: server.watcher.rounds > 5)
        client.kill()
        client.communicate()
        with pytest.raises(Unfinishable, match=r"no process has hosted 8 clients \(0, 1, 2, 3, 4, …\) for 0 s"):
            server.results()
    assert replay(tmp_path / "run").round >= 5


def test_a_run_in_real_time_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = wall(stop={"rounds": 12})
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            run(what, tmp_path / "run")
    results = run(what, tmp_path / "run", resume=True)
    assert results.summary["rounds"] == 12 and holds(results)
    assert results.metrics["time_s"].is_monotonic_increasing


@pytest.mark.slow
def test_what_the_evaluator_had_not_answered_when_a_run_in_real_time_stopped_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked again either, and its version is that of the round before the next message."""
    what, may_end = wall(stop={"rounds": 12}, evaluation={"every": 3}), threading.Event()
    on_commit = Evaluator.on_commit

    def hang(self: Evaluator, envelope: Envelope) -> list[Envelope]:
        if envelope.round == 2:
            may_end.wait()
        return on_commit(self, envelope)

    reading, writing = os.pipe()
    with monkeypatch.context() as patch, ServerThread(what, tmp_path / "run") as server:
        stop_after(patch, 6)
        patch.setattr(Evaluator, "on_commit", hang)
        endpoint, others = server.watcher.endpoint, HostRequest(((0, 6),), evaluates=False)
        evaluates = ClientsThread(what, endpoint, HostRequest(((7, 7),)), parent_pipe=reading)
        works = ClientsThread(what, endpoint, others, parent_pipe=reading)
        with pytest.raises(KeyboardInterrupt):
            server.results()
        may_end.set()
        os.close(writing)  # they would look for the server for a while
        evaluates.join()
        works.join()
    os.close(reading)
    with ServerThread(what, tmp_path / "run", resume=True) as server:
        ClientsThread(what, server.watcher.endpoint)
        results = server.results()
    assert results.summary["rounds"] == 12 and holds(results)
    assert list(results.metrics["round"]) == [0, 8, 11]
