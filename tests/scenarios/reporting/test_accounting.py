"""The bytes of a run in its summary, beside its ledger and the papers' conventions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from worlds import go, lossy, scenario

from seedbus.algorithms.dense.base import FedAvg
from seedbus.plugin import register
from seedbus.scenarios.reporting.accounting import conventions
from seedbus.scenarios.reporting.closing_table import groups
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.statistics import spread

LATE: dict[str, Any] = {"discount": 0.5}
DENSE = {"name": "fedavg", "local_steps": 1}


@pytest.mark.parametrize("algorithm", [{"name": "decomfl"}, DENSE])
def test_the_summary_counts_as_many_replayed_commits_as_the_table_of_clients(tmp_path: Path, algorithm: Any) -> None:
    results = go(tmp_path / "run", lossy(algorithm=algorithm, stop={"rounds": 10}))
    assert results.summary["traffic"]["replayed"] == results.clients["replayed"].sum()
    assert (results.clients["replayed"].sum() > 0) == (algorithm is not DENSE)


@pytest.mark.parametrize("algorithm", [{"name": "decomfl"}, DENSE])
def test_bytes_of_commits_are_no_catch_up_of_clients_that_are_asked_in_every_round(
    tmp_path: Path, algorithm: Any
) -> None:
    results = go(tmp_path / "run", scenario(algorithm=algorithm, participation={"clients": 4}, stop={"rounds": 5}))
    rows = dict(row for group in groups(results.summary) for row in group)
    assert rows["lag when asked"] == "median 1, p95 1, at most 1 commit" and "of that catch-up" not in rows
    assert ("of that commits" in rows) == (algorithm is not DENSE), "the plan is the model, and no row says 0 B"


def test_bits_that_fill_up_a_byte_of_signs_count_as_no_scalars(tmp_path: Path) -> None:
    algorithm = {"name": "feedsign", "perturbations": {0: 3, 2: 11}}
    results = go(tmp_path / "run", scenario(algorithm=algorithm, participation={"clients": 4}, stop={"rounds": 5}))
    assert results.summary["traffic"]["up"]["scalars"] == 4 * (2 * 3 + 3 * 11)


def test_bytes_of_snapshots_are_told_apart_from_those_of_commits(tmp_path: Path) -> None:
    lag = {"snapshot_after_commits": 4, "chunk_bytes": 256}
    results = go(tmp_path / "run", lossy(algorithm={"name": "decomfl"}, lag=lag, stop={"rounds": 12}))
    rows = dict(row for group in groups(results.summary) for row in group)
    by_kind = results.summary["traffic"]["by_kind"]
    for what, kind in (("snapshots", "snapshot"), ("commits", "plan")):
        size = by_kind[kind]["catchup_bytes"]
        assert size and rows[f"of that {what}"].startswith(f"{readable(size)} ("), what


def test_clients_that_are_faster_than_others_save_time_and_their_results_are_read(tmp_path: Path) -> None:
    fast = {"fault": "straggler", "clients": [0, 1, 2], "factor": 0.25}
    late = {"fault": "drop", "kind": "report", "clients": [5]}
    crowd = {"clients": 6, "quorum": 2, "deadline_s": 5.0}
    what = scenario(faults=[fast, late], compute={"evaluation": 0.1}, participation=crowd, stop={"rounds": 3})
    go(tmp_path / "run", what)
    results = Results.read(tmp_path / "run")
    assert results.summary["faults"][0]["slowed"] == 9 and results.summary["faults"][0]["slowed_s"] < 0
    rows = dict(row for group in groups(results.summary) for row in group)
    assert rows["reports counted"] == "15; 0 to 3 per client, median 3; none from 1 client"


@pytest.mark.usefixtures("no_plugins")
def test_how_many_commits_without_seeds_were_replayed_is_not_known(tmp_path: Path) -> None:
    @register
    class Logged(FedAvg):
        """FedAvg whose clients need every commit."""

        name: Literal["logged"] = "logged"  # type: ignore[assignment]

        @property
        def facts(self) -> Any:
            return replace(super().facts, is_dense=False)

    results = go(tmp_path / "run", lossy(algorithm=DENSE | {"name": "logged"}, stop={"rounds": 10}))
    assert results.summary["traffic"]["catchup_bytes"] and results.summary["traffic"]["replayed"] is None
    assert set(results.clients["replayed"]) <= {-1, 0}
    said = results._repr_html_()
    assert "… sent per client" in said and "replayed" not in said


def test_traffic_is_what_the_rows_of_the_ledger_between_clients_and_server_add_up_to(tmp_path: Path) -> None:
    lag = {"snapshot_after_commits": 6, "source": "peer", "chunk_bytes": 256}
    compute = {"evaluation": 0.01, "replay": 0.002}
    participation = {"clients": 8, "cohort": 3, "deadline_s": 2}
    what = lossy(0.1, lag=lag, compute=compute, participation=participation, stop={"rounds": 20})
    results = go(tmp_path / "run", what)
    rows, traffic = results.messages.to_dict("records"), results.summary["traffic"]
    sent = {
        way: [row for row in rows if row[end] >= 0 and row["kind"] != "JOIN"]
        for way, end in (("up", "sender"), ("down", "recipient"))
    }
    sizes = {
        way: [row["header_bytes"] + row["payload_bytes"] - row["digest_bytes"] for row in each]
        for way, each in sent.items()
    }
    assert {row["kind"] for row in sent["up"]} == {"REPORT", "PULL", "PIECE"}
    for way, each in sent.items():
        assert traffic[way] == {
            "messages": len(each),
            "bytes": sum(sizes[way]),
            "bytes_per_client": sum(sizes[way]) / 8,
            "scalars": sum(row["scalars"] for row in each),
            "seeds": sum(row["seeds"] for row in each),
        }
    total, reports = sum(map(sum, sizes.values())), sum(row["kind"] == "REPORT" for row in rows)
    assert (traffic["bytes"], traffic["bytes_per_client"]) == (total, total / 8)
    assert (traffic["participations"], traffic["bytes_per_participation"]) == (reports, total / reports)
    missed = sum(row["catchup_bytes"] for row in sent["down"])
    assert (traffic["catchup_bytes"], traffic["catchup_share"]) == (missed, missed / total) and 0 < missed < total
    for kind, counted in traffic["by_kind"].items():
        of_kind = [row for row in rows if row["kind"].lower() == kind and min(row["sender"], row["recipient"]) > -3]
        assert counted["messages"] == len(of_kind) == sum(counted["fates"].values())
        assert counted["bytes"] == sum(row["header_bytes"] + row["payload_bytes"] for row in of_kind)
        for name in ("scalars", "seeds", "digest_bytes", "catchup_bytes"):
            assert counted[name] == sum(row[name] for row in of_kind)
    assert results.clients["replay_s"].tolist() == pytest.approx((0.002 * results.clients["replayed"]).tolist())


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
    assert of.algorithm.work(0).scalars == 6 * each, "second differences come beside the slopes"
    counted = conventions(of, rounds=20, dimension=300)
    assert counted["decomfl_12PK"] == 12 * 2 * (10 * 3 + 10 * 5) and counted["hiso_8PK"] == 8 * 2 * (10 * 3 + 10 * 5)
