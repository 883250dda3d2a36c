"""Snapshots between processes: workers that die, networks that break and servers that are killed change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import run_with_replacement
from worlds import HISO, scenario

from seedbus.bus import HostRequest
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement


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
