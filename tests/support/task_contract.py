"""The tasks to test, and what our own tasks keep beside the promises of every task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from promised import keep
from small_data import SMALLER

from seedbus.models import DataError
from seedbus.models.task import TASKS, HasParts
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.mnist import Mnist
from seedbus.models.tasks.moments import Moments
from seedbus.models.tasks.null import Null
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.models.tasks.torch_task import TorchTask
from seedbus.models.text.task import PretrainedTask
from seedbus.studies.check.task import CONTRACT as PROMISES
from seedbus.studies.check.task import bind, losses

__all__ = ["BOUND", "KINDS", "STARTS", "bind", "keep_contract", "losses"]

KINDS: dict[str, Any] = dict(TASKS.all())
STARTS = ("null", "blackbox-attack", "language-model", "hugging-face")
"""Tasks that start at zero or at pretrained weights, whatever the seed."""
BOUND = [
    # a new task is tested without a change here; those that need weights, code or owners have tests of their own
    *(
        task(**SMALLER.get(name, {}))
        for name, task in KINDS.items()
        if not issubclass(task, PretrainedTask | TorchTask | Moments)
    ),
    Digits(model="softmax", batch_size=7),
    Mnist(model="softmax"),
    Mnist(model="lenet"),
    Quadratic(dimension=5, noise=0.5),
    Null(dimension=4, losses="keyed"),
]


def skip_without_packages(name: str) -> None:
    """Skip a test of a task that needs an optional package that is not installed."""
    if name == "image-folder":
        pytest.importorskip("PIL", reason="image-folder decodes with pillow, which is not installed")


def another_seed_gives_another_initial_point(task: Any) -> None:
    if task.name not in STARTS:
        assert bind(task, seed=2).x0().tobytes() != bind(task).x0().tobytes()


def another_split_is_refused(task: Any) -> None:
    problem = bind(task)
    with pytest.raises(DataError, match="'dev'; expected one of train, validation, test"):
        problem.evaluate(problem.x0(), "dev")


def parts_of_a_split_measure_what_the_whole_does(task: Any) -> None:
    """Also: samples of one class, and each client's own; the metrics of other samples are others."""
    problem = bind(task)
    has_parts = isinstance(problem, HasParts)
    assert has_parts is task.has_samples
    if not has_parts:
        return
    x, tested = problem.x0(), problem.evaluated("test")
    whole = problem.evaluate(x, "test")
    assert problem.evaluate_part(x, "test", tested) == whole
    parts = np.array_split(tested, 3) if tested.size > 2 else [tested]
    if problem.number_of_classes:
        classes = problem.classes("test")[tested]
        parts = [tested[classes == each] for each in np.unique(classes)]
    found = [problem.evaluate_part(x, "test", part) for part in parts]
    for name in {"loss", "accuracy"} & whole.keys():
        mean = np.average([each[name] for each in found], weights=[part.size for part in parts])
        assert mean == pytest.approx(whole[name], rel=1e-5)
    own = [problem.evaluate_part(x, "train", part)["loss"] for part in problem.parts]
    assert len(set(own)) > 1
    assert [part.size for part in problem.parts] == [problem.samples(client) for client in range(len(problem.parts))]


CONTRACT: list[Any] = [
    *PROMISES,
    another_seed_gives_another_initial_point,
    another_split_is_refused,
    parts_of_a_split_measure_what_the_whole_does,
]


def keep_contract(task: Any) -> None:
    """Try the promises of every task, and what our own keep beside them."""
    keep(task.name, CONTRACT, task)
