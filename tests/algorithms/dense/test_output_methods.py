"""Methods that use a network's outputs, each against its paper's formula, evaluated sample by sample."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import make
from numpy.typing import NDArray
from torch import Tensor

from seedbus.algorithms.dense.methods.method import Local
from seedbus.algorithms.objective import Outputs
from seedbus.models import Dirichlet
from seedbus.models.errors import DataError
from seedbus.models.parameters.gradients import blocks
from seedbus.models.task import Problem
from seedbus.models.tasks.digits import Digits

METHODS = {
    "fedlc": {"margin": 0.6},
    "fedntd": {"distillation": 3.0, "temperature": 2.0},
    "feddecorr": {"decorrelation": 5.0},
    "moon": {"contrast": 3.0, "temperature": 0.7},
    "fedmlb": {"hybrid": 0.5, "likeness": 2.0},
}
STEP = 3


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Digits(batch_size=7).bind(seed=1, clients=20, partition=Dirichlet(alpha=0.1))


def away(problem: Problem, seed: int) -> NDArray[np.float32]:
    """Return a model far from x₀, [d]."""
    x0 = problem.x0()
    return (x0 + np.random.default_rng(seed).normal(0, 0.1, x0.size)).astype(np.float32)


def at_work(problem: Problem, name: str, **fields: Any) -> tuple[Any, Local]:
    """Return a method and a client's local state in the middle of a round."""
    algorithm = make(name, **fields)
    objective: Any = problem.objective(2, 5)
    x, start, previous = (away(problem, seed) for seed in range(3))
    memory = {"moon.previous": previous} if name == "moon" else {}
    plan = algorithm.plan(5, 0, 0)
    return algorithm.methods[0], Local({"x": start}, x, objective, plan, 10, memory, step=STEP)


