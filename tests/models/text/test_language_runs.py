"""Federated fine-tuning of a tiny language model: all processes compute equal bits; other weights are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import ClientsThread, ServerThread
from small_language import bind as bind_task
from small_language import write_model
from worlds import HISO

from seedbus.agents.errors import JoinRefused, RunFolderError
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest
from seedbus.bus.zeromq import Joining, follow
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump

DECOMFL = {"name": "decomfl", "perturbations": 2, "learning_rate": 0.01}


@pytest.fixture
def fine_tuning(opt: Path, texts: Path) -> Any:
    """A function that makes scenarios that fine-tune the tiny model with 4 clients, 2 per round."""

    def make_scenario(rounds: int = 4, algorithm: Any = DECOMFL, **task: Any) -> Scenario:
        document = {
            "name": "tiny",
            "task": {"name": "language-model", "model": str(opt), "data": str(texts / "sst2"), "validation": 0} | task,
            "partition": {"kind": "dirichlet", "alpha": 1.0},
            "algorithm": algorithm,
            "participation": {"clients": 4, "cohort": 2},
            "evaluation": {"every": 2},
            "stop": {"rounds": rounds},
            "verify": True,
        }
        return validate(document, "a test")

    return make_scenario


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
def test_a_run_is_verified_and_rebuilt_from_its_journal(tmp_path: Path, fine_tuning: Any, algorithm: Any) -> None:
    results = run(fine_tuning(algorithm=algorithm), tmp_path / "run")
    assert results.summary["version"] == 4 and results.summary["refusals"] == {}
    assert {"loss", "accuracy"} <= set(results.metrics)
    again = replay(tmp_path / "run")
    assert again.digest == results.digest
    first = replay(tmp_path / "run", 0)
    assert not np.array_equal(first.replica.x, again.replica.x)
    again.save(tmp_path / "model.safetensors")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg", "local_steps": 2},
        {"name": "fedadam", "epochs": 1},
        {"name": "fedzo", "local_steps": 1, "perturbations": 2, "sphere": "sqrt-d"},
    ],
    ids=lambda algorithm: str(algorithm["name"]),
)
def test_methods_that_send_models_fine_tune_too(tmp_path: Path, fine_tuning: Any, algorithm: Any) -> None:
    results = run(fine_tuning(rounds=2, algorithm=algorithm, train={"kind": "lora"}), tmp_path / "run")
    assert results.summary["version"] == 2 and results.summary["refusals"] == {}
    assert results.metrics["loss"].nunique() == len(results.metrics)


def test_a_client_draws_directions_of_its_own_in_every_round(make: Any) -> None:
    problem = bind_task(make(batch_size=5, validation=0))
    keys = {(client, round): problem.objective(client, round).key for client in range(2) for round in range(3)}
    assert len(set(keys.values())) == len(keys)
    assert keys[1, 2] == problem.objective(1, 2).key
    mine = problem.objective(0, 0)
    assert mine.samples == 12 and mine.steps_an_epoch == 3  # 12 samples: two batches of 5 and one of 2


@pytest.mark.slow
@pytest.mark.parametrize("train", ["full", "lora"])
def test_a_process_with_other_weights_is_refused_by_name(tmp_path: Path, fine_tuning: Any, train: str) -> None:
    what = fine_tuning(rounds=3, train={"kind": train})
    other = fine_tuning(rounds=3, train={"kind": train}, model=str(write_model(tmp_path / "other", seed=5)))
    assert np.array_equal(bind(what).x0(), bind(other).x0()) == (train == "lora"), "x₀ alone may not tell them apart"
    with ServerThread(what, tmp_path / "run") as server:
        endpoint = server.watcher.endpoint
        first = ClientsThread(what, endpoint, HostRequest(((0, 1),)))
        while not server.watcher.joined:
            first.join(0.01)
        with pytest.raises(JoinRefused, match=r"\(x0\): .* other data, or another task, seed or set of weights"):
            follow(Joining(endpoint, HostRequest(((2, 3),))), recruit(other, bind(other), NullObserver()))
        ClientsThread(what, endpoint, HostRequest(((2, 3),)))
        results = server.results()
    assert list(results.summary["refusals"]["x0"].values()) == [1] and results.summary["rounds"] == 3


def test_a_run_is_not_resumed_with_other_weights(tmp_path: Path, fine_tuning: Any) -> None:
    folder = write_model(tmp_path / "model")
    what = fine_tuning(rounds=2, model=str(folder), train={"kind": "layernorm"})
    run(what, tmp_path / "run")
    os.unlink(tmp_path / "run" / "results.json")
    write_model(folder, seed=5)
    with pytest.raises(RunFolderError, match="x0"):
        run(what, tmp_path / "run", resume=True)


def test_a_model_may_lie_beside_the_scenarios_file(tmp_path: Path, opt: Path, fine_tuning: Any) -> None:
    (tmp_path / "weights").symlink_to(opt)
    document = fine_tuning().resolved()
    document["task"]["model"] = "weights"
    (tmp_path / "tiny.yaml").write_text(dump(document), encoding="utf-8")
    assert load(tmp_path / "tiny.yaml").task.dimension == fine_tuning().task.dimension
