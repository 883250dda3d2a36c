"""Derivatives along directions: those of backpropagation and of a float64 loss, for masks and parts of batches too."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import make
from devices import DEVICE
from own_networks import LAYERS, Case, task
from task_contract import bind
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from worlds import outcome, scenario

from seedbus.algorithms.directions import reference
from seedbus.models import DataError, Iid
from seedbus.models.device import on_device
from seedbus.models.images.problem import ImageProblem
from seedbus.models.mask import Mask
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.tasks.digits import Digits
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.check.runs import TWO_WORKERS

pytestmark = pytest.mark.usefixtures("one_thread")

CNN: dict[str, Any] = {"name": "digits", "model": "cnn", "batch_size": 8}


def digits(**fields: Any) -> Any:
    return Digits(**CNN | fields).bind(seed=1, clients=3, partition=Iid())


def drawn(size: int) -> Any:
    z = np.empty(size, np.float32)
    reference("gaussian").fill(z, seed=3, step=0, perturbation=0)
    return z


def slope(problem: Any, client: int = 0, step: int = 0, scale: float = 1.0) -> float:
    objective = problem.objective(client, 1)
    objective.point[:] = problem.x0()
    objective.tangent[:] = drawn(problem.dimension) * np.float32(scale)
    (found,) = objective.read([objective.slope(step)])
    return float(found)


def projection(problem: Any) -> float:
    objective = problem.objective(0, 1)
    objective.point[:] = problem.x0()
    gradient = np.array(objective.gradient(0), np.float64)
    return float(gradient @ drawn(problem.dimension))


def test_a_slope_is_that_of_a_loss_in_float64() -> None:
    """Central differences of the same network in float64, in which halving the step quarters their error."""
    problem = digits()
    inputs, labels = problem.objective(0, 1).batch(0)
    module, z = copy.deepcopy(problem.flat.module).double(), torch.from_numpy(drawn(problem.dimension)).double()
    x = torch.from_numpy(problem.x0()).double()

    def loss(at: Tensor) -> float:
        named = dict(zip(problem.flat.names, problem.flat.views(at), strict=True))
        return float(cross_entropy(functional_call(module, named, (inputs.double(),)), labels))

    far, near = ((loss(x + h * z) - loss(x - h * z)) / (2 * h) for h in (1e-6, 5e-7))
    assert near == pytest.approx(far, rel=1e-6)
    assert slope(problem) == pytest.approx(near, rel=1e-5)


@pytest.mark.parametrize("fields", [{"micro_batch": 3}, {"forward": "stacked"}, {"model": "softmax"}], ids=str)
def test_a_slope_is_the_gradient_along_the_direction(fields: dict[str, Any]) -> None:
    problem = digits(**fields)
    assert slope(problem) == pytest.approx(projection(problem), rel=1e-5)


def test_it_is_linear_in_the_direction_and_of_each_client_and_step() -> None:
    problem = digits()
    once, twice = slope(problem), slope(problem, scale=2)
    assert twice == 2 * once
    assert len({once, slope(problem, client=1), slope(problem, step=1)}) == 3
    assert slope(problem) == once


def test_no_activation_is_kept() -> None:
    """Of a gradient torch keeps what each layer has computed, until all are done."""
    problem = digits()
    objective = problem.objective(0, 1)
    kept: list[Tensor] = []

    def keep(each: Tensor) -> Tensor:
        kept.append(each)
        return each

    def count(work: Any) -> int:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
            work(0)
        return len(kept)

    assert count(objective.gradient) > 6 and count(objective.slope) == 0


def test_a_masks_slope_is_along_its_coordinates_alone() -> None:
    problem = digits()
    masked = MaskedProblem(problem, Mask(rule="largest", density=0.1), 1)
    masked.check_slopes()
    z = np.zeros(problem.dimension, np.float32)
    z[masked._places] = drawn(masked.dimension)
    objective = problem.objective(0, 1)
    objective.point[:] = problem.x0()
    expected = float(np.array(objective.gradient(0), np.float64) @ z)
    assert slope(masked) == pytest.approx(expected, rel=1e-5)


def test_clients_of_one_call_have_the_bits_that_each_has_alone() -> None:
    problem, algorithm = digits(), make("decomfl", estimator="forward-mode", perturbations=3, local_steps=2)
    algorithm = algorithm.sized(problem.dimension)
    replica, plan = algorithm.replica(problem.x0()), algorithm.plan(0, 0, 7)
    together = algorithm.local_together(replica, [None] * 3, plan, [problem.objective(each, 0) for each in range(3)])
    for client, (report, _) in enumerate(together):
        alone, _ = algorithm.local(replica, None, plan, problem.objective(client, 0))
        assert alone.tobytes() == report.tobytes()
    exact = make("decomfl", estimator="projection", perturbations=3, local_steps=2).sized(problem.dimension)
    near, _ = exact.local(replica, None, plan, problem.objective(0, 0))
    np.testing.assert_allclose(together[0][0], near, rtol=1e-4, atol=1e-6)


def test_an_lstm_and_tensors_of_a_device_have_slopes() -> None:
    lstm = bind(task(LAYERS["LSTM"]))
    assert slope(lstm) == pytest.approx(projection(lstm), rel=1e-4)
    assert torch.backends.mkldnn.enabled  # again
    with on_device(DEVICE):
        there = digits()
    assert slope(there) == pytest.approx(slope(digits()), rel=1e-5)


# whole runs

FORWARD = {"name": "hiso", "estimator": "forward-mode", "perturbations": 4, "local_steps": 2, "learning_rate": 0.01}


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_run_has_the_same_bits_over_tcp_and_in_workers(tmp_path: Path) -> None:
    what = scenario(task=CNN | {"micro_batch": 5}, algorithm=FORWARD, stop={"rounds": 6})
    places = [Placement(), Placement(transport="tcp"), TWO_WORKERS]
    ends = [run(what, tmp_path / str(number), placement=place) for number, place in enumerate(places)]
    assert outcome(ends[0]) == outcome(ends[1]) == outcome(ends[2])
    assert ends[0].digest == ends[1].digest == ends[2].digest and ends[0].summary["refusals"] == {}
    exact = run(scenario(task=CNN, algorithm=FORWARD | {"estimator": "projection"}, stop={"rounds": 6}), tmp_path / "p")
    assert ends[0].summary["metrics"]["loss"] == pytest.approx(exact.summary["metrics"]["loss"], rel=1e-3)


# what is refused


def test_a_task_without_a_network_is_refused_before_anything_is_loaded() -> None:
    expected = (
        "algorithm.estimator: forward-mode takes forward derivatives of a network, and task: quadratic has none; "
        "expected task: .*, or leave algorithm.estimator out"
    )
    with pytest.raises(ScenarioError, match=expected):
        scenario(algorithm={"name": "decomfl", "estimator": "forward-mode"})
    with pytest.raises(ScenarioError, match=r"algorithm\.estimator takes forward derivatives of a network, and task"):
        scenario(algorithm={"name": "decomfl", "estimator": {0: "central", 4: "forward-mode"}})


@pytest.mark.parametrize("revert", ["light", "compensate"])
def test_it_needs_a_copy_of_the_model(revert: str) -> None:
    with pytest.raises(ValueError, match=r"estimator: forward-mode (needs revert: copy|perturbs nothing)"):
        make("decomfl", estimator="forward-mode", revert=revert)


class Own(torch.autograd.Function):
    """A function with a gradient and no forward derivative."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


