"""Groups of clients beside the others: who is in them, and what the results tell of them."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from pages import own
from power_cuts import PowerCut, cut_power
from worlds import go, outcome, scenario

from seedbus.agents.journal.journal import Journal
from seedbus.bus import KeyedRandom, Kind, Passage
from seedbus.scenarios.faults.device_classes import DeviceClasses
from seedbus.scenarios.faults.partition import Partition
from seedbus.scenarios.reporting.client_groups import groups_of
from seedbus.scenarios.reporting.page import write_page
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import scenario_of

SLOW: dict[str, Any] = {"fault": "straggler", "factor": 40, "clients": [1, 4]}
HERE: dict[str, Any] = {
    "participation": {"clients": 8, "cohort": 4, "deadline_s": 1.0},
    "compute": {"evaluation": 0.1},
    "faults": [SLOW, {"fault": "drop", "probability": 0.1}],
    "client_groups": {"phones": [7, 0, 0], "clinics": [0, 1, 2]},
    "stop": {"rounds": 15},
}
NODES: dict[str, Any] = {
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "perturbations": 2},
    "participation": {"clients": 8},
    "topology": {"kind": "gossip", "graph": "ring"},
    "network": {"latency": 0.1},
}
COSTS = ("bytes_up_per_client", "bytes_down_per_client")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return go(tmp_path_factory.mktemp("groups") / "run", scenario(**HERE))


def of_slow(results: Results) -> list[Any]:
    """Return the figures of the clients that are slow, and those of the others."""
    frame: Any = results.groups
    return [frame.loc["fault 0: straggler", who] for who in ("group", "others")]


def members(what: Any) -> dict[str, list[int]]:
    return {name: np.flatnonzero(mask).tolist() for name, mask in groups_of(what).items()}


def test_groups_are_those_with_a_name_and_those_of_faults_that_strike_neither_all_clients_nor_none() -> None:
    speeds = [{"share": 0.5, "factor": 1}, {"share": 0.5, "factor": 4}]
    faults = [
        {"fault": "drop", "probability": 0.1},
        {"fault": "churn", "stays": 1, "away": 1, "clients": []},
        {"fault": "crash", "fraction": 1.0, "for_rounds": 1},
        SLOW,
        {"fault": "device-classes", "classes": speeds, "clients": [0, 1, 2, 3, 5]},
    ]
    found = members(scenario(**HERE | {"faults": faults, "seed": 2}))
    one, other = "fault 4: device class 0, factor 1", "fault 4: device class 1, factor 4"
    assert list(found) == ["phones", "clinics", "fault 3: straggler", one, other]
    assert [found["phones"], found["clinics"], found["fault 3: straggler"]] == [[0, 7], [0, 1, 2], [1, 4]]
    assert sorted(found[one] + found[other]) == [0, 1, 2, 3, 5]


def test_devices_of_a_class_are_those_of_its_speed_and_cut_off_are_those_whose_messages_are_lost() -> None:
    speeds = DeviceClasses.model_validate(
        {"classes": [{"share": share, "factor": factor} for share, factor in ((0.5, 1.0), (0.3, 4.0), (0.2, 0.5))]}
    )
    random = KeyedRandom(3, 200, repr(speeds))
    for each, clients in zip(speeds.classes, speeds.client_groups(200, random).values(), strict=True):
        assert clients == [client for client in range(200) if speeds.slows(client, 5, random).factor == each.factor]

    cut = Partition(fraction=0.5, probability=0.6)
    random = KeyedRandom(3, 200, repr(cut))
    sent = [Passage(Kind.REPORT, client, 4, 0, 0, 0, False, random) for client in range(200)]
    (found,) = cut.client_groups(200, random).values()
    assert found == [each.client for each in sent if cut.judge(each).drop] and 40 < len(found) < 80


def require_that_they_add_up(results: Results, costs: dict[str, str]) -> None:
    """Check the figures of each group against the table of clients, and with those of the others against all clients.

    costs: column → where the traffic has its sum over all clients.
    """
    summary, table = results.summary, results.clients
    frame: Any = results.groups
    assert frame.index.unique("group").tolist() == ["phones", "clinics", "fault 0: straggler"]
    for name, part in frame.groupby(level="group"):
        assert part["clients"].sum() == 8 and part["reports_share"].sum() == pytest.approx(1)
        assert part["reports"].sum() == summary["participation"]["counted"]["total"]
        for column, direction in costs.items():
            sent = (part[f"{column}_per_client"] * part["clients"]).sum()
            assert sent == pytest.approx(summary["traffic"][direction]["bytes"])
        clients = table.iloc[members(scenario_of(results.folder))[str(name)]]
        group = part.xs("group", level="who").iloc[0]
        assert group["reports_median"] == clients["counted"].median()
        for column in ("bytes_up", "bytes_down", "catchup_bytes"):
            assert group[f"{column}_per_client"] == pytest.approx(clients[column].mean())
        assert group["lag_mean"] == pytest.approx(np.average(clients["lag_mean"], weights=clients["asked"]))


def test_a_group_and_the_others_have_together_what_all_have(results: Results) -> None:
    require_that_they_add_up(results, {"bytes_up": "up", "bytes_down": "down"})
    slow, others = of_slow(results)
    assert slow["reports"] == 0 < others["reports_median"]
    # their answers are always late, so they are sent commits again, and have them
    assert (
        slow["catchup_bytes_per_client"] > others["catchup_bytes_per_client"] and slow["lag_mean"] < others["lag_mean"]
    )


def test_without_a_server_groups_of_nodes_are_told_by_their_commits(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(**HERE | NODES))
    require_that_they_add_up(results, {"bytes_up": "up"})
    assert "nodes: " in str(results) and "rounds with commits" in str(results)


def test_what_is_printed_and_shown_of_a_group_are_its_figures_beside_those_of_the_others(results: Results) -> None:
    group, others = of_slow(results)
    text = " ".join(str(results).replace("│", " ").split())
    reports = f"0 ({others['reports_median']:g}) reports, 0.0% of all"
    sizes = [f"{readable(group[each])} ({readable(others[each])})" for each in COSTS]
    assert f"fault 0: straggler 2 (6) clients: {reports}; {sizes[0]} up, {sizes[1]} down" in text
    page = own((results.folder / "report.html").read_text(encoding="utf-8"))
    assert "<h2>Groups of clients</h2>" in page and "<td>fault 0: straggler<br>the others</td><td>2<br>6</td>" in page


def test_an_earlier_run_has_no_groups_and_its_page_is_written_without_them(results: Results, tmp_path: Path) -> None:
    folder = Path(copytree(results.folder, tmp_path / "run"))
    path = folder / "results.json"
    summary = json.loads(path.read_text())
    assert summary.pop("groups")
    path.write_text(json.dumps(summary))
    earlier = Results.read(folder)
    write_page(earlier)
    assert earlier.groups.empty and "groups of clients" not in str(earlier)
    assert "Groups of clients" not in (folder / "report.html").read_text(encoding="utf-8")


def test_a_run_that_is_resumed_has_the_same_groups(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = scenario(**HERE)
    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        cut_power(patch, Journal, "append", 3, before=False)
        go(tmp_path / "run", what)
    assert outcome(go(tmp_path / "run", what, resume=True)) == outcome(results)


def test_clients_that_a_trace_names_are_a_group_while_its_file_is_that_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    path.write_text("client,from_s,to_s\n5,0,9\n2,0,1\n2,3,4\n")
    faults = [{"fault": "trace", "file": str(path)}, SLOW]
    what = scenario(**HERE | {"faults": faults, "client_groups": {}})
    assert members(what) == {"fault 0: trace": [2, 5], "fault 1: straggler": [1, 4]}
    results = go(tmp_path / "run", what)
    assert list(results.summary["groups"]) == ["fault 0: trace", "fault 1: straggler"]
    kept, files = scenario_of(results.folder), what.check()
    path.write_text("client,from_s,to_s\n6,0,9\n")
    assert list(groups_of(kept, files)) == ["fault 1: straggler"]
    path.unlink()
    assert list(groups_of(kept, files)) == ["fault 1: straggler"]
