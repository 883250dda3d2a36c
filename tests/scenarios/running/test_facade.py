"""The package's public interface, as a notebook uses it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import lossy, outcome

import seedbus
from seedbus.bus.ledger import Row
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.schema.scenario import Scenario

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def what() -> Scenario:
    return lossy(stop={"rounds": 10}, evaluation={"every": 3})


@pytest.mark.parametrize("where", [ROOT, ROOT / "tests", Path("/")])
def test_importing_it_from_anywhere_loads_nothing(where: Path) -> None:
    code = "import sys, seedbus; print([name for name in sys.modules if name.startswith('seedbus.')], dir(seedbus))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=where)
    assert (done.returncode, done.stdout.strip()) == (0, f"[] {sorted(seedbus.__all__)}"), done.stderr


@pytest.mark.slow
def test_it_works_from_the_root_of_a_checkout_without_being_installed() -> None:
    code = "import seedbus, seedbus.scenarios.running.run; print(seedbus.load('quickstart').name, seedbus.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["quickstart", str(ROOT / "seedbus" / "__init__.py")], done.stderr


def test_its_version_is_that_of_the_installed_package() -> None:
    assert seedbus.__version__ == version("seedbus")


def test_every_name_that_it_announces_is_there_and_no_other() -> None:
    assert all(getattr(seedbus, name).__name__ == name for name in seedbus.__all__)
    with pytest.raises(AttributeError, match="module 'seedbus' has no attribute 'nothing'"):
        _ = seedbus.nothing


def test_a_script_loads_runs_looks_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["task.model=softmax", "stop.rounds=6", "evaluation.every=2", "participation.clients=10"]
    results = seedbus.run(seedbus.load("quickstart", small))
    assert results.folder == Path("runs/quickstart-1")
    assert list(results.metrics["round"]) == [0, 1, 3, 5]
    assert results.metrics["accuracy"].between(0, 1).all() and results.metrics["bytes_down"].is_monotonic_increasing
    assert set(results.messages.columns) == set(Row._fields)
    assert {"PLAN", "REPORT"} <= set(results.messages["kind"])
    assert set(results.messages["fate"]) <= {"DELIVERED", "DROPPED"}
    traffic = results.summary["traffic"]
    assert len(results.messages) == sum(traffic["fates"].values()) + traffic["transport"]["rows"]
    replayed = seedbus.replay("runs/quickstart-1")
    assert replayed.digest == results.digest
    assert seedbus.replay(results.folder, round=0).digest != results.digest


def test_a_folder_may_be_given_as_text(tmp_path: Path, what: Scenario) -> None:
    results = seedbus.run(what, str(tmp_path / "run"))
    assert results.folder == tmp_path / "run"
    assert seedbus.run(what, str(tmp_path / "run"), resume=True).summary == results.summary
    model = seedbus.replay(str(tmp_path / "run"), 10)
    model.save(str(tmp_path / "model.safetensors"))
    from safetensors.numpy import load_file

    saved = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(saved.pop("x").ravel(), model.replica.x)
    assert set(saved) == {"seedbus.momentum"}


async def test_a_run_works_where_a_loop_is_running_already(tmp_path: Path, what: Scenario) -> None:
    """In a running event loop, as in Jupyter, a run is an ordinary call and the loop continues after it."""
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(len(ticks))
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    before, loop = len(ticks), asyncio.get_running_loop()
    results = seedbus.run(what, tmp_path / "inside")
    assert len(ticks) == before  # the outer loop waited
    assert asyncio.get_running_loop() is loop
    await asyncio.sleep(0)
    assert len(ticks) > before
    ticking.cancel()
    outside = await asyncio.to_thread(seedbus.run, what, tmp_path / "outside")
    assert outcome(outside) == outcome(results)


async def test_a_run_that_fails_there_leaves_the_loop_as_it_was(
    tmp_path: Path, what: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("seedbus.agents.client.clients.Host._work", stop)
        with pytest.raises(Interrupted, match=f"seedbus run --resume {tmp_path / 'run'}"):
            seedbus.run(what, tmp_path / "run")
    await asyncio.sleep(0)
    assert seedbus.run(what, tmp_path / "run", resume=True).summary["rounds"] == 10


def test_measurements_are_read_back_to_the_last_bit(tmp_path: Path, what: Scenario) -> None:
    results = seedbus.run(what, tmp_path / "run")
    again = seedbus.Results.read(tmp_path / "run")
    assert again.metrics.equals(results.metrics)
    assert repr(float(again.metrics["loss"].iloc[-1])) == repr(results.summary["metrics"]["loss"])
