"""What `seedbus study --dry-run` expects of scalar-only runs, against the runs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from worlds import HISO, go, lossy, scenario

from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.study.estimate import Estimate, estimate, rehearsed
from seedbus.scenarios.study.pool import Job

SENT: dict[str, Any] = {
    "snapshots": lossy(algorithm=HISO, lag={"snapshot_after_commits": 3}, stop={"rounds": 20}),
    "budget": lossy(stop={"rounds": 100, "bytes": 5_000}),
    "pool": lossy(algorithm={"name": "fedkseed", "perturbations": 5, "smoothing": 0.1}, stop={"rounds": 20}),
    "nodes": scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer"},
        participation={"clients": 4},
        topology={"kind": "gossip", "graph": "ring"},
        faults=[{"fault": "partition", "clients": [0], "for_s": 30}],
    ),
}


@pytest.mark.parametrize(
    "name", ["budget", "pool", *(pytest.param(name, marks=pytest.mark.slow) for name in ("snapshots", "nodes"))]
)
def test_rounds_and_bytes_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    found = go(tmp_path / "run", SENT[name]).summary
    rounds, sent = rehearsed(SENT[name])
    assert rounds == found["rounds"] and sent == pytest.approx(found["traffic"]["bytes"], rel=0.1)


def test_of_dense_runs_time_and_bytes_are_those_of_the_rounds_that_were_tried() -> None:
    """One trial stands for runs that differ in seeds and rounds; a trial that failed leaves its runs out."""

    class Trials:
        def do(self, jobs: list[Job]) -> Iterator[Any]:
            for job in jobs:
                failed = "it has no data" if job.subject[0].algorithm.name == "scaffold" else None
                facts = {"start_s": 5.0, "round_s": 0.5, "round_bytes": 300.0}
                yield SimpleNamespace(job=job, failure=failed, facts=facts)

    def dense(name: str, rounds: int, **changes: Any) -> Scenario:
        return scenario(algorithm={"name": name}, stop={"rounds": rounds} | changes.pop("stop", {}), **changes)

    scenarios = [
        *(dense("fedavg", 10, seed=seed) for seed in (1, 2)),
        dense("fedavg", 40, stop={"bytes": 4000}),  # after 14 rounds these are sent
        *(dense("scaffold", 10, seed=seed) for seed in (1, 2, 3)),
    ]
    pool: Any = Trials()
    seconds = 3 * 5.0 + 0.5 * (10 + 10 + 14)
    assert estimate(scenarios, pool) == Estimate(seconds, 300.0 * (10 + 10 + 14), 3, "it has no data")


@pytest.mark.slow
def test_beyond_its_rehearsal_a_run_is_continued() -> None:
    long, short = (lossy(stop={"rounds": rounds}, verify=False) for rounds in (1000, 100))
    rounds, sent = rehearsed(long)
    assert rounds == 1000 and sent == pytest.approx(10 * rehearsed(short)[1], rel=0.2)
