"""Mean and deviation of what owners have, by one round whose sums may be masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from owners import own_scenario, own_tables
from worlds import outcome

from seedbus.models.tables.columns import TableFile
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement

STEP = {"name": "fedavg", "learning_rate": 1, "local_steps": 1, "weighting": "uniform", "compression": "fixed-point"}


def fields(**more: Any) -> dict[str, Any]:
    standard: dict[str, Any] = {
        "task": {"name": "moments", "columns": {"age": {"low": -50, "high": 150}}, "rows": 40},
        "algorithm": STEP,
        "participation": {"clients": 3, "cohort": 3, "quorum": 3},
        "evaluation": {},
        "stop": {"rounds": 1},
    }
    return own_scenario(**standard | more)


def summed(folder: Path, owners: Path, *, transport: str = "memory", **more: Any) -> Results:
    placement = Placement(transport, 2 if transport == "tcp" else 0, own=str(owners / "*" / "*.csv"))
    return run(load(fields(**more)), folder, placement=placement, page=False)


def ages(places: list[Path]) -> Any:
    return np.concatenate([TableFile(place).column("age", "task.columns") for place in places])


def test_masked_sums_tell_the_mean_and_deviation_over_all_rows(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    places = own_tables(tmp_path / "owners")
    plain = summed(tmp_path / "plain", tmp_path / "owners")
    masked = summed(tmp_path / "masked", tmp_path / "owners", secure_aggregation={})
    assert masked.summary["digest"] == plain.summary["digest"]
    assert masked.summary["metrics"] == plain.summary["metrics"]
    found, every = plain.summary["metrics"], ages(places)
    again = replay(tmp_path / "masked")
    assert again.problem.evaluate(again.point, "test").items() <= found.items(), "of the journal, without any data"
    assert found["rows"] == pytest.approx(every.size / 3, rel=1e-5) and found["loss"] == 0
    assert found["age.mean"] == pytest.approx(every.mean(), abs=1e-3)
    assert found["age.deviation"] == pytest.approx(every.std(), abs=1e-2)
    assert masked.summary["traffic"]["by_kind"]["ask"]["messages"] > 0


def test_owners_that_do_not_report_are_not_in_the_means(tmp_path: Path) -> None:
    places = own_tables(tmp_path / "owners")
    silent = {"fault": "dropout", "clients": [1], "probability": 1.0}
    who = {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 5}
    task = fields()["task"] | {"fewest": 2}
    found = summed(tmp_path / "run", tmp_path / "owners", task=task, participation=who, faults=[silent]).summary[
        "metrics"
    ]
    assert found["age.mean"] == pytest.approx(ages([places[0], places[2]]).mean(), abs=1e-3)


@pytest.mark.slow
def test_processes_end_with_the_rehearsals_bits(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    whole = outcome(summed(tmp_path / "memory", tmp_path / "owners"))
    assert outcome(summed(tmp_path / "tcp", tmp_path / "owners", transport="tcp")) == whole
