"""The black-box attack: FedZO's loss (eq. 21), the attacked classifier, and a perturbation that misleads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE, IS_PROCESSOR
from small_data import mnist

from seedbus.models import DataError, Dirichlet, Iid
from seedbus.models.data import idx
from seedbus.models.device import on_device
from seedbus.models.generators import generator
from seedbus.models.images.classifier import classifier
from seedbus.models.tasks.attack import REACH, BlackboxAttack
from seedbus.models.tasks.mnist import FashionMnist

TASK = BlackboxAttack(label=None, classifier_steps=40, distortion=0.5)


@pytest.fixture(autouse=True, scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Any:
    """Sixty images whose classes are easy to tell apart, and a cache for the classifier that the first test trains."""
    root = tmp_path_factory.mktemp("attack")
    mnist(root / "data" / "fashion-mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBUS_DATA", str(root / "data"))
        patch.setenv("SEEDBUS_CACHE", str(root / "cache"))
        yield


def bind(task: BlackboxAttack = TASK, clients: int = 2) -> Any:
    return task.bind(seed=1, clients=clients, partition=Iid())


@pytest.mark.slow
def test_the_loss_is_the_papers_equation_21() -> None:
    problem = bind()
    objective = problem.objective(0, 0)
    objective.point[:] = generator("x").random(784, dtype=np.float32) - 0.5
    x = torch.from_numpy(objective.point.copy()).double().view(1, 1, 28, 28)
    images = problem.splits["train"].pick(problem.parts[0][:3])
    z = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255 - 0.5
    adversarial = torch.tanh(torch.atanh(2 * z * REACH) + x) / 2
    module = classifier(FashionMnist(), 40).module.double()
    logits = module((adversarial + 0.5 - 0.2860) / 0.3530)
    labels = problem.splits["train"].labels[problem.parts[0][:3]]
    expected = []
    for scores, label, moved, image in zip(logits, labels, adversarial, z, strict=True):
        others = torch.cat([scores[:label], scores[label + 1 :]])
        distance = ((moved - REACH * image) ** 2).sum()  # distance to the image scaled by REACH
        expected.append(float(torch.clamp(scores[label] - others.max(), min=0) + 0.5 * distance))
    inputs, wanted = problem.tensors(problem.splits["train"], problem.parts[0][:3])
    with torch.inference_mode():
        outputs = problem.flat.module(inputs)
        assert problem.measures(outputs, wanted)["loss"].tolist() == pytest.approx(expected, rel=1e-4)
        assert float(problem.loss(outputs, wanted)) == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.slow
def test_unperturbed_images_are_classified_correctly_and_unchanged() -> None:
    problem = bind()
    for split in ("train", "validation", "test"):
        measured = problem.evaluate(problem.x0(), split)
        assert measured["success"] == measured["distortion"] == 0.0 and measured["loss"] > 0
    assert TASK.metrics == tuple(measured)


@pytest.mark.slow
def test_the_vector_is_the_perturbation_alone() -> None:
    problem = bind()
    assert problem.dimension == 784 and list(problem.state_dict(problem.x0())) == ["perturbation"]
    before = problem.evaluate(problem.x0(), "test")
    problem.evaluate(problem.x0() + 3, "test")
    assert problem.evaluate(problem.x0(), "test") == before


def test_a_perturbation_can_be_found_that_misleads() -> None:
    problem = bind(TASK.model_copy(update={"distortion": 0.0}), clients=1)
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    (perturbation,) = problem.flat.module.parameters()
    perturbation.requires_grad_(True)
    for step in range(30):
        inputs, labels = objective.batch(step)
        (gradient,) = torch.autograd.grad(problem.mean_loss(inputs, labels), perturbation)
        with torch.no_grad():
            perturbation.sub_(gradient / gradient.norm())
    perturbation.requires_grad_(False)
    measured = problem.evaluate(objective.point.copy(), "test")
    assert measured["success"] > 0.3 and measured["distortion"] > 0


def test_the_images_may_be_those_of_one_class() -> None:
    labels = bind(BlackboxAttack(label=4, classifier_steps=40), clients=1).splits["train"].labels
    assert labels.tolist() == [4] * labels.size and labels.size == 5, "of six, one is held out"


def test_clients_may_hold_random_numbers_of_samples() -> None:
    problem = TASK.bind(seed=1, clients=4, partition=Dirichlet(alpha=1.0, balanced=False))
    assert len({problem.samples(client) for client in range(4)}) > 1


@pytest.mark.slow
def test_the_classifier_is_trained_once_whatever_the_threads_and_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bind()
    capsys.readouterr()
    bind()
    assert capsys.readouterr().err == "", "an earlier test, or bind, has trained it"
    written = {path.name: path.read_bytes() for path in (idx.cache_folder() / "prepared").iterdir()}
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))
    torch.set_num_threads(2)
    try:
        bind()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    output = capsys.readouterr().err
    assert output == "training the classifier of fashion-mnist that will be attacked, once: 40 steps\n"
    again = {path.name: path.read_bytes() for path in (tmp_path / "prepared").iterdir()}
    assert len(again) == 3 and again.items() <= written.items()


@pytest.mark.slow
def test_the_classifier_is_trained_on_the_processor_for_a_run_on_any_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bind()
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))
    with on_device(DEVICE):
        there = bind()
    assert there.flat.device is not None and there.splits["train"].digest() == here.splits["train"].digest()
    losses = [problem.evaluate(problem.x0(), "test")["loss"] for problem in (there, here)]
    assert losses[0] == (losses[1] if IS_PROCESSOR else pytest.approx(losses[1], rel=1e-4))


def test_a_classifier_that_is_always_wrong_cannot_be_attacked() -> None:
    right = classifier(FashionMnist(), 1).right["train"].reshape(6, 10).any(axis=0)
    (wrong, *_) = np.flatnonzero(~right)
    with pytest.raises(DataError, match=f"no image of class {wrong} that a classifier of 1 steps gets right; expect"):
        bind(BlackboxAttack(label=int(wrong), classifier_steps=1))
