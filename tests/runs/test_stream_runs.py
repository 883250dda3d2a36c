"""Whole runs of streams: faults, lag, snapshots, resuming and worker processes change nothing that they must not."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from run_worlds import STREAMS, stream

from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import history
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

each_kind = pytest.mark.parametrize("kind", STREAMS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("whole")
    return {kind: run(stream(kind), folder / kind) for kind in STREAMS}


def log_of(results: Results) -> list[Any]:
    with closing(Journal.open(results.folder, for_writing=False)) as journal:
        return list(history(stream(results.folder.name).algorithm, journal))


@each_kind
@pytest.mark.slow
def test_all_kinds_of_faults_strike_and_no_replica_diverges(whole: dict[str, Results], kind: str) -> None:
    """Otherwise the rest of this file would prove nothing."""
    summary = whole[kind].summary
    # a pull that is delayed or doubled may come when the snapshot has been installed: it is offered no more
    assert set(summary["refusals"]) - {"not-offered"} == {"duplicate", "not-asked"}
    assert all(len(fault) > 1 and all(fault.values()) for fault in summary["faults"])
    assert summary["staleness"]["max"] > 8 and summary["participation"]["counted"]["total"] == summary["version"] > 90
    assert summary["traffic"]["by_kind"]["snapshot"]["messages"] > 5
    assert replay(whole[kind].folder).digest == whole[kind].digest


@each_kind
def test_the_commits_of_a_run_lead_to_its_digest_in_any_order(whole: dict[str, Results], kind: str) -> None:
    log, algorithm = log_of(whole[kind]), stream(kind).algorithm
    for seed in range(3):
        replica = replay(whole[kind].folder, 0).replica
        Random(seed).shuffle(log)
        renumbered = [replace(commit, version=at + 1) for at, commit in enumerate(log)]
        if kind == "fedkseed":
            renumbered = [replace(commit, base=at) for at, commit in enumerate(renumbered)]
        algorithm.apply(replica, renumbered)
        assert replica.digest() == whole[kind].digest


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_in_real_time_followers_agree_and_the_journal_replays_to_their_digest(tmp_path: Path) -> None:
    """Which commits there are differs from run to run."""
    quick = {"latency": {"distribution": "exponential", "mean": 0.002}}
    faults = [{"fault": "duplicate", "probability": 0.2}, {"fault": "straggler", "clients": [0], "factor": 20}]
    what = stream(clock="wall", network=quick, faults=faults, compute={"evaluation": 0.001}, lag=None)
    results = run(what, tmp_path / "run", placement=Placement("tcp", 2))
    assert replay(results.folder).digest == results.digest and "diverged" not in results.summary["refusals"]
    assert results.summary["version"] == 120 <= results.summary["participation"]["counted"]["total"]
