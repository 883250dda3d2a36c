"""`snapshot_after_bytes: snapshot`: a client gets a snapshot exactly where that takes fewer bytes than the commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snapshot_cases import lagging
from worlds import DECOMFL, HISO

from seedbus.bus import Kind
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.studies.analysis.analyse import analyse
from seedbus.studies.analysis.break_even import catch_up_bytes
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.subject import Subject

pytestmark = pytest.mark.slow

POOL: dict[str, Any] = {"name": "fedkseed", "pool": 2000, "perturbations": 5, "learning_rate": 0.01}
ALGORITHMS = pytest.mark.parametrize("algorithm", [DECOMFL, HISO, POOL], ids=lambda algorithm: str(algorithm["name"]))
SOURCES = pytest.mark.parametrize("source", ["evaluator", "peer"])
SMALL: dict[str, Any] = {
    "task": {"name": "quadratic", "dimension": 24},
    "participation": {"clients": 30, "cohort": 2},
    "stop": {"rounds": 120},
    "verify": False,
}
"""A snapshot takes as many bytes as ten or twenty commits, and clients miss fifteen."""


def cheapest(**lag: Any) -> dict[str, Any]:
    return {"snapshot_after_commits": None, "snapshot_after_bytes": "snapshot", "chunk_bytes": 128} | lag


@ALGORITHMS
@SOURCES
def test_no_snapshot_takes_more_bytes_than_the_commits_would_have(
    tmp_path: Path, algorithm: dict[str, Any], source: str
) -> None:
    what = lagging(algorithm=algorithm, lag=cheapest(source=source), **SMALL)
    results = run(what, tmp_path / "run")
    paid, fetched = _bytes_of_snapshots(results)
    subject = Subject.of(results.folder, [], Effort(), Meter(is_quiet=True))
    history = results.history
    versions = history.has_commit.cumsum() - history.has_commit
    asked = zip(history.asked.round.tolist(), history.asked.client.tolist(), history.lags.tolist(), strict=True)
    replayed: list[int] = []
    spared: dict[int, int] = {}
    for round, client, lag in asked:
        if (round, client) not in paid:
            replayed.append(lag)
            continue
        replay = catch_up_bytes(subject.algorithm, subject.commits[: versions[round]], lag)
        assert paid[round, client] < replay
        spared[round] = spared.get(round, 0) + replay - paid[round, client]
    assert len(paid) > 10 and all(fetched[round] < spared[round] for round in fetched)
    (found,) = analyse(results.folder, only=["break-even"])
    assert set(fetched.values()) == ({found.facts["snapshot_bytes"]["fetched"]} if source == "peer" else set())
    if source == "evaluator":  # and no commits, where a snapshot takes fewer bytes
        assert max(replayed) == found.facts["break_even_lag"]


def _bytes_of_snapshots(results: Results) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
    """Return the bytes of each (round, client) with a snapshot, commits of its plan included; and of peers by round."""
    columns = results.columns
    size = columns["header_bytes"] + columns["payload_bytes"]
    client = np.maximum(columns["sender"], columns["recipient"])
    is_of_client = np.minimum(columns["sender"], columns["recipient"]) == -1  # and the server
    paid, fetched, offered = Counter[tuple[int, int]](), Counter[int](), set[tuple[int, int]]()
    rows = zip(columns["kind"], columns["round"], client, size, columns["catchup_bytes"], strict=True)
    for kind, round, who, bytes_, catch_up in np.array(list(rows))[is_of_client].tolist():
        if kind in (Kind.FETCH, Kind.PIECE):
            fetched[round] += bytes_
        elif kind == Kind.PLAN:
            paid[round, who] += max(1, catch_up)
        elif kind in (Kind.SNAPSHOT, Kind.PULL, Kind.JOIN):
            paid[round, who] += bytes_
            offered.add((round, who))
    return {key: total for key, total in paid.items() if key in offered}, fetched


@ALGORITHMS
@SOURCES
def test_a_run_with_the_cheapest_way_takes_no_more_bytes_than_without_snapshots(
    tmp_path: Path, algorithm: dict[str, Any], source: str
) -> None:
    what = lagging(algorithm=algorithm, lag=cheapest(source=source), **SMALL)
    results = run(what, tmp_path / "run")
    without = run(what.model_copy(update={"lag": None}), tmp_path / "without")
    assert results.digest == without.digest
    assert results.summary["traffic"]["bytes"] < without.summary["traffic"]["bytes"]


@SOURCES
def test_a_budget_of_commits_beside_it_keeps_its_meaning(tmp_path: Path, source: str) -> None:
    results = run(lagging(lag=cheapest(source=source, snapshot_after_commits=4), **SMALL), tmp_path / "run")
    assert results.messages.query("kind == 'PLAN'")["seeds"].max() == 1 + 4


def test_a_snapshot_is_not_replaced_before_anyone_can_pull_it(tmp_path: Path) -> None:
    """Rounds are shorter than a message's way, and in each of them a new snapshot would serve some client better."""
    crowd = {"clients": 200, "cohort": 20, "buffer": 2, "late": {"max_staleness": 1000}}
    what = lagging(lag=cheapest(chunk_bytes=512), **SMALL | {"participation": crowd, "stop": {"rounds": 200}})
    results = run(what, tmp_path / "run")
    offers = len(results.messages.query("kind == 'SNAPSHOT' and payload_bytes < 40"))
    in_vain = sum(results.summary["refusals"].get("no-snapshot", {}).values())
    assert offers > 300 and in_vain < offers / 4
