"""`stress/hiso-churn` at its whole length: what it promises under `expect`, and one model on every transport."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_kills import alike, run_and_kill

from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_hiso_under_all_faults_ends_alike_in_one_process_over_tcp_and_with_a_worker_killed(tmp_path: Path) -> None:
    what = load("stress/hiso-churn")
    whole = run(what, tmp_path / "whole")
    summary = whole.summary
    assert whole.missed == [] and summary["version"] == summary["rounds"] and what.expect and what.verify
    assert all(set(fault) > {"fault"} for fault in summary["faults"]), "every fault struck"
    bins = summary["lag"]["histogram"]
    assert all(bins[each] > 0 for each in ("1", "17-32", "65-128", "129-256"))
    assert summary["traffic"]["by_kind"]["snapshot"]["fates"]["delivered"] >= 20
    rebuilt = replay(tmp_path / "whole")
    assert rebuilt.digest == whole.digest
    assert {name: digest.hex() for name, digest in rebuilt.replica.digests().items()} == summary["digests"]

    assert alike(run(what, tmp_path / "tcp", placement=Placement("tcp")), whole)

    killed, found = run_and_kill(what, tmp_path / "killed", 1)
    assert found == 1
    assert alike(killed, whole)
