"""The library's scenarios: each loads, and the quickstart's totals are unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import seedbus
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.dense.methods.method import Method
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.loading import library, load

PAPER = {  # arXiv:2405.15861 §5, arXiv:2506.02370 §5, arXiv:2201.09531 §V-B and arXiv:2201.03172 §4
    "decomfl-mnist": (100, 10, 28_938),
    "decomfl-mnist-authors": (100, 10, 28_938),
    "hiso-mnist": (64, 8, 28_938),
    "decomfl-fashion": (100, 10, 1_206_590),
    "hiso-fashion": (100, 10, 1_206_590),
    "fashion-softmax": (50, 20, 7_850),
    "decomfl-cifar10": (100, 5, 11_173_962),
    "lm/opt-125m-sst2-decomfl": (8, 2, 125_239_296),
    "lm/opt-125m-rte-decomfl-lora": (8, 2, 294_912),
    "lm/opt-1.3b-boolq-decomfl": (8, 2, 1_315_758_080),
    "lm/opt-2.7b-sst2-decomfl": (8, 2, 2_651_596_800),
    "lm/opt-350m-squad-hiso": (6, 2, 331_196_416),
}


@pytest.mark.parametrize("name", PAPER)
def test_a_papers_setting_has_the_papers_numbers(name: str) -> None:
    scenario = load(name)
    participation = scenario.participation
    assert (participation.clients, participation.size, scenario.task.dimension) == PAPER[name]


def sooner(names: Iterable[str], *own: str) -> list[Any]:
    """Return names as parameters, of which those that end with `own` are run by continuous integration, not in soak."""
    return [pytest.param(name, marks=() if name.rpartition("/")[2] in own else pytest.mark.soak) for name in names]


def test_the_quickstart_sends_exactly_what_it_sent_in_earlier_versions(tmp_path: Path) -> None:
    """Golden totals: any change of envelope, draws, cohorts or catch-up shows here. Metrics may differ by machine."""
    results = run(load("quickstart", ["stop.rounds=60"]), tmp_path / "run")
    traffic = results.summary["traffic"]
    actual = {name: (kind["messages"], kind["bytes"]) for name, kind in traffic["by_kind"].items()}
    assert actual == GOLDEN
    assert results.summary["metrics"]["accuracy"] > 0.6


GOLDEN: dict[str, tuple[int, int]] = {
    "commit": (59, 6968),
    "evaluation": (59, 2747),
    "plan": (300, 277158),
    "report": (270, 28620),
}


FEW_EVALUATED = ["evaluation={every: 2, split: validation}", "task.validation=0.01"]
"""Settings of a run whose metrics no test looks at: they are of a few samples."""


@pytest.mark.slow
def test_decomfl_and_hiso_learn_the_digits(tmp_path: Path) -> None:
    for name in ("decomfl-digits", "hiso-digits"):
        results = seedbus.run(load(name, ["stop.rounds=150"]), tmp_path / name)
        accuracy = results.metrics["accuracy"]
        assert accuracy.iloc[-1] > accuracy.iloc[0] + 0.25


@pytest.mark.slow
@pytest.mark.skipif("SEEDBUS_DATA" not in os.environ, reason="SEEDBUS_DATA does not say where Fashion-MNIST is")
def test_the_papers_settings_run_on_the_real_images(tmp_path: Path) -> None:
    settings = ["stop.rounds=2", "algorithm.perturbations=2", "verify=true", *FEW_EVALUATED]
    for name in ("decomfl-fashion", "hiso-fashion"):
        summary = run(load(name, settings), tmp_path / name).summary
        assert summary["version"] == 2
        assert summary["refusals"] == {}
        assert summary["dimension"] == 1_206_590


@pytest.mark.slow
@pytest.mark.skipif("SEEDBUS_DATA" not in os.environ, reason="SEEDBUS_DATA does not say where the data sets are")
@pytest.mark.parametrize(
    ("name", "rounds", "more"),
    [
        ("femnist", 20, []),
        ("shakespeare", 2, []),
        ("fashion-softmax", 10, []),
        ("blackbox-attack", 2, ["task.classifier_steps=100"]),
    ],
)
def test_scenarios_of_natural_divisions_shards_and_the_attack_run_on_real_data(
    tmp_path: Path, name: str, rounds: int, more: list[str]
) -> None:
    settings = [f"stop.rounds={rounds}", f"evaluation.every={rounds}", "verify=true", *more]
    results = run(load(name, settings), tmp_path / name)
    assert results.summary["version"] == rounds and results.summary["refusals"] == {}
    assert results.summary["metrics"]["loss"] < results.metrics["loss"].iloc[0]


FASHION = sorted(name for name in library() if name.startswith("fashion/"))
COMBINED = {f"fashion/fedacg-{other}": ["fedacg", other] for other in ("fedmlb", "fedlc", "feddecorr")}


def _learns(algorithm: type[FedAvg]) -> bool:
    """Return whether the algorithm uses backpropagation; other gradient estimates have settings of their own."""
    return algorithm.method is None or algorithm.method.estimate is Method.estimate


def test_every_dense_algorithm_that_backpropagates_has_a_scenario_and_all_have_one_setting() -> None:
    """With equal settings, `seedbus compare` shows the effect of the method alone."""
    kinds = {name: kind for name, kind in ALGORITHMS.all().items() if issubclass(kind, FedAvg) and _learns(kind)}
    alike = {f"fashion/{name}": [name] for name in kinds} | COMBINED
    assert alike.keys() <= set(FASHION)
    setting, own = load("fashion/fedavg").resolved(), FedAvg.model_fields.keys() - {"name", "also"}
    own -= {name for kind in kinds.values() if kind.method is not None for name in kind.method.defaults}
    for name, methods in alike.items():
        actual = load(name).resolved()
        assert [actual["algorithm"]["name"], *(each["name"] for each in actual["algorithm"]["also"])] == methods
        assert {field: actual["algorithm"][field] for field in own} == {
            field: setting["algorithm"][field] for field in own
        }
        for field in setting.keys() - {"name", "description", "algorithm"}:
            assert actual[field] == setting[field], f"{name}: {field}"
        assert actual["algorithm"]["weighting"] == "uniform"


def test_rows_without_gradients_cost_as_many_forward_passes_as_those_with_them() -> None:
    rows = ("fedavg", "fedzo", "decomfl", "hiso")
    passes = {name: load(f"fashion/{name}").algorithm.work(0).evaluations for name in rows}
    assert passes == dict.fromkeys(rows, 150)


@pytest.mark.slow
@pytest.mark.skipif("SEEDBUS_DATA" not in os.environ, reason="SEEDBUS_DATA does not say where Fashion-MNIST is")
@pytest.mark.parametrize("name", sooner(FASHION, "decomfl", "hiso", "fedzo", "fedacg-fedmlb", "moon", "scaffold"))
def test_a_scenario_of_fashion_keeps_its_replicas_equal(tmp_path: Path, name: str) -> None:
    less = "algorithm.perturbations=5" if name in ("fashion/decomfl", "fashion/hiso") else "algorithm.local_steps=4"
    settings = ["stop.rounds=2", "verify=true", less, *FEW_EVALUATED]
    summary = run(load(name, settings), tmp_path / "run").summary
    assert (summary["version"], summary["dimension"], summary["refusals"]) == (2, 28_938, {})


STRESS = sorted(name for name in library() if name.startswith("stress/"))


# docs/faults.md runs stress/everything, which has all of their faults but the diurnal one, to its end, and
# tests/runs/test_hiso_churn.py runs stress/hiso-churn
AT_LENGTH = {"dropout-30", "diurnal", "flaky-network", "partition-heals", "late-joiners", "stragglers", "everything"}
AT_LENGTH |= {"hiso-churn"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sooner(STRESS, *{name.removeprefix("stress/") for name in STRESS} - AT_LENGTH))
def test_a_scenario_of_stress_reaches_what_it_says(tmp_path: Path, name: str) -> None:
    scenario = load(name)
    assert scenario.expect and scenario.verify
    results = run(scenario, tmp_path / "run")
    assert results.missed == []
    assert all(set(fault) > {"fault"} for fault in results.summary["faults"]), "every fault struck"
