"""Clients that have names, as the owners of a table have, are shown with them; names are data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from pages import own, plots
from small_data import leaf_sets
from worlds import DECOMFL, go, outcome, scenario

import seedbus
from seedbus.agents.errors import RunFolderError
from seedbus.models.generators import generator
from seedbus.scenarios.reporting.client_names import named, with_names
from seedbus.scenarios.reporting.closing_table import groups
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.verify import verify
from seedbus.scenarios.transports.placement import Placement

EVIL = "<b>East</b>\x1b[31m"
SHOWN = "<b>East</b> [31m"
CLINICS = (EVIL, "North", "West")


def clinics(folder: Path, **changes: Any) -> Any:
    """Write a table of three clinics, and return a scenario in which a fourth of the reports is late."""
    draw = generator("clinics")
    rows = [f"{draw.integers(9)},{draw.integers(9)},{CLINICS[row % 3]},{'ab'[row % 2]}" for row in range(60)]
    (folder / "clinics.csv").write_text("\n".join(["x,y,clinic,class", *rows]))
    fields = {
        "task": {
            "name": "table",
            "file": str(folder / "clinics.csv"),
            "target": "class",
            "owner": "clinic",
            "hidden": [4],
        },
        "partition": {"kind": "by-column", "column": "clinic"},
        "algorithm": DECOMFL,
        "participation": {"clients": 3, "cohort": 2, "deadline_s": 0.2},
        "stop": {"rounds": 20},
    }
    return scenario(**(fields | changes))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("clinics")
    return go(folder / "run", clinics(folder))


@pytest.mark.slow
def test_owners_are_named_in_results_page_and_closing_table_and_nothing_of_a_name_is_markup(results: Results) -> None:
    stored = json.loads((results.folder / "results.json").read_text())
    assert stored["client_names"] == results.client_names == [SHOWN, "North", "West"]
    assert results.clients["name"].tolist() == results.client_names and results.clients.index.name == "client"
    html = own((results.folder / "report.html").read_text(encoding="utf-8"))
    assert "\x1b" not in html and "<b>East" not in html
    for title in ("The clients that rounds waited for longest", "The clients that lagged most"):
        rows = re.findall(r"<tr><td>(.*?)</td>", html[html.index(title) :].partition("</table>")[0])
        assert rows and set(rows) <= {"0 (&lt;b&gt;East&lt;/b&gt; [31m)", "1 (North)", "2 (West)"}
    ticks = plots(html)["Which clients took part"]["layout"]["yaxis"]
    assert ticks["tickvals"] == [0, 1, 2]
    assert ticks["ticktext"] == ["0 (&lt;b&gt;East&lt;/b&gt; [31m)", "1 (North)", "2 (West)"]
    refused = {
        "refusals": {"late": {"1": 2}},
        "refusal_details": {"late": "client 1 is late, and client 7 and client 12345678901234"},
    }
    told = dict(row for group in groups(results.summary | refused) for row in group)["refused: late"]
    assert told.endswith("the first: client 1 (North) is late, and client 7 and client 12345678901234")


@pytest.mark.slow
def test_a_changed_name_is_noticed_though_only_the_data_tells_names(results: Results, tmp_path: Path) -> None:
    file = shutil.copytree(results.folder, tmp_path / "run") / "results.json"
    assert not verify(tmp_path / "run").differences and "client_names" in verify(tmp_path / "run").noted
    file.write_text(file.read_text().replace('"North"', '"South"'))
    assert [each.field for each in verify(tmp_path / "run").differences] == ["client_names"]


@pytest.mark.slow
def test_an_analysis_names_the_client_that_is_served_worst(results: Results) -> None:
    (found,) = seedbus.analyse(results.folder, only="fairness", page=False)
    assert found.facts["client_names"] == results.client_names
    values = found.facts["rounds"][0]["own"]["values"]
    worst = values.index(min(values))
    assert f"Worst, round 20, own, training: client {named(worst, results.client_names)}." in found.notes


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_worker_processes_of_this_machine_change_nothing_of_it_and_those_of_others_have_no_names(
    results: Results, tmp_path: Path
) -> None:
    run = seedbus.run(clinics(tmp_path), tmp_path / "run", placement=Placement("ipc", 2))
    assert outcome(run) == outcome(results)
    assert not Placement(bind="tcp://127.0.0.1:5555").is_local


@pytest.mark.slow
def test_a_run_without_names_has_none_and_a_list_of_another_length_is_damage(results: Results, tmp_path: Path) -> None:
    stored = json.loads((results.folder / "results.json").read_text())
    for names, said in (([], None), (["East"], "client_names: 1 names of 3 clients")):
        file = tmp_path / "results.json"
        file.write_text(json.dumps(stored | {"client_names": names}))
        if said is None:
            assert Results.read(tmp_path).client_names == []
        else:
            with pytest.raises(RunFolderError, match=said):
                Results.read(tmp_path)
    del stored["client_names"]
    file.write_text(json.dumps(stored))
    assert Results.read(tmp_path).client_names == []


def test_a_name_stands_beside_a_number_once() -> None:
    assert [named(client, ["East", "", "2", "y" * 99]) for client in range(5)] == [
        "0 (East)",
        "1",
        "2",
        f"3 ({'y' * 59}…)",
        "4",
    ]
    assert named(1234, []) == "1,234" and with_names("client 0 left", []) == "client 0 left"


@pytest.mark.slow
def test_the_people_of_leaf_are_named_by_their_ids(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    leaf_sets(tmp_path)
    command = ["explain", "femnist", "partition", "--set", "participation={clients: 4}"]
    shown = seedbus(*command, "--set", "partition=natural")
    assert shown.code == 0 and "2 (f0002_00)" in shown.out
    found = json.loads(seedbus(*command, "--set", "partition=natural", "--format", "json").out)
    assert found["client_names"] == [f"f{writer:04}_00" for writer in range(4)]
    assert "client_names" not in json.loads(seedbus(*command, "--set", "partition=iid", "--format", "json").out)
