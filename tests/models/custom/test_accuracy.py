"""Accuracy by the shapes of outputs and targets: right for those that it knows, and refused for others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from own_task import Points, bind, own
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, mse_loss

from seedbus.models import DataError


class Case(NamedTuple):
    """A network's shape of outputs, a sample's target, the loss, and what is right if accuracy is defined."""

    shape: tuple[int, ...]
    target: Any
    loss: Any
    right: Any


def bits(outputs: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(outputs.reshape(-1), targets.float().reshape(-1))


def column(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets.reshape(-1))


def last(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.movedim(-1, 1), targets)


def plain(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets)


def signs(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(-1) > 0) == (targets.reshape(-1) > 0.5)


def largest(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets.reshape(len(targets), *outputs.shape[2:])


def largest_last(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(-1) == targets


def likeliest(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets.argmax(1)


RIGHT = {
    "a logit, [n] of 0.0 and 1.0": Case((1,), lambda row: row % 2 / 1, bits, signs),
    "a logit, a column": Case((1,), lambda row: torch.tensor([row % 2 / 1]), bits, signs),
    "a logit, whole numbers": Case((1,), lambda row: row % 2, bits, signs),
    "a logit, a column of truth values": Case((1,), lambda row: torch.tensor([row % 2 == 0]), bits, signs),
    "a logit without a dimension": Case((), lambda row: row % 2 / 1, bits, signs),
    "a logit for each place": Case((5, 1), lambda row: (row + torch.arange(5)) % 2, bits, signs),
    "classes": Case((3,), lambda row: row % 3, plain, largest),
    "a column of classes": Case((3,), lambda row: torch.tensor([row % 3]), column, largest),
    "a column of classes as floats": Case(
        (3,), lambda row: torch.tensor([row % 3 / 1]), lambda o, t: column(o, t.long()), largest
    ),
    "places, as torch has them": Case((3, 5), lambda row: (row + torch.arange(5)) % 3, plain, largest),
    "places, classes last": Case((5, 3), lambda row: (row + torch.arange(5)) % 3, last, largest_last),
    "as many places as classes": Case((3, 3), lambda row: (row * torch.arange(3)) % 3, plain, largest),
    "as many places as classes, these last": Case((3, 3), lambda row: (row * torch.arange(3)) % 3, last, largest_last),
    "an image of classes": Case((2, 4, 4), lambda row: (row + torch.arange(16)).view(4, 4) % 2, plain, largest),
    "one of several labels": Case((3,), lambda row: torch.eye(3)[row % 3], binary_cross_entropy_with_logits, likeliest),
}


class Shaped(nn.Module):
    """Outputs of a shape for each sample."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.head = shape, nn.Linear(4, int(np.prod(shape)))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(inputs - 0.5).view(-1, *self.shape)
        return outputs


def task(case: Case, **more: Any) -> Any:
    sets = {"train": Points(60, case.target), "test": Points(200, case.target)}
    return own(
        **{
            "network": lambda: Shaped(case.shape),
            **sets,
            "loss": case.loss,
            "metrics": {"accuracy": "accuracy"},
            **more,
        }
    )


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT.keys())
def test_accuracy_is_the_share_of_right_classes(case: Case) -> None:
    problem = bind(task(case))
    found = problem.evaluate(problem.x0(), "test")["accuracy"]
    inputs, targets = problem.tensors(problem.splits["test"], np.arange(200))
    known = float(case.right(problem.flat.module(inputs), targets).double().mean())
    assert found == pytest.approx(known) and 0.1 < known < 0.9


def several(row: int) -> Any:
    return torch.tensor([row % 2 / 1, 1, row // 2 % 2])


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(outputs.reshape(-1), targets.float().reshape(-1))


WRONG = {
    "one logit, classes": (
        Case((1,), lambda row: row % 9, squares, None),
        r"float32\[8, 1\] and targets int64\[8\] from 0 to 8, where one logit tells two classes apart",
    ),
    "one logit, signs": (
        Case((1,), lambda row: row % 2 * 2 - 1, squares, None),
        "from -1 to 1, where one logit tells two",
    ),
    "one probability": (
        Case((1,), lambda row: row % 2 / 1, lambda o, t: binary_cross_entropy(o[:, 0], t), None),
        "for which the loss does not fall where a logit's sign is right, as with probabilities",
    ),
    "a number near 0 or 1": (Case((1,), lambda row: row % 2 / 1, squares, None), "for which the loss does not fall"),
    "a number": (
        Case((1,), lambda row: row / 60, squares, None),
        r"targets float32\[8\] from 0 to 3.31667, which are no",
    ),
    "two numbers": (Case((2,), lambda row: torch.tensor([row / 60, 1]), mse_loss, None), "which are no classes"),
    "several labels": (
        Case((3,), several, binary_cross_entropy_with_logits, None),
        r"float32\[8, 3\] and targets float32\[8, 3\] from 0 to 1, whose shapes do not fit",
    ),
    "several labels, and as many samples": (
        Case((8,), lambda row: (row + torch.arange(8)) % 2, lambda o, t: squares(o, t), None),
        "whose shapes do not fit",
    ),
    "classes from 1": (
        Case((3,), lambda row: row % 3 + 1, lambda o, t: plain(o, t - 1), None),
        "where 3 outputs tell 0 to 2",
    ),
    "places of another number": (
        Case((3, 4), lambda row: (row + torch.arange(6)) % 3, lambda o, t: o.square().mean(), None),
        "whose shapes do not",
    ),
    "either dimension": (
        Case((3, 3), lambda row: (row + torch.arange(3)) % 3, lambda o, t: o.square().mean(), None),
        "whose classes may be in either dimension",
    ),
    "distances": (
        Case((3,), lambda row: row % 3, lambda o, t: plain(-o, t), None),
        "for which the loss rises where the right class has the largest output, as with distances",
    ),
    "distances, a column of classes": (
        Case((3,), lambda row: torch.tensor([row % 3]), lambda o, t: column(-o, t), None),
        "for which the loss rises where the right class has the largest output",
    ),
    "distances, classes last": (
        Case((5, 3), lambda row: (row + torch.arange(5)) % 3, lambda o, t: last(-o, t), None),
        "for which the loss rises where the right class has the largest output",
    ),
}


@pytest.mark.parametrize(("case", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_shapes_that_do_not_fit_accuracy_are_refused_with_both(case: Case, sentence: str) -> None:
    more = {"network": lambda: nn.Sequential(Shaped(case.shape), nn.Sigmoid())} if "probab" in sentence else {}
    with pytest.raises(DataError, match=rf"task.metrics.accuracy: found accuracy of outputs .*{sentence}") as raised:
        bind(task(case, **more))
    assert "\n" not in str(raised.value)
    assert bind(task(case, **more, metrics={})), "without accuracy it is trained"


def test_only_a_later_item_shows_that_targets_are_no_classes() -> None:
    case = Case((3,), lambda row: torch.tensor([1.0, row == 190, 0]), binary_cross_entropy_with_logits, None)
    with pytest.raises(DataError, match="whose shapes do not fit"):
        bind(task(case))
