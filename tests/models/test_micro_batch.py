"""Micro-batches: a batch too large for memory is evaluated in parts, whose losses are added in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE
from small_language import bind, write_model, write_sets

from seedbus.models import Iid
from seedbus.models.device import on_device
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel

DIGITS: dict[str, Any] = {"name": "digits", "model": "cnn", "batch_size": 8}


pytestmark = pytest.mark.usefixtures("one_thread")


def objective_of(**fields: Any) -> Any:
    problem: Any = Digits(**DIGITS | fields).bind(seed=1, clients=3, partition=Iid())
    objective = problem.objective(0, 1)
    objective.point[:] = problem.x0()
    return objective


def mean(losses: list[float], sizes: list[int]) -> np.float32:
    """Return the mean of the parts' losses as NumPy's float32 gives it, one product and one sum after another."""
    total = np.float32(losses[0]) * np.float32(sizes[0] / sum(sizes))
    for loss, size in zip(losses[1:], sizes[1:], strict=True):
        total = total + np.float32(loss) * np.float32(size / sum(sizes))
    return total


def test_a_batch_of_eight_is_evaluated_in_parts_of_three_three_and_two() -> None:
    whole, parts = objective_of(), objective_of(micro_batch=3)
    seen: list[int] = []
    problem = parts._problem
    problem.flat.module.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    loss = parts.loss(0)
    assert seen == [3, 3, 2]
    inputs, labels = whole.batch(0)
    with torch.inference_mode():
        own = [problem.mean_loss(inputs[at : at + 3], labels[at : at + 3]).item() for at in (0, 3, 6)]
    assert loss == mean(own, [3, 3, 2]) == pytest.approx(whole.loss(0), rel=1e-5)
    x = problem.x0()
    assert parts.loss_at(0, lambda span, out: np.copyto(out, x[span])) == loss
    assert np.allclose(parts.gradient(0), whole.gradient(0), atol=1e-6)
    seen.clear()
    problem.evaluate(x, "test")
    assert max(seen) == 3
    assert objective_of(micro_batch=8).loss(0) == whole.loss(0)


@pytest.mark.parametrize("forward", ["eager", "stacked"])
def test_losses_in_parts_have_the_same_bits_on_a_device(forward: str) -> None:
    here = objective_of(micro_batch=3, forward=forward)
    with on_device(DEVICE):
        there = objective_of(micro_batch=3, forward=forward)
    x = here.point.copy()
    losses = []
    for objective in (here, there):
        points = objective.points()
        for row, point in enumerate(points):
            point[:] = x * np.float32(1 + row / 64)
        losses.append(objective.read([objective.measure(0, len(points))]))
    assert losses[0] == losses[1] or DEVICE != "torch"
    assert len(set(losses[0])) == (16 if forward == "stacked" else 1)


@pytest.mark.slow
def test_texts_of_similar_length_are_in_one_part_and_padded_to_the_longest_of_it(tmp_path: Path) -> None:
    model, data = write_model(tmp_path / "model"), write_sets(tmp_path / "data")
    task = {"model": str(model), "data": str(data / "sst2"), "batch_size": 8}
    whole, parts = (bind(LanguageModel(**task, **more)).objective(0, 1) for more in ({}, {"micro_batch": 3}))
    for objective in (whole, parts):
        objective.point[:] = objective._problem.x0()
    ((_, (batch, _)),) = whole.parts(0)
    widths = [part.ids.shape[1] for _, (part, _) in parts.parts(0)]
    assert [size for size, _ in parts.parts(0)] == [3, 3, 2]
    assert widths == sorted(widths) and widths[0] < widths[-1] == batch.ids.shape[1]
    assert parts.loss(0) == pytest.approx(whole.loss(0), rel=1e-5)
    x = parts._problem.x0()
    assert parts.loss_at(0, lambda span, out: np.copyto(out, x[span])) == parts.loss(0)
    assert np.allclose(parts.gradient(0), whole.gradient(0), atol=1e-6)
