"""Whole runs whose messages, models and checkpoints are long: the same bits as when all is short, and after kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from in_parts import make_small, scenario_in_parts
from processes import HANGS_S, seedbus
from running_transports import SOCKET_TRANSPORTS
from worlds import holds

from seedbus import pieces
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

PROGRAM = Path(__file__).parents[1] / "support" / "in_parts.py"
SAME = ("rounds", "version", "digest", "ledger_hash", "metrics", "refusals", "simulated_s")
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "two-vectors": {"algorithm": {"name": "scaffold"}},
    "another-model-is-sent": {"algorithm": {"name": "fedacg"}},
    "state": {"algorithm": {"name": "fedadam", "learning_rate": 0.01}},
    "robust": {"algorithm": {"name": "fedavg", "aggregation": "median"}},
    "top-k": {"algorithm": {"name": "fedavg", "compression": {"kind": "top-k", "fraction": 0.5}}},
    "qsgd": {"algorithm": {"name": "fedavg", "compression": "qsgd"}},
    "fedcom": {"algorithm": {"name": "fedavg", "compression": {"kind": "fedcom", "bits": 8}}},
    "fixed-point": {"algorithm": {"name": "fedavg", "compression": "fixed-point", "weighting": "uniform"}},
    "channel": {"algorithm": {"name": "fedavg", "channel": {"kind": "aircomp", "snr_db": 10}}},
    "late": {"participation": {"clients": 4, "cohort": 3, "deadline_s": 0.1, "late": {}}},
    "faults": {
        "faults": [{"fault": "drop", "probability": 0.2}, {"fault": "corrupt", "probability": 0.2}],
        "participation": {"clients": 4, "cohort": 3, "deadline_s": 0.3},
    },
}


def same(results: Results) -> dict[str, Any]:
    return {name: results.summary[name] for name in SAME} | {"by_kind": results.summary["traffic"]["by_kind"]}


def of(case: str) -> Scenario:
    return scenario_in_parts(**CASES[case])


@pytest.mark.few(3, slow=17)
@pytest.mark.parametrize("transport", ["memory", *SOCKET_TRANSPORTS])
@pytest.mark.parametrize("case", CASES)
def test_a_run_in_parts_has_the_bits_and_bytes_of_the_run_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, transport: str
) -> None:
    whole = run(of(case), tmp_path / "whole")
    make_small(monkeypatch.setattr)
    results = run(of(case), tmp_path / "run", placement=Placement(transport))
    assert same(results) == same(whole) and results.summary["version"] > 0
    assert holds(results)
    journal = Journal.open(results.folder, for_writing=False)
    ((rows,),) = journal._database.execute("SELECT count(*) FROM parts")
    journal.close()
    assert rows >= 6  # of the newest model, and of the checkpoint


def test_processes_that_forge_answers_take_messages_in_parts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = scenario_in_parts(
        faults=[{"fault": "hostile", "clients": [1], "kinds": ["noise"]}],
        participation={"clients": 4, "cohort": 3, "deadline_s": 0.3},
    )
    make_small(monkeypatch.setattr)
    monkeypatch.setattr("seedbus.bus.zeromq.worker.protocol.MOST_DOWN", 70_000)  # fewer bytes than a vector has
    here, there = (run(forged, tmp_path / name, placement=Placement(name)) for name in ("memory", "tcp"))
    assert same(there) == same(here) and here.summary["version"] > 0 and here.summary["refusals"]


@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.parametrize(("case", "vectors"), [("two-vectors", 2), ("another-model-is-sent", 1)])
def test_a_vector_of_several_byte_strings_is_the_same_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, vectors: int, transport: str
) -> None:
    whole = run(of(case), tmp_path / "whole")
    make_small(monkeypatch.setattr)
    monkeypatch.setattr(pieces, "SLICE", 80_000)  # three of each
    results = run(of(case), tmp_path / "run", placement=Placement(transport))
    assert results.summary["digest"] == whole.summary["digest"] and holds(results)
    assert results.summary["metrics"] == whole.summary["metrics"] and results.summary["refusals"] == {}
    bytes_of = [each.summary["traffic"]["by_kind"]["report"]["bytes"] for each in (results, whole)]
    assert bytes_of[0] - bytes_of[1] == 12 * vectors * 2 * 5  # a length of five bytes for each string but the first


def test_a_short_run_has_no_table_of_long_values(tmp_path: Path) -> None:
    results = run(scenario_in_parts(stop={"rounds": 1}), tmp_path / "run")
    assert b"CREATE TABLE parts" not in (results.folder / FILE).read_bytes()


def go(folder: Path, transport: str, workers: int, place: str = "part", call: int = 0, victim: str = "") -> Any:
    """Run or resume in a process of its own; returns what it prints, or None if it was killed."""
    process = seedbus(PROGRAM, folder, transport, workers, place, call, victim)
    printed, said = process.communicate(timeout=HANGS_S)
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, said
    return json.loads(printed.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "workers"), [("memory", 0), ("tcp", 0), ("ipc", 2)])
def test_a_server_that_is_killed_between_two_parts_goes_on_to_the_same_bits(
    tmp_path: Path, transport: str, workers: int
) -> None:
    digest, ledger, calls = go(tmp_path / "whole", transport, workers)
    for place in [each for each in ("part", "taken", "row") if calls.get(each)]:
        for share in (0.3, 0.62, 0.95):
            folder = tmp_path / f"{place}-{share}"
            assert go(folder, transport, workers, place, int(share * calls[place]), "server") is None
            assert go(folder, transport, workers)[:2] == [digest, ledger]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_workers_that_are_killed_between_two_parts_are_replaced_and_change_no_bit(
    tmp_path: Path, transport: str
) -> None:
    digest, ledger, calls = go(tmp_path / "whole", transport, 2)
    for share in (0.3, 0.7):
        folder = tmp_path / f"{share}"
        found = go(folder, transport, 2, "part", int(share * calls["part"]), "workers")
        assert found[:2] == [digest, ledger] and found[2]["part"] > calls["part"]  # some were sent again
