"""The package's public interface, as a notebook uses it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from worlds import go, lossy, outcome, scenario

import seedbus
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.launcher import unpacked
from seedbus.bus.ledger import Row
from seedbus.models import DataError
from seedbus.scenarios.errors import Interrupted, ScenarioError
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
    assert results.folder == tmp_path / "runs/quickstart-1" and results.summary["run"] == "runs/quickstart-1"
    assert list(results.metrics["round"]) == [0, 1, 3, 5]
    assert results.metrics["accuracy"].between(0, 1).all() and results.metrics["bytes_down"].is_monotonic_increasing
    assert set(results.messages.columns) == {*Row._fields, "bytes"}
    assert {"PLAN", "REPORT"} <= set(results.messages["kind"])
    assert set(results.messages["fate"]) <= {"DELIVERED", "DROPPED"}
    traffic = results.summary["traffic"]
    assert len(results.messages) == sum(traffic["fates"].values()) + traffic["transport"]["rows"]
    replayed = seedbus.replay("runs/quickstart-1")
    assert replayed.digest == results.digest
    assert seedbus.replay(results.folder, round=0).digest != results.digest


def linear() -> seedbus.TorchTask:
    """Return a task of objects of this program: two classes of points, by their first coordinate."""
    points = torch.from_numpy(np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32))
    samples = TensorDataset(points, (points[:, 0] > 0).long())
    return seedbus.TorchTask(network=lambda: nn.Linear(3, 2), train=samples, test=samples, batch_size=8)


FEW: dict[str, Any] = {"algorithm": "decomfl", "participation": {"clients": 4}, "stop": {"rounds": 2}}


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_run_takes_settings_as_the_command_line_does(tmp_path: Path, is_loaded: bool) -> None:
    what: Any = seedbus.load(FEW | {"task": "quadratic"}) if is_loaded else FEW | {"task": "quadratic"}
    results = seedbus.run(what, tmp_path / "run", settings={"stop.rounds": 3, "algorithm": "hiso"}, page=False)
    assert (results.summary["rounds"], results.summary["algorithm"]) == (3, "hiso")
    with pytest.raises(ScenarioError) as raised:
        seedbus.run(what, tmp_path / "other", settings={"stop.round": 3})
    assert str(raised.value) == "scenario --set stop.round=3: stop.round: no such field; did you mean rounds?"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("is_in_scenario", [False, True])
def test_settings_change_a_scenario_whose_task_is_an_object_but_not_the_task(
    tmp_path: Path, is_in_scenario: bool
) -> None:
    task = linear()
    what = seedbus.load(FEW)
    given = None if is_in_scenario else task
    what = what.with_task(task) if is_in_scenario else what
    assert seedbus.run(what, tmp_path / "run", task=given, settings=["stop.rounds=3"]).summary["rounds"] == 3
    with pytest.raises(ScenarioError, match=r"^--set task\.batch_size=2: the task is an object of this program; "):
        seedbus.run(what, tmp_path / "other", task=given, settings={"task.batch_size": 2})


@pytest.mark.parametrize("mask", [{}, {"mask": {"rule": "random", "density": 0.5}}])
def test_results_give_the_model_of_any_round_as_a_network_that_predicts(tmp_path: Path, mask: dict[str, Any]) -> None:
    task: Any = linear()
    settings = {"algorithm.learning_rate": 0.1, "algorithm.perturbations": 10, "stop.rounds": 40} | mask
    results = seedbus.run(FEW, tmp_path / "run", task=task, settings=settings, page=False)
    model, network = results.model(), results.model().network()
    inputs, classes = task.test[:]
    right = (network(inputs).argmax(1) == classes).double().mean()
    assert right == results.metrics["accuracy"].iloc[-1] and not network.training
    assert (
        model.digest == results.digest != results.model(0).digest == seedbus.replay(results.folder, 0, task=task).digest
    )
    again = seedbus.Results.read(results.folder).model(task=task).network()
    assert all(map(torch.equal, again.parameters(), network.parameters())) and again is not network
    with pytest.raises(
        ScenarioError, match=r"Replayed\.network: its task has no network; its coordinates are in `point`"
    ):
        seedbus.run(FEW | {"task": "quadratic"}, tmp_path / "other").model().network()


@pytest.mark.slow
def test_a_scenario_of_keywords_and_its_tables_and_plots_need_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fields = {"algorithm": "hiso", "participation": {"clients": np.int64(4), "cohort": 2}, "stop": {"rounds": 6}}
    scenario = seedbus.Scenario(task="quadratic", **fields)
    results = seedbus.run(scenario)
    assert scenario == seedbus.load(fields | {"task": "quadratic"}) and results.folder == tmp_path / "runs/scenario-1"
    assert seedbus.run(fields | {"task": "quadratic"}).digest == results.digest
    rounds = results.rounds
    assert len(rounds) == 6 and rounds["asked"].eq(2).all() and rounds["reported"].eq(2).all()
    assert rounds["lag_max"].iloc[0] == 0 and rounds["has_commit"].all()
    assert "<tr><td>loss</td>" in results._repr_html_() and "summary" not in repr(results)
    Path("scenario.yaml").write_text(str(scenario), encoding="utf-8")
    assert seedbus.load("scenario.yaml") == scenario and "<pre>name: scenario\n" in scenario._repr_html_()
    matplotlib.use("agg")
    axes = results.plot("gap", over="bytes")
    seedbus.Results.read(Path("runs/scenario-2")).plot("gap", over="bytes", ax=axes)
    first, second = (np.asarray(line.get_ydata()).tolist() for line in axes.lines)
    assert first == second == results.metrics["gap"].tolist()
    with pytest.raises(ScenarioError, match=r"Results.plot: 'gab' is not measured; did you mean gap\?"):
        results.plot("gab")


@pytest.mark.slow
def test_a_plot_takes_any_name_of_a_folder_and_values_of_which_none_is_finite(tmp_path: Path) -> None:
    matplotlib.use("agg")
    from matplotlib import pyplot

    folder = tmp_path / "a$b_$c"
    go(folder, lossy(stop={"rounds": 1}))
    file = folder / "metrics.jsonl"
    file.write_text(re.sub(r'"loss": [^,}]+', '"loss": null', file.read_text()))
    results = seedbus.Results.read(folder)
    assert results.metrics["loss"].dtype == float and results.metrics["loss"].isna().all()
    figure, axes = pyplot.subplots()
    results.plot("loss", ax=axes)
    assert np.isnan(np.asarray(axes.lines[0].get_ydata(), float)).all()
    figure.savefig(tmp_path / "plot.svg")
    assert "a$b_$c" in (tmp_path / "plot.svg").read_text(), "a name is no formula"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"algorithm": "hisoo"}, r'algorithm.name: "hisoo" is not known; did you mean hiso\?'),
        ({"clients": 10}, r"clients: no such field; did you mean participation.clients\?"),
        ({"task": object()}, r"task: .* is not accepted; expected a mapping of fields"),
        ({"stop": {"rounds": "ten"}}, 'stop.rounds: "ten" is not accepted; expected a whole number'),
    ],
)
def test_a_mistake_in_keywords_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    fields = {"task": "quadratic", "algorithm": "hiso", "participation": {"clients": 4}, "stop": {"rounds": 6}}
    with pytest.raises(ScenarioError, match=rf"\AScenario: {sentence}\Z"):
        seedbus.Scenario(**(fields | changed))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"network": 3}, r"task.network: found 3; expected a function, or plugin:function"),
        ({}, r"task.network: found nothing; expected plugin:function that returns a new torch.nn.Module; .*"),
        ({"network": len, "data": len, "bach": 2}, r"task.bach: found no such field; expected one of name, batch_.*"),
        ({"network": len, "data": len, "batch_size": 0}, r"task.batch_size: found 0; expected greater than or eq.* 1"),
        (
            {"network": len},
            r"task: found only network; expected either `data`, or in Python `train` and `test`; for .*",
        ),
    ],
)
def test_a_mistake_in_a_task_of_ones_own_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=rf"\A{sentence}\Z"):
        seedbus.TorchTask(**fields)


def test_a_folder_may_be_given_as_text(tmp_path: Path, what: Scenario) -> None:
    results = seedbus.run(what, str(tmp_path / "run"))
    assert results.folder == tmp_path / "run"
    assert seedbus.run(what, str(tmp_path / "run"), resume=True).summary == results.summary
    model = seedbus.replay(str(tmp_path / "run"), 10)
    model.save(str(tmp_path / "model.safetensors"))
    from safetensors.numpy import load_file

    saved = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(saved.pop("x").ravel(), model.replica.x)
    assert not saved and "momentum" in model.replica.fields, "torch's load_state_dict takes it as it is"


@pytest.mark.parametrize("method", ["fedacg", "fedexp"])
def test_a_replayed_model_is_the_one_that_was_evaluated_where_clients_are_sent_another(
    method: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "task": {"name": "quadratic", "dimension": 30},
        "evaluation": {"every": 1},
        "stop": {"rounds": 65},
    }
    results = seedbus.run(lossy(algorithm={"name": method, "local_steps": 2}, **changes), tmp_path / "run")
    fiftieth = int((results.metrics["version"] < 50).sum())
    for rounds in (0, fiftieth, 65):  # the journal keeps these models
        model, measured = seedbus.replay(tmp_path / "run", rounds), results.metrics.iloc[rounds]
        assert model.problem.evaluate(model.point, "test") == {name: measured[name] for name in ("loss", "gap")}
    assert not np.array_equal(model.point, model.replica.x)
    assert model.digest == results.digest
    model.save(tmp_path / "model.safetensors")
    from safetensors.numpy import load_file

    saved = load_file(tmp_path / "model.safetensors")
    assert set(saved) == {"x"} and np.array_equal(saved["x"], model.point)


@pytest.mark.parametrize(("method", "count"), [("fedavg", 1), ("decomfl", 52)])
def test_of_a_dense_run_the_commit_that_holds_the_model_is_unpacked_alone(
    method: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that the journal keeps, which may be of gigabytes."""
    few: dict[str, Any] = {"task": {"name": "quadratic", "dimension": 30}, "stop": {"rounds": 52}}
    results, taken = go(tmp_path / "run", scenario(algorithm={"name": method}, **few)), list[StoredRound]()

    def unpack(algorithm: Any, stored: StoredRound, path: Path) -> list[Any]:
        taken.append(stored)
        return unpacked(algorithm, stored, path)

    monkeypatch.setattr("seedbus.scenarios.running.replay.unpacked", unpack)
    assert seedbus.replay(tmp_path / "run").digest == results.digest and len(taken) == count


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
