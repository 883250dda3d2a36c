"""What `seedbus study --dry-run` expects of scalar-only runs, against the runs themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import HISO, go, lossy, scenario

from seedbus.scenarios.study.estimate import rehearsed

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


@pytest.mark.slow
def test_beyond_its_rehearsal_a_run_is_continued() -> None:
    long, short = (lossy(stop={"rounds": rounds}, verify=False) for rounds in (1000, 100))
    rounds, sent = rehearsed(long)
    assert rounds == 1000 and sent == pytest.approx(10 * rehearsed(short)[1], rel=0.2)
