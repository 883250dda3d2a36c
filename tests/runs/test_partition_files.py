"""A table of who holds what: every process finds and proves it, and the run records its digest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from power_cuts import PowerCut, cut_power
from worlds import DECOMFL, scenario

from seedbus.agents.client.worker import prove
from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.algorithms.contract import Replica
from seedbus.models.data.roots import Roots
from seedbus.models.errors import NotAllowed
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

DIGITS = {"name": "digits", "model": "softmax", "batch_size": 4}


def table(path: Path, step: int) -> Path:
    """Write a table that gives every client each `step`-th row of the digits' file, from its own number on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{client},{row}\n" for client in range(4) for row in range(client, 1_700, step)]
    path.write_text("client,row\n" + "".join(lines))
    return path


def divided(file: Path | str) -> Any:
    return scenario(
        task=DIGITS,
        partition={"kind": "file", "file": str(file)},
        algorithm=DECOMFL,
        participation={"clients": 4, "cohort": 2},
        stop={"rounds": 6},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_several_processes_find_the_table_in_the_data_directory_and_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    path = table(tmp_path / "data" / "who" / "parts.csv", 50)
    alone = run(divided(path), tmp_path / "alone")
    shared = run(divided("who/parts.csv"), tmp_path / "shared", placement=Placement("tcp", 2))
    assert shared.summary["digest"] == alone.summary["digest"] and shared.summary["version"] == 6
    table(path, 40)
    assert run(divided(path), tmp_path / "other").summary["digest"] != alone.summary["digest"]


def test_a_run_records_the_digest_of_its_table_and_does_not_go_on_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = divided(table(tmp_path / "parts.csv", 50))
    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "append", 3, before=False)
        with pytest.raises(PowerCut):
            run(what, tmp_path / "run")
    with closing(Journal.open(tmp_path / "run", for_writing=False)) as journal:
        assert journal.facts()["partition.file"] == what.partition.file_digest(4)
    table(tmp_path / "parts.csv", 51)
    with pytest.raises(RunFolderError, match=r"begun with partition\.file [0-9a-f]{32}, and this is"):
        run(what, tmp_path / "run", resume=True)
    table(tmp_path / "parts.csv", 50)
    assert run(what, tmp_path / "run", resume=True).summary["rounds"] == 6


def test_a_process_proves_the_table_that_it_has_and_nothing_more_where_there_is_none(tmp_path: Path) -> None:
    def proof(what: Any) -> bytes:
        return prove(what.algorithm, bind(what))["x0"]

    first = proof(divided(table(tmp_path / "one.csv", 50)))
    assert proof(divided(table(tmp_path / "elsewhere" / "two.csv", 50))) == first
    assert proof(divided(table(tmp_path / "two.csv", 60))) != first
    iid = scenario(task=DIGITS, participation={"clients": 4, "cohort": 2})
    assert proof(iid) == Replica(0, {"x": bind(iid).x0()}).digests()["x"]


def test_a_table_is_looked_for_beside_the_scenario_and_then_in_the_data_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    file = tmp_path / "world" / "s.yaml"
    in_data = table(tmp_path / "data" / "parts.csv", 50)
    file.parent.mkdir()
    file.write_text(dump(divided("parts.csv").resolved()))
    assert load(file).resolved()["partition"]["file"] == "parts.csv"
    from_data = load(file).check()["partition.file"]
    beside = table(file.parent / "parts.csv", 60)
    assert load(file).resolved()["partition"]["file"] == str(beside)
    assert load(file).check()["partition.file"] != from_data == divided(in_data).check()["partition.file"]


def test_a_server_names_only_tables_inside_the_directories_of_a_client(tmp_path: Path) -> None:
    roots = Roots([tmp_path / "mine"])
    table(tmp_path / "private.csv", 50)
    inside = table(tmp_path / "mine" / "parts.csv", 50)
    (tmp_path / "mine" / "way-out.csv").symlink_to(tmp_path / "private.csv")

    def received(file: str) -> Any:
        return validate(divided(file).resolved(), "a server", roots=roots)

    assert received("parts.csv").partition.file == str(inside) == received(str(inside)).partition.file
    for outside in ("../private.csv", "way-out.csv", str(tmp_path / "private.csv"), "/etc/passwd", "~/x.csv"):
        with pytest.raises(NotAllowed, match=r"the path .*mine"):
            received(outside)
    with pytest.raises(ScenarioError, match=r"partition.file: .*there is no such file in .*mine"):
        received("nowhere.csv")
