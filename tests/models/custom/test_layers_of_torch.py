"""Every layer of torch that has parameters trains, with the bits that the module itself would compute."""

from __future__ import annotations

from inspect import getsource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_networks import LAYERS, STATISTICS, Case, Judge, task
from task_contract import bind, keep_contract
from torch import nn
from torch.nn.functional import cross_entropy
from worlds import scenario

from seedbus.models import DataError
from seedbus.scenarios.running.run import run

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

every_layer = pytest.mark.parametrize("case", LAYERS.values(), ids=list(LAYERS))

CONTAINERS = {
    "Container",
    "Module",
    "RNNBase",
    "RNNCellBase",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
}


def test_there_is_a_case_for_every_layer_of_torch_that_has_parameters() -> None:
    layers = {name: kind for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    makes = {
        name
        for name, kind in layers.items()
        if any("Parameter(" in getsource(each) for each in kind.__mro__ if each not in (nn.Module, object))
        and not name.startswith("Lazy")
    }
    assert {"Linear", "GRU", "PReLU"} < makes - CONTAINERS <= {*LAYERS, *STATISTICS}


@every_layer
def test_it_keeps_the_contract_of_a_task(case: Case) -> None:
    keep_contract(task(case))


@every_layer
def test_it_starts_as_it_was_built_and_computes_what_the_module_computes(case: Case) -> None:
    problem = bind(task(case))
    objective = problem.objective(2, 3)
    x = problem.x0()
    objective.point[:] = x
    module = problem.flat.module
    inputs, targets = objective.batch(0)
    with torch.no_grad():
        assert objective.loss(0) == float(cross_entropy(problem.forward(inputs), targets))
    gradient = objective.gradient(0).copy()
    assert np.isfinite(gradient).all() and gradient.any()
    own = problem.state_dict(gradient)
    fresh = Judge(case.layer()).eval()
    fresh.load_state_dict({name: tensor.clone() for name, tensor in module.state_dict().items()})
    loss = cross_entropy(fresh(*inputs) if isinstance(inputs, list) else fresh(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in fresh.named_parameters():
        if name in own and parameter.grad is not None:
            np.testing.assert_allclose(own[name], parameter.grad, rtol=1e-4, atol=1e-6)


@every_layer
def test_a_loss_taken_layer_by_layer_has_the_same_bits(case: Case) -> None:
    problem = bind(task(case))
    objective = problem.objective(0, 0)
    x = problem.x0() + np.float32(0.01)
    by_layer = objective.loss_at(0, lambda span, out: np.copyto(out, x[span]))
    objective.point[:] = x
    assert by_layer == objective.loss(0)


@every_layer
def test_a_layer_has_derivatives_along_directions_or_is_refused_by_name(case: Case) -> None:
    """That they are right is a promise of every task."""
    problem = bind(task(case))
    without = {"EmbeddingBag": "_embedding_bag", "weight norm": "_weight_norm_interface"}
    name = next(name for name, each in LAYERS.items() if each is case)
    if name not in without:
        problem.check_slopes()
        return
    expected = f"estimator: found forward-mode, and .*with {without[name]} that.*; expected forward, central or proj"
    with pytest.raises(DataError, match=expected):
        problem.check_slopes()


ALGORITHMS: dict[str, dict[str, Any]] = {
    "forward": {"name": "decomfl", "learning_rate": 0.01},
    "central, light": {"name": "hiso", "estimator": "central", "revert": "light", "learning_rate": 0.001},
    "projection": {"name": "decomfl", "estimator": "projection", "learning_rate": 0.01},
    "forward-mode": {"name": "decomfl", "estimator": "forward-mode", "learning_rate": 0.01},
    "gradients": {"name": "scaffold", "learning_rate": 0.1},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=list(ALGORITHMS))
@pytest.mark.parametrize("name", ["GRU", "Transformer", "bare parameters", "Embedding", "constants"])
def test_it_trains_with_every_way_of_estimating_a_gradient(name: str, algorithm: Any, tmp_path: Path) -> None:
    what = scenario(task={"name": "digits"}, algorithm=algorithm, stop={"rounds": 3}, verify=True)
    summary = run(what, tmp_path / "run", task=task(LAYERS[name])).summary
    assert summary["version"] == 3 and summary["refusals"] == {} and np.isfinite(summary["metrics"]["loss"])


@pytest.mark.parametrize(("name", "shape"), STATISTICS.items())
def test_running_statistics_are_refused_or_frozen_as_loaded(name: str, shape: Any) -> None:
    def layer() -> nn.Module:
        norm: Any = getattr(nn, name)(4)
        norm.running_mean += 3.0
        return norm  # type: ignore[no-any-return]

    case = Case(layer, (shape,))
    expected = (
        "found .*running statistics in layer: state outside x .*; expected GroupNorm or LayerNorm.*batch_norm: frozen"
    )
    with pytest.raises(DataError, match=expected):
        bind(task(case))
    problem = bind(task(case, batch_norm="frozen"))
    problem.objective(0, 0).gradient(0)
    assert problem.dimension == 8 + 6 and (problem.flat.module.layer.running_mean == 3).all()
    assert task(case, batch_norm="frozen").caveats() == task(case).caveats() == []
    (sentence,) = task(Case(lambda: getattr(nn, name)(4), (shape,)), batch_norm="frozen").caveats()
    assert sentence.startswith("task.batch_norm is frozen, and the statistics of layer are those of a new layer")


def test_what_a_loss_depends_on_beside_x_is_part_of_the_identity() -> None:
    case = LAYERS["constants"]

    def other(change: Any) -> Any:
        def build() -> nn.Module:
            module = Judge(case.layer())
            change(module.layer)
            return module

        return bind(task(case, network=build))

    def masked(layer: Any) -> None:
        layer.mask[1] = 0.5

    def counted(layer: Any) -> None:
        layer.count += 1

    def grown(layer: Any) -> None:
        layer.body.bias.data += 1

    plain = bind(task(case))
    assert plain.identity() == other(lambda layer: None).identity() == bind(task(case)).identity()
    changed = [other(change) for change in (masked, counted, grown)]
    assert all((each.x0() == plain.x0()).all() for each in changed)
    assert len({plain.identity(), *(each.identity() for each in changed)}) == 4
    assert plain.dimension == 20 + 6, "the frozen layer and the buffers are no coordinates"
