"""Whole runs with `arithmetic: integer`: lag, snapshots, late reports, resuming and workers change no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snapshot_cases import lagging
from worlds import DECOMFL, scenario

from seedbus.agents.errors import Unfinishable
from seedbus.algorithms.scalar_only.exact import BUDGET
from seedbus.scenarios.running.limits import least_memory
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.studies.analysis.analyse import analyse

INTEGER: dict[str, Any] = DECOMFL | {"momentum": 0.0, "arithmetic": "integer"}
POOL: dict[str, Any] = {"name": "fedkseed", "pool": 64, "perturbations": 5, "learning_rate": 0.01}
FLOAT: dict[str, Any] = DECOMFL | {"momentum": 0.0}


@pytest.mark.slow
def test_a_snapshot_has_eight_bytes_a_coordinate_and_a_commit_those_of_float32(tmp_path: Path) -> None:
    whole, real = (
        run(lagging(algorithm=kind), tmp_path / kind["arithmetic"])
        for kind in (INTEGER, FLOAT | {"arithmetic": "float"})
    )
    sizes = [each.messages.query("kind == 'SNAPSHOT'")["payload_bytes"].sum() for each in (whole, real)]
    assert 1.5 < sizes[0] / sizes[1] < 2.1
    plans = [each.messages.query("kind == 'PLAN'")["payload_bytes"].sum() for each in (whole, real)]
    assert plans[0] == plans[1]


@pytest.mark.slow
def test_the_loss_falls_as_with_float32(tmp_path: Path) -> None:
    losses = [
        run(scenario(algorithm=kind, stop={"rounds": 60}), tmp_path / name).metrics["loss"].iloc[-1]
        for name, kind in (("integer", INTEGER), ("float", FLOAT))
    ]
    start = run(scenario(algorithm=FLOAT, stop={"rounds": 1}), tmp_path / "start").metrics["loss"].iloc[0]
    assert losses[0] < start
    assert abs(losses[0] - losses[1]) < 0.01 * (start - losses[1])


def test_a_saved_model_has_float32_tensors_and_the_replica_the_sums(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    run(scenario(algorithm=INTEGER), tmp_path / "run")
    replayed = replay(tmp_path / "run")
    replayed.save(tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    sums = replayed.replica.x
    assert sums.dtype == np.int64 and {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}
    (x,) = (tensor.ravel() for tensor in tensors.values())
    assert (x == replayed.point).all()


def test_sums_that_may_overflow_end_the_run_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.algorithms.scalar_only.exact.BUDGET", BUDGET >> 24)
    with pytest.raises(Unfinishable, match=r"round \d+ can make no commit: .*smaller algorithm.unit_bits"):
        run(scenario(algorithm=INTEGER | {"unit_bits": 36}, stop={"rounds": 200}), tmp_path / "run")


def test_the_least_memory_counts_eight_bytes_a_coordinate() -> None:
    def of(algorithm: dict[str, Any], dimension: int) -> int:
        return least_memory(
            scenario(algorithm=algorithm, task={"name": "null", "dimension": dimension}, verify=False), 3
        )

    for algorithm, width in ((INTEGER, 8), (FLOAT, 4)):
        assert of(algorithm, 10**6) - of(algorithm, 10**5) == width * 9 * 10**5


@pytest.mark.slow
def test_what_a_client_of_a_pool_is_sent_does_not_grow_with_its_lag(tmp_path: Path) -> None:
    """Fifty clients, two a round, and links that lose a fifth: some miss a hundred commits, and none are sent more."""
    crowd = {"clients": 50, "cohort": 2, "quorum": 1, "deadline_s": 5.0}
    what = lagging(
        algorithm=POOL, participation=crowd, stop={"rounds": 200}, faults=[{"fault": "drop", "probability": 0.2}]
    )
    what = what.model_copy(update={"lag": None, "verify": True})
    results = run(what, tmp_path / "run")
    assert results.digest == replay(tmp_path / "run").digest
    assert "diverged" not in results.summary["refusals"]
    assert results.summary["lag"]["max"] > 100
    plans = results.messages.query("kind == 'PLAN'")
    most = 64 // 8 + 64 * 4 + 32
    assert most / 2 < plans["catchup_bytes"].max() <= most
    shared = run(what.model_copy(update={"verify": False}), tmp_path / "shared")
    assert shared.digest == results.digest


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "dimension", "is_snapshot"), [(16, 2_000, False), (2_000, 60, True)])
def test_what_takes_fewest_bytes_is_sent(tmp_path: Path, pool: int, dimension: int, is_snapshot: bool) -> None:
    """Commits if few were missed, else their sum, or a snapshot where the model is smaller than the sum."""
    what = lagging(
        algorithm=POOL | {"pool": pool, "perturbations": 20},
        task={"name": "quadratic", "dimension": dimension},
        lag={"snapshot_after_commits": None, "snapshot_after_bytes": "snapshot"},
    )
    results = run(what, tmp_path / "run")
    kinds = results.summary["traffic"]["by_kind"]
    assert ("snapshot" in kinds) == is_snapshot
    plans = results.messages.query("kind == 'PLAN'")
    (found,) = analyse(results.folder, only=["break-even"])
    snapshot = sum(found.facts["snapshot_bytes"].values())  # in messages
    assert plans["catchup_bytes"].max() <= min(snapshot, pool // 8 + 8 * pool + 32)