def outputs(problem: Any, x: NDArray[np.float32], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the network's logits and features at the model x, [b, …]."""
    network, shapes = problem.task.network(), [p.shape for p in problem.flat.module.parameters()]
    own = problem.flat.views(torch.from_numpy(x.copy()))
    with torch.no_grad():
        for parameter, value, shape in zip(network.parameters(), own, shapes, strict=True):
            assert value.shape == shape
            parameter.copy_(value)
        features = network[:-1](inputs)
        return network[-1](features), features


def expected(problem: Any, method: Any, local: Local) -> float:
    """Return the loss of the batch in float64, computed sample by sample."""
    inputs, labels = local.objective.batch(STEP)  # type: ignore[attr-defined]
    logits, features = (part.double() for part in outputs(problem, local.x, inputs))
    received, taught = (part.double() for part in outputs(problem, local.start, inputs))
    total = 0.0
    for n, y in enumerate(labels.tolist()):
        q = logits[n].softmax(0)
        total -= float(q[y].log()) if method.name != "fedlc" else 0.0
        if method.name == "fedlc":
            counts = local.objective.counts()
            weights = [
                0.0 if not c else float(np.exp(float(f) - method.margin * c**-0.25))
                for f, c in zip(logits[n], counts, strict=True)
            ]
            total -= float(np.log(weights[y] / sum(weights)))
        if method.name == "fedntd":
            others = [c for c in range(10) if c != y]
            own, theirs = ((each[n][others] / method.temperature).softmax(0) for each in (logits, received))
            total += method.distillation * float((theirs * (theirs / own).log()).sum())
        if method.name == "moon":
            _, before = (part.double() for part in outputs(problem, local.memory["moon.previous"], inputs))
            near, far = (
                float(torch.exp(features[n] @ other[n] / features[n].norm() / other[n].norm() / method.temperature))
                for other in (taught, before)
            )
            total -= method.contrast * float(np.log(near / (near + far)))
    if method.name == "feddecorr":
        with np.errstate(invalid="ignore"):  # a feature may be constant over the batch
            correlation = np.corrcoef(features.numpy(), rowvar=False)
        d = features.shape[1]
        total += len(labels) * method.decorrelation / d**2 * float(np.nansum(correlation**2))
    if method.name == "fedmlb":
        paths = hybrid(problem, local, inputs)
        for logits_n in paths:
            for n, y in enumerate(labels.tolist()):
                q, other = logits[n].softmax(0), logits_n[n].double().softmax(0)
                divergence = (other * (other / q).log()).sum()
                total += float(-method.hybrid * other[y].log() + method.likeness * divergence) / len(paths)
    return total / len(labels)


def hybrid(problem: Any, local: Local, inputs: Tensor) -> list[Tensor]:
    """Return the logits of networks whose first blocks are the client's and whose later blocks are the server's."""
    logits, module = [], problem.task.network()
    own, servers = (problem.flat.views(torch.from_numpy(x.copy())) for x in (local.x, local.start))
    sizes = [len(list(block.parameters())) for block in blocks(module)]
    for level in range(1, len(sizes)):
        first = sum(sizes[:level])
        with torch.no_grad():
            for number, parameter in enumerate(module.parameters()):
                parameter.copy_(own[number] if number < first else servers[number])
            logits.append(module(inputs))
    return logits


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_follows_the_papers_formula(problem: Any, name: str) -> None:
    method, local = at_work(problem, name, **METHODS[name])
    losses: list[float] = []

    def judge(outputs: Outputs) -> Any:
        logits = method.logits(outputs.logits, local)
        loss = method.loss(torch.nn.functional.cross_entropy(logits, outputs.labels), outputs, local)
        losses.append(loss.item())
        return loss

    local.objective.point[:] = local.x
    gradient = local.objective.gradient(STEP, judge).copy()
    assert losses[0] == pytest.approx(expected(problem, method, local), rel=2e-4)
    assert np.abs(gradient).max() > 0


@pytest.mark.parametrize("name", ["feddecorr", "fedmlb", "moon"])
def test_a_network_without_features_to_change_is_refused_from_the_first_round_on(name: str) -> None:
    problem = Digits(batch_size=7, model="softmax").bind(seed=1, clients=20, partition=Dirichlet(alpha=0.1))
    algorithm, objective = make(name), problem.objective(2, 0)
    with pytest.raises(DataError, match=r"the task's network: found a single layer with parameters, .*; expected two"):
        algorithm.local(algorithm.replica(problem.x0()), None, algorithm.plan(0, 0, 0), objective)


@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_is_the_slope_of_the_loss(problem: Any, name: str) -> None:
    """The reference is a central difference along a direction that leaves frozen parameters unchanged."""
    method, local = at_work(problem, name, **METHODS[name])
    direction = away(problem, 7) - problem.x0()
    direction /= np.linalg.norm(direction)
    losses: list[float] = []

    def judge(outputs: Outputs) -> Any:
        logits = method.logits(outputs.logits, local)
        losses.append(loss := method.loss(torch.nn.functional.cross_entropy(logits, outputs.labels), outputs, local))
        return loss

    for shift in (0.0, 1e-2, -1e-2):
        local.objective.point[:] = local.x + np.float32(shift) * direction
        gradient = local.objective.gradient(STEP, judge)
        if not shift:
            slope = float(gradient @ direction)
    difference = (losses[1].item() - losses[2].item()) / 2e-2  # type: ignore[attr-defined]
    assert slope == pytest.approx(difference, rel=0.03, abs=0.02)


def test_feddecorr_of_the_authors_code_is_the_equations_times_about_the_batch_size(problem: Any) -> None:
    method, local = at_work(problem, "feddecorr", normalisation="code", decorrelation=1.0)
    inputs, _ = local.objective.batch(STEP)  # type: ignore[attr-defined]
    features = outputs(problem, local.x, inputs)[1]
    found = method.loss(0.0, SimpleNamespace(features=features), local)
    n, d = features.shape
    with np.errstate(invalid="ignore"):  # a feature may be constant over the batch
        correlation = np.nan_to_num(np.corrcoef(features.double().numpy(), rowvar=False))
    np.fill_diagonal(correlation, 0)
    expected = (n - 1) ** 2 / n * (correlation**2).sum() / (d * (d - 1))
    assert float(found) == pytest.approx(expected, rel=1e-3)
    for alone in (features[:1], features[:, :1]):
        assert method.loss(0.0, SimpleNamespace(features=alone), local) == 0.0, "without pairs nothing is correlated"


def test_a_class_without_samples_gets_no_gradient_from_fedlc(problem: Any) -> None:
    method, local = at_work(problem, "fedlc")
    absent = np.flatnonzero(local.objective.counts() == 0)
    assert absent.size
    logits = torch.zeros(2, 10, requires_grad=True)
    present = int(np.flatnonzero(local.objective.counts())[0])
    torch.nn.functional.cross_entropy(method.logits(logits, local), torch.tensor([present] * 2)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None and logits.grad[:, absent].abs().max() == 0


def test_moon_adds_no_loss_when_a_client_takes_part_for_the_first_time(problem: Any) -> None:
    method, local = at_work(problem, "moon")
    local.memory.clear()
    loss = torch.tensor(1.0)
    assert method.loss(loss, SimpleNamespace(features=None), local) is loss
    method.finish(local)
    assert local.memory["moon.previous"].tobytes() == local.x.tobytes()


@pytest.mark.parametrize(
    ("name", "off"), [("fedntd", "distillation"), ("feddecorr", "decorrelation"), ("moon", "contrast")]
)
def test_a_method_with_weight_zero_is_fedavg(problem: Any, name: str, off: str) -> None:
    reports = []
    for algorithm in (make("fedavg", local_steps=3), make(name, local_steps=3, **{off: 0.0})):
        replica = algorithm.replica(problem.x0())
        report, _ = algorithm.local(replica, None, algorithm.plan(0, 0, 0), problem.objective(1, 0))
        reports.append(report.vectors)
    np.testing.assert_allclose(reports[1], reports[0], atol=1e-6)


def test_passes_that_depend_on_the_network_are_not_counted() -> None:
    for method in (make("fedmlb", local_steps=2), make("fedacg", local_steps=2, also=[{"name": "fedmlb"}])):
        assert not method.facts.knows_evaluations and method.work(0).evaluations == 6
    fedntd = make("fedntd", local_steps=2)
    assert fedntd.facts.knows_evaluations and fedntd.work(0).evaluations == 8
