"""A network of the user's own on data that the tool reads: `task.model` names a function in the place of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import SMALLER
from task_contract import KINDS, bind, keep_contract, losses, skip_without_packages
from torch import nn
from worlds import scenario

import seedbus
from seedbus.discovery import PLUGINS
from seedbus.models import DataError
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.table import Table
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

SMALL = SMALLER | {"mnist": {"model": "softmax"}, "fashion-mnist": {"model": "softmax"}}
PEOPLE: dict[str, Any] = {**SMALLER["table"], "target": "height", "features": ["age"]}
NETWORKS = Path(__file__).resolve().parents[2] / "support" / "plugins" / "networks.py"
OWN_NETWORKS = {
    name for name, kind in KINDS.items() if issubclass(kind, ClassifierSettings) and "model" in kind.model_fields
}

pytestmark = pytest.mark.usefixtures("small_sets", "no_plugins")


def ours(name: str) -> Any:
    skip_without_packages(name)
    return KINDS[name](**SMALL.get(name, {}))


def with_own(task: Any, network: Any) -> Any:
    return type(task)(**task.model_dump(exclude_unset=True, exclude={"hidden"}) | {"model": network})


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10))


def test_every_task_with_networks_of_ours_takes_one_of_the_users() -> None:
    assert set(KINDS) - OWN_NETWORKS == {
        *(
            "blackbox-attack",
            "hugging-face",
            "language-model",
            "moments",
            "null",
            "quadratic",
            "sentence-encoder",
            "torch",
        )
    }


@pytest.mark.parametrize("name", sorted(OWN_NETWORKS))
def test_a_users_copy_of_our_network_has_its_losses_gradients_and_metrics(name: str) -> None:
    task = ours(name)
    own = bind(with_own(task, task.network))
    known = bind(task)
    x = known.x0()
    assert own.task.dimension == own.dimension == known.dimension and own.task.declared_dimension is None
    assert losses(own, x, 2, 1, [0, 1]) == losses(known, x, 2, 1, [0, 1])
    assert own.evaluate(x, "test") == known.evaluate(x, "test")
    gradients = []
    for problem in (own, known):
        objective = problem.objective(1, 3)
        objective.point[:] = x
        gradients.append(objective.gradient(0).tobytes())
    assert gradients[0] == gradients[1]
    assert own.state_dict(x).keys() == known.state_dict(x).keys()


def test_a_task_with_a_network_of_the_users_keeps_the_contract() -> None:
    keep_contract(Digits(model=small))


def test_a_number_is_learnt_by_a_network_with_one_output() -> None:
    task = Table(**{name: value for name, value in PEOPLE.items() if name != "hidden"}, model=lambda: nn.Linear(1, 1))
    assert bind(task).evaluate(bind(task).x0(), "test").keys() == {"loss", "mae"}
    with pytest.raises(DataError, match=r"outputs are float32\[\d+, 2\] for inputs .*; expected float32\[\d+, 1\]"):
        bind(with_own(task, lambda: nn.Linear(1, 2)))


def test_outputs_in_a_mapping_and_sparse_buffers_are_told_as_such() -> None:
    class Mapping(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> Any:
            return {"logits": super().forward(inputs.flatten(1))}

    with pytest.raises(DataError, match=r"whose outputs are a dict of float32\[32, 10\] for inputs .*; expected"):
        bind(Digits(model=lambda: Mapping(64, 10)))
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    module.register_buffer("graph", torch.eye(3).to_sparse())
    with pytest.raises(DataError, match=r"with graph, which is sparse; expected dense tensors"):
        bind(Digits(model=module))


def test_the_weights_are_those_that_the_function_gave_and_frozen_ones_are_proven() -> None:
    first = nn.Linear(64, 4)
    module = nn.Sequential(nn.Flatten(), first.requires_grad_(False), nn.Tanh(), nn.Linear(4, 10))
    problem = bind(Digits(model=module))
    trained = [p.detach().numpy().ravel() for p in module.parameters() if p.requires_grad]
    assert np.array_equal(problem.x0(), np.concatenate(trained)) and problem.dimension == 4 * 10 + 10
    with torch.no_grad():
        first.bias.add_(1)
    assert bind(Digits(model=module)).identity() != problem.identity() != b""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["decomfl", "fedavg"])
@pytest.mark.usefixtures("warm_workers")
def test_a_named_network_and_metric_are_the_same_in_one_process_and_in_several(algorithm: str, tmp_path: Path) -> None:
    load_plugin(NETWORKS)
    world = scenario(
        task={"name": "digits", "model": "networks:build", "metrics": {"top2": "networks:top2"}},
        algorithm={"name": algorithm, "learning_rate": 0.01},
        participation={"clients": 4, "cohort": 2},
        evaluation={"every": 3},
        stop={"rounds": 3},
        verify=True,
    )
    alone = run(world, tmp_path / "alone")
    assert alone.summary["dimension"] == 64 * 6 + 6 + 12 + 60 + 10 and alone.summary["refusals"] == {}
    shared = run(world, tmp_path / "shared", placement=Placement("tcp", workers=2))
    assert shared.summary["digest"] == alone.summary["digest"] == seedbus.replay(tmp_path / "alone").digest
    assert shared.metrics[["loss", "top2"]].equals(alone.metrics[["loss", "top2"]]) and len(alone.metrics) > 1


def test_a_function_in_python_is_named_or_refused_where_only_its_process_has_it() -> None:
    load_plugin(NETWORKS)
    build = PLUGINS["networks"].functions["build"]
    fields = {"algorithm": "decomfl", "participation": {"clients": 2, "cohort": 2}, "stop": {"rounds": 1}}
    named = seedbus.load(fields | {"task": {"name": "digits", "model": build}})
    assert named.resolved()["task"]["model"] == "networks:build"
    with pytest.raises(ScenarioError, match=r"test_own_network:small, which only this process has; give FILE:small, w"):
        seedbus.load(fields | {"task": {"name": "digits", "model": small}})
    with pytest.raises(DataError, match=r"task.model: found test_own_network:small, which only this process has"):
        Digits(model=small).check_elsewhere()


class Noisy(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.flatten(1)) + torch.rand(1)


MISTAKES = [
    ("networks:nine", r"whose outputs are float32\[32, 9\] for inputs float32\[32, 1, 8, 8\]; expected "),
    ("networks:normed", r"networks:normed with running statistics in 1: .*; expected GroupNorm or .* task: torch"),
    (lambda: nn.Linear(7, 10), r"a forward pass that fails on inputs float32\[32, 1, 8, 8\] \(RuntimeError: .*\); exp"),
    (lambda: Noisy(64, 10), r"other outputs for the same inputs at a second call"),
    ("nowhere:build", r"found 'nowhere:build'; expected plugin:function of a plug-in .* load_plugin in Python\)$"),
    ("networks:huge", r"found 'networks:huge'; expected a public function that the plug-in networks defines"),
]


@pytest.mark.parametrize(("network", "message"), MISTAKES, ids=[message[:30] for _, message in MISTAKES])
def test_a_network_that_cannot_be_trained_is_one_sentence(network: Any, message: str) -> None:
    load_plugin(NETWORKS)
    with pytest.raises(DataError, match=f"task.model: .*{message}"):
        bind(Digits(model=network))
