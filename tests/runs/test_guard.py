"""The guard's table of results is complete, its check notices changes, and the code gives these results."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import guard
import guard_data
import guard_runs
import pytest

from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS

TABLE = json.loads(guard.TABLE.read_text(encoding="utf-8"))["runs"]


def test_every_algorithm_fault_and_transport_has_a_run_and_a_line_in_the_table() -> None:
    runs = guard_runs.runs()
    assert runs.keys() == TABLE.keys()
    made = [guard_runs.BASE | changes for changes, _ in runs.values()]
    assert {each["algorithm"]["name"] for each in made} == ALGORITHMS.all().keys()
    assert {line["fault"] for each in made for line in each.get("faults", [])} == FAULTS.all().keys()
    assert {each["task"]["name"] for each in made} >= {"table", "torch", "language-model", "hugging-face"}
    assert {"everything-inproc", "everything-ipc", "everything-tcp", "everything-workers"} <= runs.keys()


def test_what_a_fault_does_shows_in_its_line() -> None:
    idle = [name for name, line in TABLE.items() if any(fault.keys() == {"fault"} for fault in line.get("faults", []))]
    assert not idle


def test_the_guard_uses_public_things_alone() -> None:
    """So that code can be moved freely, and an older checkout be compared."""
    for module in (guard, guard_runs, guard_data):
        tree = ast.parse(inspect.getsource(module))
        named = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
        named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {each for each in named if each.startswith("seedbus")} <= {"seedbus", "seedbus.plugin"}


def test_of_names_of_results_those_that_went_and_those_that_came_are_shown() -> None:
    known = TABLE["keys-everything"]
    found = known | {"results": [name for name in known["results"] if name != "digest"] + ["hash"]}
    assert guard.differences(found, known, False) == ['results: ["digest"] → ["hash"]']


@pytest.mark.slow
def test_a_line_of_another_processor_is_compared_on_that_processor_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of two processors: each line knows where it was written, and `--write --only` says it of a new one."""

    def guarded(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["guard.py", *options, "--only", "table", "--table", str(file)])
        return guard.main()

    file, here = tmp_path / "table.json", guard.surroundings()
    guard.write({}, here | {"vendor": "another"}, file)
    assert guarded("--write") == guarded("--check") == 0
    line = json.loads(file.read_text())["runs"]["table"]
    assert line["processor"] == here
    guard.write({"table": line | {"digest": "0"}}, here | {"vendor": "another"}, file)
    assert guarded("--check") == 1
    guard.write({"table": line | {"digest": "0", "processor": here | {"torch": "0.1"}}}, here, file)
    capsys.readouterr()
    assert guarded("--check") == 0
    assert "of 1 runs with torch losses" in capsys.readouterr().out


def test_a_learning_rate_that_is_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", "")  # `cells` names its own data there, which later tests are not to find
    changes, way = guard_runs.runs()["decomfl"]
    found = guard.cells(changes | {"algorithm": guard_runs.DECOMFL | {"learning_rate": 0.0101}}, way)
    differing = [line.partition(":")[0] for line in guard.differences(found, TABLE["decomfl"], False)]
    assert differing == ["digest", "halfway", "metrics"]


def test_another_processor_excuses_digests_of_torch_and_nothing_else() -> None:
    known = TABLE["digits-cnn"]
    found = known | {"digest": "0", "halfway": "0", "metrics": "0"}
    assert len(guard.differences(found, known, True)) == 3
    assert not guard.differences(found, known, False)
    assert guard.differences(found | {"up": 1}, known, False) == [f"up: {known['up']} → 1"]
    assert guard.differences(TABLE["decomfl"] | {"digest": "0"}, TABLE["decomfl"], False)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["Prescott", "Haswell"])
def test_no_bit_depends_on_the_kernels_that_blas_chooses_for_a_processor(core: str) -> None:
    """Two runs with sums over whole vectors: one clips gradients, one projects them."""
    command = [sys.executable, guard.__file__, "--check", "--only", "fedavg-epochs", "decomfl-projection"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_CORETYPE": core})
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_no_bit_byte_or_message_of_an_honest_run_has_changed() -> None:
    done = subprocess.run([sys.executable, guard.__file__, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if not line.startswith("ok"))
