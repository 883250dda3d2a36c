"""The contract of every task, and further properties of image tasks and quadratics."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_data import SMALLER
from task_contract import BOUND, KINDS, bind, keep_contract, losses, skip_without_packages
from torch.nn.functional import cross_entropy

from seedbus.models import DataError
from seedbus.models.task import TASKS
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.quadratic import Quadratic, QuadraticProblem

pytestmark = pytest.mark.usefixtures("small_sets")


@pytest.mark.few(3)
@pytest.mark.parametrize("task", BOUND, ids=repr)
def test_a_task_keeps_the_contract(task: Any) -> None:
    skip_without_packages(task.name)
    keep_contract(task)


def test_tasks_are_found_by_their_names() -> None:
    assert list(TASKS.all()) == [
        "blackbox-attack",
        "cifar-10",
        "cifar-100",
        "digits",
        "fashion-mnist",
        "femnist",
        "hugging-face",
        "image-folder",
        "language-model",
        "mnist",
        "moments",
        "null",
        "quadratic",
        "sentence-encoder",
        "shakespeare",
        "table",
        "torch",
    ]
    assert all(task.model_fields["name"].default == name for name, task in KINDS.items())


def test_every_field_has_a_description() -> None:
    for task in TASKS.all().values():
        fields = task.model_json_schema()["properties"]
        assert all(field.get("description") for name, field in fields.items() if name != "name"), task


@pytest.mark.slow
def test_listing_the_tasks_imports_neither_torch_nor_data_libraries() -> None:
    script = (
        f"import sys; from seedbus.models.task import TASKS; smaller = {SMALLER!r}; "
        "kinds = [pair for pair in TASKS.all().items() if pair[0] not in ('hugging-face', 'torch')]; "
        "[task(**smaller.get(name, {})).dimension for name, task in kinds]; "
        "heavy = {'torch', 'sklearn', 'datasets', 'transformers', 'huggingface_hub', 'scipy'}; "
        "assert not heavy & set(sys.modules), 'heavy imports'"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_unknown_fields_and_values_of_a_task_are_refused() -> None:
    for wrong in ({"modle": "cnn"}, {"model": "mnist-cnn"}, {"batch_size": 0}, {"validation": 0.9}, {"name": "mnist"}):
        with pytest.raises(ValidationError):
            Digits(**wrong)


# Images


def test_splits_are_disjoint_and_the_same_whatever_the_seed() -> None:
    one, other = bind(Digits(), seed=1), bind(Digits(), seed=2)
    sizes = {split: images.labels.size for split, images in one.splits.items()}
    assert sizes == {"train": 1_350, "validation": 150, "test": 297}
    for split, images in one.splits.items():
        assert np.array_equal(images.pixels, other.splits[split].pixels)
    assert sum(one.samples(client) for client in range(6)) == 1_350


def test_evaluation_equals_a_computation_by_hand_and_weights_the_last_small_batch_rightly() -> None:
    problem = bind(Digits())
    x = problem.x0() * 3
    metrics = problem.evaluate(x, "test")  # 297 samples: two batches of 128 and one of 41
    tested = problem.splits["test"]
    inputs = (torch.from_numpy(tested.pixels).permute(0, 3, 1, 2).double() / 16 - 0.305) / 0.376
    module = Digits().network().double()
    module.load_state_dict({name: torch.from_numpy(t) for name, t in problem.state_dict(x).items()})
    logits, labels = module(inputs).detach(), torch.from_numpy(tested.labels)
    assert metrics["loss"] == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-6)
    assert metrics["accuracy"] == float((logits.argmax(1) == labels).double().mean())


def test_an_objective_is_the_mean_over_its_own_batch_and_no_more() -> None:
    problem = bind(Digits(batch_size=9))
    objective = problem.objective(2, 4)
    objective.point[:] = problem.x0()
    inputs, labels = objective.batch(step=3)
    assert inputs.shape == (9, 1, 8, 8) and labels.shape == (9,)
    by_sample = cross_entropy(problem.flat.module(inputs), labels, reduction="none")
    assert objective.loss(3) == pytest.approx(float(by_sample.mean()), rel=1e-6)


def test_a_client_with_fewer_samples_than_a_batch_uses_them_all() -> None:
    problem = bind(Digits(batch_size=500))
    assert problem.objective(0, 0).batch(0)[1].numel() == problem.samples(0) == 225


def test_without_held_out_samples_there_is_no_validation_split() -> None:
    with pytest.raises(DataError, match="no samples in the validation split; expected a larger `validation`"):
        problem = bind(Digits(validation=0))
        problem.evaluate(problem.x0(), "validation")


@pytest.mark.slow
def test_the_small_network_is_trainable() -> None:
    problem = bind(Digits(), clients=1)
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    module = problem.flat.module.requires_grad_(True)
    for step in range(250):
        inputs, labels = objective.batch(step)
        module.zero_grad()
        cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.2 * parameter.grad
    module.requires_grad_(False)
    assert problem.evaluate(objective.point.copy(), "test")["accuracy"] > 0.9


# Quadratics


def exact(task: Quadratic, clients: int = 4) -> QuadraticProblem:
    return QuadraticProblem(task, seed=3, clients=clients, dtype=np.float64)


def test_the_optimum_is_where_the_mean_gradient_vanishes_in_float64() -> None:
    problem = exact(Quadratic(dimension=6, condition=100.0))
    centers = np.stack([problem.center(client) for client in range(4)])
    assert problem.optimum == pytest.approx(centers.mean(axis=0), abs=1e-14)
    gradient = (problem.curvature * (problem.optimum - centers)).mean(axis=0)
    assert np.abs(gradient).max() < 1e-14
    assert problem.evaluate(problem.optimum, "test")["gap"] == 0.0
    assert problem.curvature[[0, -1]].tolist() == [0.01, 1.0]


@pytest.mark.parametrize(
    ("condition", "dimension", "digest"),
    [(10.0, 1, "5055ab2a5af8ffc7"), (10.0, 203, "f248645f2c5b2ce6"), (1e12, 1000, "9303792821701708")],
)
def test_the_curvatures_of_a_quadratic_are_the_same_bits_on_every_processor(
    condition: float, dimension: int, digest: str
) -> None:
    found = exact(Quadratic(dimension=dimension, condition=condition)).curvature
    assert hashlib.blake2b(found.tobytes(), digest_size=8).hexdigest() == digest
    assert found == pytest.approx(np.geomspace(1 / condition, 1, dimension), rel=1e-13)


def test_the_global_loss_is_the_mean_of_the_clients_losses() -> None:
    problem = exact(Quadratic(dimension=6))
    x = problem.x0()
    assert x.dtype == np.float64
    mean = np.mean([losses(problem, x, client, 0, [0]) for client in range(4)])
    assert problem.evaluate(x, "train")["loss"] == pytest.approx(mean, rel=1e-14)


def test_a_central_difference_is_exact_on_a_quadratic_in_float64() -> None:
    problem = exact(Quadratic(dimension=6))
    objective = problem.objective(1, 0)
    x, z = problem.x0(), np.arange(6.0)
    objective.point = x + 0.5 * z
    above = objective.loss(0)
    objective.point = x - 0.5 * z
    assert above - objective.loss(0) == pytest.approx(z @ (problem.curvature * (x - problem.center(1))), rel=1e-13)


def test_without_heterogeneity_all_clients_agree() -> None:
    problem = exact(Quadratic(heterogeneity=0))
    assert np.array_equal(problem.center(0), problem.center(1)) and problem.least_loss < 1e-28


def test_the_noise_of_gradients_and_losses_has_the_deviation_that_was_asked_for() -> None:
    problem = exact(Quadratic(dimension=4_000, noise=2.0))
    objective = problem.objective(0, 0)
    assert objective.noise(0).std() == pytest.approx(1.0, rel=0.05)
    x, still = problem.x0(), exact(Quadratic(dimension=4_000)).objective(0, 0)
    objective.point = still.point = x
    added = objective.gradient(0) - still.gradient(0)
    assert added.std() == pytest.approx(2.0, rel=0.05)
    slope = added @ (x - problem.center(0))  # the noise of the loss, which is 0 at the client's own minimum
    assert objective.loss(0) - still.loss(0) == pytest.approx(slope, rel=1e-9)


def test_the_clients_minima_have_the_deviation_that_was_asked_for() -> None:
    problem = exact(Quadratic(dimension=300, heterogeneity=0.5), clients=20)
    centres = np.stack([problem.center(client) for client in range(20)])
    assert centres.std(axis=0, ddof=1).mean() == pytest.approx(0.5, rel=0.05)


def test_the_noise_of_a_step_is_its_own() -> None:
    problem = exact(Quadratic(dimension=50, noise=2.0))
    objective = problem.objective(0, 0)
    assert np.array_equal(objective.noise(1), problem.objective(0, 0).noise(1))
    assert not np.array_equal(objective.noise(1), objective.noise(2))
    assert not np.array_equal(objective.noise(1), problem.objective(0, 1).noise(1))
    assert not np.array_equal(objective.noise(1), problem.objective(1, 0).noise(1))
