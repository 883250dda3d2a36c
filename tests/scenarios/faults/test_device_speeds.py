"""Device speeds: files that list how fast the devices of clients compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bus_harness import MS
from worlds import go, scenario

from seedbus.agents.errors import RunFolderError
from seedbus.bus import Compute, FaultHooks, KeyedRandom, Pace
from seedbus.bus.network import Constant
from seedbus.scenarios.faults.device_speeds import DeviceSpeeds
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.without_effect import caveats

WORK = Compute(evaluation=Constant(value=0.001), replay=Constant(value=0.002))


def speeds(folder: Path, lines: str, **fields: Any) -> DeviceSpeeds:
    (folder / "speeds.csv").write_text(lines)
    return DeviceSpeeds(file=str(folder / "speeds.csv"), **fields)


def times_ms(*faults: object, clients: int = 8) -> list[float]:
    """Return the milliseconds in which each client evaluates once and folds two commits."""
    pace = Pace(WORK, 1, FaultHooks(faults, 1, clients))
    assert not pace.is_equal
    return [pace.time_ns(client, 3, 1, 2) / MS for client in range(clients)]


def test_the_work_of_a_client_takes_the_factor_of_its_line_and_of_all_faults_together(tmp_path: Path) -> None:
    fault = speeds(tmp_path, "client,factor\n2,0.5\n0,3\n5,1\n")
    assert times_ms(fault) == [15, 5, 2.5, 5, 5, 5, 5, 5]
    assert times_ms(fault, fault.model_copy(update={"clients": [0, 1]})) == [45, 5, 2.5, 5, 5, 5, 5, 5]
    what = {"faults": [fault.model_dump()], "participation": {"clients": 6}}
    (idle,) = caveats(scenario(**what))
    assert idle.startswith("faults.0 strikes nothing: it multiplies the time of local work, and compute.evaluation")
    said = ["faults.0 changes no speed of clients 1, 3, 4, of whom its file has no line"]
    assert caveats(scenario(**what, compute={"evaluation": 0.1})) == said


def test_each_client_has_the_speed_of_one_of_the_devices(tmp_path: Path) -> None:
    fault = speeds(tmp_path, "device,factor\nold,8\nnew,0.8\n")
    times = times_ms(fault, clients=200)
    groups = fault.client_groups(200, KeyedRandom(1, 200, repr(fault)))
    assert groups.keys() == {"device new", "device old"} and 70 < len(groups["device old"]) < 130
    assert times == [40 if client in groups["device old"] else 4 for client in range(200)]


def test_each_of_thirty_devices_is_a_group_and_of_more_or_of_clients_by_number_all_are_one(tmp_path: Path) -> None:
    def groups(first: str, names: list[str]) -> set[str]:
        fault = speeds(tmp_path, f"{first},factor\n" + "".join(f"{name},1\n" for name in names))
        return set(fault.client_groups(2000, KeyedRandom(1, 2000, "any")))

    names = [f"{number:060}" for number in range(31)]
    assert groups("device", names[:30]) == {f"device {name}" for name in names[:30]}
    assert groups("device", names) == groups("client", ["5", "7"]) == {"device-speeds"}


def test_the_slowest_and_the_fastest_device_are_accepted(tmp_path: Path) -> None:
    fault = speeds(tmp_path, "client,factor\n0,0.000001\n1,1000000\n")
    assert fault.factors(2, KeyedRandom(1, 2, "any")) == {0: 1e-6, 1: 1e6}


FILES = {
    "trace": "device,from_s,to_s\na,0,9\na,9.5,100\nb,0,100\nc,0,100\n",
    "link-trace": "device,from_s,up_mbps,down_mbps\nc,0,0.01,0.01\na,0,0.01,0.01\nb,0,0.1,\n",
    "device-speeds": "device,factor\nb,9\nc,1\na,2\n",
}


def on_devices(folder: Path, **others: str) -> Results:
    faults: list[dict[str, Any]] = [{"fault": name, "file": str(folder / f"{name}.csv")} for name in FILES]
    for name, lines in (FILES | others).items():
        (folder / f"{name}.csv").write_text(lines)
    faults[2] |= {"clients": [0, 1, 2, 3, 4, 5, 6]}
    what = scenario(faults=faults, compute={"evaluation": 0.01}, participation={"clients": 8, "cohort": 3, "quorum": 1})
    return go(folder / "run", what)


@pytest.mark.slow
def test_the_results_tell_which_device_each_client_has_in_all_files(tmp_path: Path) -> None:
    results = on_devices(tmp_path)
    devices = results.clients["device"]
    assert set(devices) == {"a", "b", "c"} and list(results.clients)[:2] == ["device", "asked"]
    means = results.clients.groupby("device")["bytes_up"].mean()
    for name, group in results.groups.xs("group", level="who").iterrows():
        device = str(name)[-1]
        if str(name).startswith("fault 0"):
            assert (devices == device).sum() == group["clients"] and means[device] == group["bytes_up_per_client"]
    groups = results.groups.index.unique("group").tolist()
    fewer = [f"fault 2: device {devices[7]}"] * int((devices == devices[7]).sum() > 1)
    assert groups == [f"fault 0: device {device}" for device in devices.unique()] + fewer, (
        "each of the same clients once"
    )
    path = results.folder / "results.json"
    stored = json.loads(path.read_text())
    stored["client_devices"]["device"].pop()
    path.write_text(json.dumps(stored))
    with pytest.raises(RunFolderError, match=r"client_devices\.device: 7 devices of 8 clients"):
        Results.read(results.folder)


@pytest.mark.slow
def test_files_of_other_devices_have_columns_of_their_own(tmp_path: Path) -> None:
    clients = on_devices(tmp_path, **{"device-speeds": "device,factor\nx,3\ny,1\n"}).clients
    assert list(clients)[:4] == ["device, fault 0", "device, fault 1", "device, fault 2", "asked"]
    assert (clients["device, fault 0"] == clients["device, fault 1"]).all()
    assert set(clients["device, fault 2"][:7]) <= {"x", "y"} and pd.isna(clients["device, fault 2"][7])
