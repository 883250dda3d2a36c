"""Samples whose classes a client takes for others: it learns as from samples that have those classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_task import Points, own
from small_data import people_table
from torch import nn

from seedbus.models import Iid
from seedbus.models.data.samples import Images
from seedbus.models.mask import Mask
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.table import Table

CLIENT, ROUND = 1, 3


def bind(task: Any) -> Any:
    return task.bind(seed=1, clients=2, partition=Iid())


def reversed_for_one(client: int, round: int, classes: int) -> Any:
    return np.arange(classes)[::-1].copy() if (client, round) == (CLIENT, ROUND) else None


def other(sample: Any, label: int) -> Any:
    return sample._replace(label=label) if hasattr(sample, "_replace") else replace(sample, label=label)


def with_other_labels(problem: Any) -> Any:
    """Change the labels of all training samples of a problem."""
    last, train = problem.number_of_classes - 1, problem.splits["train"]
    if isinstance(train, Images):
        problem.splits["train"] = train._replace(labels=last - train.labels)
    else:
        problem.splits["train"] = [other(sample, last - sample.label) for sample in train]
    return problem


def loss(problem: Any, client: int = CLIENT, round: int = ROUND) -> float:
    objective = problem.objective(client, round)
    objective.point[:] = problem.x0()
    return float(objective.loss(2))


def require_taken(make: Callable[[], Any], other: Callable[[], Any]) -> None:
    """Require that one client in one round has the losses of a problem with other labels, and evaluations the true."""
    true, taken = make(), make()
    taken.relabel(reversed_for_one)
    assert loss(taken) == loss(other()) != loss(true)
    assert loss(taken, client=0) == loss(true, client=0) and loss(taken, round=0) == loss(true, round=0)
    assert taken.evaluate(taken.x0(), "train") == true.evaluate(true.x0(), "train")


def people(folder: Path, **fields: Any) -> Table:
    people_table(folder / "people.csv")
    return Table(**{"file": str(folder / "people.csv"), "target": "city", "validation": 0.25} | fields)


@pytest.mark.parametrize(
    "fields", [{}, {"micro_batch": 5}, {"forward": "stacked", "model": "cnn"}], ids=["whole", "parts", "stacked"]
)
def test_a_client_learns_from_images_with_the_classes_that_it_takes_them_for(fields: Any) -> None:
    task = Digits(**{"model": "softmax", "batch_size": 16} | fields)
    require_taken(lambda: bind(task), lambda: with_other_labels(bind(task)))


def test_and_from_rows_of_a_table(tmp_path: Path) -> None:
    task = people(tmp_path)
    require_taken(lambda: bind(task), lambda: with_other_labels(bind(task)))


def test_and_from_items_of_a_data_set_of_its_own() -> None:
    require_taken(lambda: bind(own()), lambda: bind(own(train=Points(target=lambda row: 2 - row % 3))))


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"dataset": "cb", "loss": "options"}, {"micro_batch": 1}])
def test_and_from_texts_whose_answers_a_language_model_learns(make: Any, fields: Any) -> None:
    task = make(**{"batch_size": 3} | fields)
    require_taken(lambda: bind(task), lambda: with_other_labels(bind(task)))


@pytest.mark.slow
def test_and_from_rows_that_a_model_of_transformers_classifies(make_hub: Any) -> None:
    task = make_hub("distilbert", batch_size=3)
    require_taken(lambda: bind(task), lambda: with_other_labels(bind(task)))


def test_a_mask_changes_nothing_of_that() -> None:
    task = Digits(model="softmax", batch_size=16)
    chosen = Mask(rule="random", density=0.5)
    require_taken(
        lambda: MaskedProblem(bind(task), chosen, 1), lambda: MaskedProblem(with_other_labels(bind(task)), chosen, 1)
    )


def test_classes_are_counted_once_and_not_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    problem: Any = bind(Digits(model="softmax", batch_size=16))
    problem.relabel(reversed_for_one)
    first = loss(problem)
    monkeypatch.setattr(type(problem), "number_of_classes", property(lambda _: pytest.fail("counted")))
    assert loss(problem) == first


def test_methods_that_count_classes_count_those_that_a_client_takes_them_for() -> None:
    problem = bind(Digits(model="softmax", batch_size=16))
    true = problem.objective(CLIENT, ROUND).counts()
    problem.relabel(reversed_for_one)
    assert problem.objective(CLIENT, ROUND).counts().tolist() == true[::-1].tolist() != true.tolist()


@pytest.mark.parametrize(
    "target", [lambda row: np.full(1, row, np.float32), lambda row: row % 3 - 1], ids=["numbers", "below"]
)
def test_targets_of_a_task_of_its_own_may_be_no_classes(target: Any) -> None:
    data = {"train": Points(target=target), "test": Points(20, target=target)}
    problem = bind(own(**data, network=lambda: nn.Linear(4, 1), loss=lambda outputs, _: outputs.mean(), metrics={}))
    assert problem.number_of_classes == 0


def test_targets_of_a_regression_are_no_classes(tmp_path: Path) -> None:
    assert bind(people(tmp_path, target="height")).number_of_classes == 0
