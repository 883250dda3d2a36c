"""Replay or pull: the bytes of commits and of a snapshot against the ledger's, and where one begins to take fewer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import DECOMFL, HISO, go, scenario

from seedbus.bus import Fate, Kind
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.results import Results
from seedbus.studies.analysis.analyse import analyse
from seedbus.studies.analysis.break_even import BreakEven, catch_up_bytes, crossing
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.subject import Subject


def test_nodes_without_a_server_have_no_snapshots_to_break_even_with(tmp_path: Path) -> None:
    integer = {"name": "decomfl", "arithmetic": "integer", "perturbations": 3}
    what = scenario(
        algorithm=integer,
        participation={"clients": 4},
        topology={"kind": "gossip", "graph": "ring"},
        stop={"rounds": 3},
    )
    (found,) = analyse(go(tmp_path / "run", what).folder, only=["break-even"])
    assert not found.rows and "and no snapshots" in found.facts["nothing"]


def test_the_bytes_of_a_lag_are_those_of_the_ledger(tmp_path: Path) -> None:
    (found,) = analyse(_lagging(tmp_path), only=["break-even"])
    measured, counted = found.facts["ledger_mean_bytes"], found.facts["catch_up_bytes"]
    common = measured.keys() & counted.keys()
    assert len(common) >= 3
    for lag in common:  # a round's number takes one to three bytes
        assert measured[lag] == pytest.approx(counted[lag], abs=2)
    assert [row[0] for row in found.rows] == ["1", "2", "5", "10", "20", "40"] == list(counted)
    snapshot = sum(found.facts["snapshot_bytes"].values())
    assert [row[3] for row in found.rows] == [f"{size / snapshot:.2%}" for size in counted.values()]


def test_lags_beyond_the_break_even_are_those_for_which_the_commits_took_more_than_a_snapshot(tmp_path: Path) -> None:
    folder = _lagging(tmp_path, task={"name": "quadratic", "dimension": 24})
    run = Subject.of(folder, [], Effort(), Meter(is_quiet=True))
    (found,) = analyse(folder, only=["break-even"])
    snapshot = sum(found.facts["snapshot_bytes"].values())
    plans = run.results.messages.query("kind == 'PLAN'")
    lags = (plans["seeds"] - 1).tolist()
    assert found.facts["break_even_lag"] in lags and found.facts["is_measured"]
    sizes = [catch_up_bytes(run.algorithm, run.commits, lag) for lag in lags]
    assert found.facts["share_beyond"] == np.mean([size > snapshot for size in sizes])
    assert 0 < found.facts["share_beyond"] < 1


def _lagging(folder: Path, **changes: Any) -> Path:
    crowd: dict[str, Any] = {"participation": {"clients": 12, "cohort": 2}, "stop": {"rounds": 40}, "verify": False}
    what = scenario(algorithm=DECOMFL, **crowd, **changes)
    return go(folder / "run", what).folder


def test_the_break_even_is_the_last_lag_at_which_commits_take_no_more_than_a_snapshot(tmp_path: Path) -> None:
    run = Subject.of(_lagging(tmp_path), [], Effort(), Meter(is_quiet=True))
    sizes = [catch_up_bytes(run.algorithm, run.commits, lag) for lag in range(1, 41)]
    for snapshot in (sizes[0] - 1, sizes[8], sizes[9], 300, 411, sizes[-1] - 1):
        found = crossing(lambda lag: sizes[lag - 1], 40, snapshot, None)
        assert found == BreakEven(sum(size <= snapshot for size in sizes), is_measured=True)
    beyond = crossing(lambda lag: 20 + 10 * lag, 41, 1_029, None)
    assert beyond == BreakEven(100, is_measured=False)
    assert crossing(lambda lag: 10 * lag, 40, 400, None) == BreakEven(40, is_measured=False)
    for bound, is_measured in ((300, True), (None, False)):  # no more than a snapshot, or the same at any lag
        assert crossing(lambda lag: 300, 40, 300, bound) == BreakEven(None, is_measured)


@pytest.mark.parametrize("mask", [{}, {"mask": {"rule": "random", "density": 0.5}}], ids=["whole", "masked"])
def test_a_snapshot_is_counted_with_the_bytes_that_one_takes(mask: dict[str, Any], tmp_path: Path) -> None:
    lag = {"snapshot_after_commits": 1, "chunk_bytes": 256, "window": 3}
    task = {"name": "digits", "model": "softmax"} if mask else {"name": "quadratic", "dimension": 300}
    folder = go(tmp_path / "run", scenario(task=task, algorithm=HISO, lag=lag, verify=False, **mask)).folder
    (found,) = analyse(folder, only=["break-even"])
    columns = Results.read(folder).columns
    sizes = columns["header_bytes"] + columns["payload_bytes"]
    is_down = (columns["kind"] == Kind.SNAPSHOT) & (columns["fate"] == Fate.DELIVERED)
    is_up = (columns["kind"] == Kind.PULL) | (columns["kind"] == Kind.JOIN)
    whole = []
    for round, client in product(range(4, 20), range(8)):
        down = is_down & (columns["recipient"] == client) & (columns["round"] == round)
        up = is_up & (columns["sender"] == client) & (columns["round"] == round)
        if down.sum() == 1 + -(-2 * 4 * (325 if mask else 300) // 256):
            whole.append((sizes[down].sum(), sizes[up].sum()))
    assert whole
    snapshot = found.facts["snapshot_bytes"]
    assert max(abs(each - snapshot["down"]) for each, _ in whole) <= 12  # a version takes one byte or two
    assert {each for _, each in whole} == {snapshot["up"]}
