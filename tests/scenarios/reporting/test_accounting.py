"""The bytes of a run in its summary, beside its ledger and the papers' conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import go, lossy, scenario

from seedbus.scenarios.reporting.accounting import conventions
from seedbus.scenarios.reporting.statistics import spread

LATE: dict[str, Any] = {"discount": 0.5}
DENSE = {"name": "fedavg", "local_steps": 1}


@pytest.mark.parametrize("algorithm", [{"name": "decomfl"}, DENSE])
def test_the_summary_counts_as_many_replayed_commits_as_the_table_of_clients(tmp_path: Path, algorithm: Any) -> None:
    results = go(tmp_path / "run", lossy(algorithm=algorithm, stop={"rounds": 10}))
    assert results.summary["traffic"]["replayed"] == results.clients["replayed"].sum()
    assert (results.clients["replayed"].sum() > 0) == (algorithm is not DENSE)


def test_catching_up_is_spread_over_clients_as_all_else_is_with_the_nearest_rank_as_its_p95(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(stop={"rounds": 10}))
    found = results.summary["traffic"]["catchup_per_client"]
    assert found == spread(results.clients["catchup_bytes"].to_numpy())
    assert found["median"] < found["p95"] == found["max"], "of eight clients, 95% are all"


@pytest.mark.parametrize(
    ("participation", "reports"),
    [
        ({"cohort": 4}, 4),
        ({"cohort": 4, "over_selection": 1.5}, 4),
        ({"cohort": 4, "buffer": 2, "late": LATE}, 2),
        ({"cohort": 4, "mode": "stream"}, 1),
    ],
)
def test_sending_the_model_is_counted_once_for_each_report_that_a_commit_wants(
    participation: dict[str, Any], reports: int
) -> None:
    algorithm = {"name": "decomfl", "arithmetic": "integer"} if "mode" in participation else DENSE
    of = scenario(algorithm=algorithm, participation={"clients": 8, **participation})
    assert conventions(of, rounds=20, dimension=300)["dense_8d"] == 8 * 300 * 20 * reports / 8


@pytest.mark.parametrize(("estimator", "each"), [("forward", 1), ("curvature", 2)])
def test_the_papers_count_one_scalar_for_each_perturbation_of_each_step(estimator: str, each: int) -> None:
    steps = {"perturbations": {0: 3, 10: 5}, "local_steps": 2}
    of = scenario(algorithm={"name": "hiso", "estimator": estimator, **steps})
    assert of.algorithm.scalars(0) == 6 * each, "second differences come beside the slopes"
    counted = conventions(of, rounds=20, dimension=300)
    assert counted["decomfl_12PK"] == 12 * 2 * (10 * 3 + 10 * 5) and counted["hiso_8PK"] == 8 * 2 * (10 * 3 + 10 * 5)
