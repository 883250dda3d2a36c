"""A table of the user's own: all processes compute equal bits, and one that has another file is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from commands import Command
from small_data import people_table
from worlds import DECOMFL, outcome, scenario

from seedbus.agents.errors import JoinRefused, RunFolderError
from seedbus.bus import HostRequest
from seedbus.bus.zeromq import Joining
from seedbus.models.data.roots import Roots
from seedbus.models.errors import NotAllowed
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.worker import serve
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement


def world(file: Path | str, **more: Any) -> Any:
    return scenario(
        task={"name": "table", "file": str(file), "target": "city", "hidden": [4], "owner": "person"},
        partition={"kind": "natural"},
        algorithm=DECOMFL,
        participation={"clients": 4, "cohort": 2},
        stop={"rounds": 3},
        **more,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_worker_processes_read_the_table_themselves_and_compute_the_same_bits(tmp_path: Path) -> None:
    people_table(tmp_path / "people.csv")
    what = world(tmp_path / "people.csv", verify=True)
    alone = run(what, tmp_path / "alone")
    assert outcome(run(what, tmp_path / "shared", placement=Placement("ipc", 2))) == outcome(alone)


def test_a_process_with_another_table_is_refused_when_it_joins(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    people_table(table)
    rows, what = table.read_text(), world(table)
    with ServerThread(what, tmp_path / "run") as server:
        endpoint = server.watcher.endpoint
        first = ClientsThread(what, endpoint, HostRequest(((0, 1),)))
        while not server.watcher.joined:
            first.join(0.01)
        table.write_text(rows.replace(",cat,", ",dog,", 1))  # as it is on the second process's machine
        with pytest.raises(JoinRefused, match=rf"\(x0\): task.file {table} here is probably not the run's: its x₀"):
            joining = Joining(endpoint, HostRequest(((2, 3),), evaluates=False))
            serve(joining, memory=None, parent_pipe=False, limits=None)
        table.write_text(rows)
        ClientsThread(what, endpoint, HostRequest(((2, 3),)))
        results = server.results()
    assert list(results.summary["refusals"]["x0"].values()) == [1] and results.summary["rounds"] == 3


def test_a_run_is_not_resumed_with_another_table(tmp_path: Path) -> None:
    people_table(tmp_path / "people.csv")
    what = world(tmp_path / "people.csv")
    run(what, tmp_path / "run")
    os.unlink(tmp_path / "run" / "results.json")
    people_table(tmp_path / "people.csv", rows=49)
    with pytest.raises(RunFolderError, match="begun with x0 "):
        run(what, tmp_path / "run", resume=True)


def test_a_table_is_beside_the_scenario_and_a_server_names_only_those_inside_the_directories_of_a_client(
    tmp_path: Path,
) -> None:
    people_table(tmp_path / "mine" / "people.csv")
    people_table(tmp_path / "private.csv")
    document = world(tmp_path / "private.csv").resolved()
    document["task"]["file"] = "people.csv"
    (tmp_path / "mine" / "s.yaml").write_text(dump(document))
    here: Any = load(tmp_path / "mine" / "s.yaml").task
    assert here.file == str(tmp_path / "mine" / "people.csv")
    roots = Roots([tmp_path / "mine"])
    received: Any = validate(document, "a server", roots=roots).task
    assert received.file == here.file
    for field, path in (("file", "../private.csv"), ("test_file", str(tmp_path / "private.csv"))):
        with pytest.raises(NotAllowed, match=r"the path .*mine"):
            validate(document | {"task": document["task"] | {field: path}}, "a server", roots=roots)


def test_the_partition_command_shows_the_names_of_classes(seedbus: Command, tmp_path: Path) -> None:
    people_table(tmp_path / "people.csv")
    task = f"task={{name: table, file: {tmp_path}/people.csv, target: city, validation: 0}}"
    by_pet = "partition={kind: by-column, column: pet}"
    said = seedbus("explain", "small.yaml", "partition", "--set", task, "--set", by_pet,
                   "--set", "participation={clients: 3}", "--set", "algorithm=fedavg", "--format", "json")  # fmt: skip
    assert said.code == 0, said.err
    shown = json.loads(said.out)
    assert shown["labels"] == ["Aarhus", "Bergen", "Cork"] and shown["samples"] == 38
    assert "Bergen" in seedbus("explain", "small.yaml", "partition", "--set", task).out
