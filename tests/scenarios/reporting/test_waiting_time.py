"""Where the time of rounds went: the parts add up, and whoever is slow or silent is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from worlds import go, lossy, scenario, with_facts

from seedbus.bus import Fate, Kind
from seedbus.scenarios.reporting.closing_table import groups
from seedbus.scenarios.reporting.page import Finished
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.waiting_time import PARTS, Waits, latest
from seedbus.scenarios.running.run import run

ALL = {"clients": 8, "cohort": 8}


def waits(results: Results) -> Waits:
    return Finished.of(results).waits


def test_the_parts_of_each_round_add_up_to_its_duration(tmp_path: Path) -> None:
    again = {"fault": "drop", "probability": 0.3}
    results = go(tmp_path / "run", lossy(stop={"rounds": 40}, faults=[again], compute={"evaluation": 0.01}))
    history, found = results.history, waits(results)
    assert (found.parts_ns.sum(axis=1) == history.closed_ns - history.opened_ns).all()
    assert (found.parts_ns >= 0).all() and found.ended.sum() == len(set(history.reported.round.tolist()))
    work = found.parts_ns[:, PARTS.index("client works")]
    evaluations = results.summary["traffic"]["up"]["scalars"] // max(history.reported.client.size, 1) + 1
    assert set(work.tolist()) <= {0, *(each * 10**7 for each in range(1, 2 * evaluations))} and work.any()


def test_a_round_is_work_and_two_ways_and_ends_with_its_slowest_client(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "clients": [5], "factor": 10}
    what = scenario(participation=ALL, faults=[slow], compute={"evaluation": 0.01}, network={"latency": 0.1})
    results = go(tmp_path / "run", what)
    found, rounds = waits(results), results.summary["rounds"]
    down, work, up = (found.total_ns[name] / rounds / 1e9 for name in PARTS[1:4])
    assert (down, up) == pytest.approx((0.1, 0.1)) and found.total_ns["after the report"] == 0
    assert found.ended.tolist() == [0, 0, 0, 0, 0, rounds, 0, 0] and found.most(3).tolist() == [5]
    assert found.alone_ns[5] / 1e9 == pytest.approx(0.9 * work * rounds), "the others need a tenth of its work"


def test_a_snapshot_and_the_keys_of_a_secure_sum_come_before_the_plan(tmp_path: Path) -> None:
    instant = {"network": {"latency": 0.1}, "compute": {"evaluation": 0.0}}
    whole = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
    three = {"clients": 8, "cohort": 3, "quorum": 3}
    what = scenario(algorithm=whole, secure_aggregation={}, participation=three, **instant)
    found = waits(go(tmp_path / "sums", what)).parts_ns / 1e9
    assert np.allclose(found, [0.4, 0.1, 0, 0.1, 0.4]), "two exchanges before each plan, and two to unmask the sum"
    lag = {"snapshot_after_commits": 1}
    found = waits(go(tmp_path / "lag", scenario(lag=lag, **instant))).parts_ns / 1e9
    assert np.allclose(found[-1], [0.4, 0.1, 0, 0.1, 0]), "an offer, a pull, a chunk, and then the client joins"


def test_a_client_that_never_answers_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    gone = {"fault": "dropout", "clients": [2], "at_round": 10}
    what = scenario(participation=ALL | {"deadline_s": 2.0}, faults=[gone], network={"latency": 0.1})
    results = go(tmp_path / "run", what)
    found = waits(results)
    in_vain = found.parts_ns[:, PARTS.index("after the report")] / 1e9
    assert np.allclose(in_vain, [0.0] * 10 + [1.8] * 10)
    assert found.missed.tolist() == [0, 0, 10, 0, 0, 0, 0, 0] and found.missed_ns[2] / 1e9 == pytest.approx(18)


def test_a_run_in_which_nobody_answers_is_one_wait(tmp_path: Path) -> None:
    what = lossy(1.0, stop={"rounds": 3})
    results = go(tmp_path / "run", what)
    found = waits(results)
    assert not found.parts_ns[:, :-1].any() and not found.ended.any()
    assert (found.parts_ns[:, -1] == results.history.closed_ns - results.history.opened_ns).all()
    assert "Where the time went" not in (results.folder / "report.html").read_text()


def test_the_latest_message_is_found_where_rounds_times_clients_is_near_the_largest_integer() -> None:
    clients, rounds = 2**31, np.array([2**29, 2**29, 2**29, 3])
    columns = {
        "kind": np.full(4, Kind.PLAN),
        "fate": np.full(4, Fate.DELIVERED),
        "recipient": np.array([7, 7, 8, 7]),
        "round": rounds,
        "arrived_ns": np.array([10, 20, 5, 30]),
        "sent_ns": np.array([1, 2, 3, 4]),
    }
    keys = np.array([2**29, 2**29, 2**29, 3, 3]) * clients + np.array([7, 7, 8, 7, 8])
    found = latest(columns, Kind.PLAN, "recipient", clients, keys, np.array([19, 25, 4, 30, 30]), "sent_ns")
    assert found.tolist() == [1, 2, 4, 4, 30], "that of another client or a later moment is none"


def test_a_report_that_comes_late_and_counts_was_not_waited_for_in_vain(tmp_path: Path) -> None:
    lost = {"fault": "drop", "clients": [2], "kind": "report"}
    asynchronous = {"clients": 8, "cohort": 4, "buffer": 2, "late": {"max_staleness": 5}, "deadline_s": 5.0}
    results = go(tmp_path / "run", scenario(participation=asynchronous, faults=[lost], stop={"rounds": 26}))
    found, table = waits(results), results.clients
    assert table["late"].sum() > 10 and found.missed.sum() < table["late"].sum()
    assert found.missed[2] > 0 and found.missed[2] == found.missed.max()
    assert (found.missed <= table["asked"] - table["counted"]).all()


def test_to_unmask_a_sum_is_no_wait_for_reports(tmp_path: Path) -> None:
    whole = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
    slow = {"fault": "straggler", "clients": [5], "factor": 10}
    gone = {"fault": "drop", "clients": [6], "kind": "report"}
    what = scenario(
        algorithm=whole,
        secure_aggregation={},
        participation=ALL | {"deadline_s": 2.0, "quorum": 3},
        network={"latency": 0.1},
        compute={"evaluation": 0.01},
        faults=[slow, gone],
        stop={"rounds": 4},
    )
    results = go(tmp_path / "run", what)
    found = waits(results)
    rows = results.messages
    plans = rows[rows["kind"] == "PLAN"].groupby("round")["sent_ns"].max()
    reports = rows[(rows["kind"] == "REPORT") & (rows["fate"] == "DELIVERED")].groupby("round")["arrived_ns"]
    until_s = plans / 1e9 + 2.0
    assert results.summary["version"] == 4
    times = results.summary["round_times"]
    assert times["in_vain_s"] == pytest.approx((until_s - reports.median() / 1e9).sum()) and not times["stragglers_s"]
    assert found.missed_ns[6] / 1e9 == pytest.approx((until_s - reports.max() / 1e9).sum())


def test_results_without_what_was_waited_in_vain_are_read_as_an_earlier_versions(tmp_path: Path) -> None:
    bounds = {"in_vain_share": {"at_most": 1.0}}
    folder = go(tmp_path / "run", scenario(stop={"rounds": 1})).folder
    summary = json.loads((folder / "results.json").read_text())
    del summary["round_times"]["in_vain_s"], summary["round_times"]["in_vain_share"], summary["participation"]["unused"]
    (folder / "results.json").write_text(json.dumps(summary))
    with_facts(folder, {}, without="results")
    assert not any(label == "waited in vain" for rows in groups(Results.read(folder).summary) for label, _ in rows)
    judged = run(scenario(stop={"rounds": 1}, expect=bounds), folder, resume=True).summary["expectations"]
    assert judged["in_vain_share"]["found"] is None and not judged["in_vain_share"]["is_met"]


def test_time_lost_to_stragglers_and_to_reports_that_never_come_are_told_apart(tmp_path: Path) -> None:
    """A round that waits for both would have lasted as long without the stragglers."""
    slow = {"fault": "straggler", "clients": [5], "factor": 10, "probability": 1.0}
    gone = {"fault": "drop", "clients": [6], "kind": "report", "at_round": 2}
    once = gone | {"for_rounds": 1}
    quick = {"network": {"latency": 0.1}, "compute": {"evaluation": 0.01}, "stop": {"rounds": 4}}
    found = {}
    for name, faults in {
        "none": [],
        "slow": [slow],
        "gone": [gone],
        "both": [slow, gone],
        "once": [slow, once],
    }.items():
        what = scenario(participation=ALL | {"deadline_s": 2.0}, faults=faults, **quick)
        times = go(tmp_path / name, what).summary["round_times"]
        found[name] = (times["stragglers_s"], times["in_vain_s"])
    work_s = 0.04  # of four evaluations of the loss
    assert found["none"] == (0.0, 0.0)
    assert found["slow"] == (pytest.approx(4 * 9 * work_s), 0.0)
    vain_s = 2.0 - 0.2 - work_s  # of each of the last two rounds
    assert found["gone"] == (0.0, pytest.approx(2 * vain_s))
    assert found["both"] == (pytest.approx(2 * 9 * work_s), pytest.approx(2 * vain_s))
    assert found["once"] == (pytest.approx(3 * 9 * work_s), pytest.approx(vain_s))