class Doubling(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        doubled: Tensor = Own.apply(super().forward(inputs))  # type: ignore[no-untyped-call]
        return doubled


class Keeping(nn.Module):
    """Uses a weight that it keeps where torch does not look for parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.kept = [self.layer.weight]

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.kept[0].T + self.layer.bias


@pytest.mark.parametrize(
    ("layer", "reason"),
    [(lambda: Doubling(4, 4), "Own|jvp|forward"), (Keeping, "uses parameters where torch does not tell of it")],
    ids=["function", "kept weight"],
)
def test_a_network_that_torch_cannot_differentiate_so_is_refused_before_the_run(
    layer: Any, reason: str, tmp_path: Path
) -> None:
    what = scenario(task=CNN, algorithm=FORWARD, stop={"rounds": 1})
    with pytest.raises(DataError, match=rf"estimator: found forward-mode, and .*({reason}).*; expected forward, centr"):
        run(what, tmp_path / "run", task=task(Case(layer, ((4,),))))
    assert not (tmp_path / "run").exists()


def test_a_loss_whose_derivative_an_operation_drops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, plain = digits(), ImageProblem.mean_loss

    def dropping(self: Any, *batch: Any) -> Any:
        return forward_ad.unpack_dual(plain(self, *batch)).primal  # type: ignore[no-untyped-call]

    monkeypatch.setattr(ImageProblem, "mean_loss", dropping)
    with pytest.raises(DataError, match="forward-mode, and a loss that no derivative by the trained weights reach"):
        problem.check_slopes()
