"""Runs of the task hugging-face: verified replicas, replay, the same bits in one process and in two workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import HISO, outcome

from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

pytestmark = pytest.mark.slow

DECOMFL = {"name": "decomfl", "perturbations": 2, "learning_rate": 0.01}
FEDAVG = {"name": "fedavg", "local_steps": 2, "learning_rate": 0.1}


@pytest.fixture
def fine_tuning(described: Any) -> Any:
    """A function that makes scenarios with 4 clients, 2 a round."""

    def make_scenario(name: str, algorithm: Any = DECOMFL, rounds: int = 3, **task: Any) -> Any:
        document = {
            "name": "tiny",
            "task": described(name, **task),
            "partition": {"kind": "iid"},
            "algorithm": algorithm,
            "participation": {"clients": 4, "cohort": 2},
            "evaluation": {"every": 1},
            "stop": {"rounds": rounds},
            "verify": True,
        }
        return validate(document, "a test")

    return make_scenario


@pytest.mark.parametrize(
    ("name", "algorithm", "train"),
    [
        ("vit", FEDAVG, {"kind": "head"}),
        ("resnet", DECOMFL, {"kind": "full"}),
        ("distilbert", HISO, {"kind": "last-blocks"}),
        ("llama", DECOMFL | {"revert": "light"}, {"kind": "lora"}),
    ],
)
def test_a_run_is_verified_and_rebuilt_from_its_journal(
    tmp_path: Path, fine_tuning: Any, name: str, algorithm: Any, train: Any
) -> None:
    results = run(fine_tuning(name, algorithm, train=train), tmp_path / "run")
    assert results.summary["version"] == 3 and results.summary["refusals"] == {}
    assert results.metrics["loss"].nunique() == len(results.metrics)
    assert ("perplexity" in results.metrics) == (name == "llama")
    again = replay(tmp_path / "run")
    assert again.digest == results.digest
    again.save(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["bert", *(pytest.param(name, marks=pytest.mark.soak) for name in ("resnet", "gpt2"))])
@pytest.mark.usefixtures("warm_workers")
def test_two_worker_processes_compute_the_same_bits(tmp_path: Path, fine_tuning: Any, name: str) -> None:
    what = fine_tuning(name)
    single = run(what, tmp_path / "memory")
    distributed = run(what, tmp_path / "tcp", placement=Placement("tcp", 2))
    assert outcome(single) == outcome(distributed)


def test_a_head_learns_the_brightness_of_images(tmp_path: Path, fine_tuning: Any) -> None:
    results = run(fine_tuning("vit", FEDAVG, rounds=30, validation=0, train={"kind": "head"}), tmp_path / "run")
    assert results.metrics["accuracy"].iloc[0] < 0.5 and results.metrics["accuracy"].iloc[-1] > 0.9


def test_model_and_data_set_may_lie_beside_the_scenarios_file(tmp_path: Path, fine_tuning: Any) -> None:
    document = fine_tuning("bert").resolved()
    for field in ("model", "dataset"):
        (tmp_path / field).symlink_to(document["task"][field])
        document["task"][field] = field
    (tmp_path / "tiny.yaml").write_text(dump(document), encoding="utf-8")
    loaded = load(tmp_path / "tiny.yaml")
    assert loaded.task.dimension == fine_tuning("bert").task.dimension
    assert loaded.resolved()["task"]["dataset"] == str(tmp_path / "dataset")
