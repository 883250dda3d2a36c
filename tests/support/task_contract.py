"""The contract of every task, as checks that take a task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from small_data import SMALLER

from seedbus.models import DataError, Iid, Task
from seedbus.models.task import TASKS
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.mnist import Mnist
from seedbus.models.tasks.null import Null
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.models.text.task import TextTask

KINDS: dict[str, Any] = dict(TASKS.all())
BOUND = [
    # a new task is tested without a change here; text tasks, which need weights, have tests of their own
    *(task(**SMALLER.get(name, {})) for name, task in KINDS.items() if not issubclass(task, TextTask)),
    Digits(model="softmax", batch_size=7),
    Mnist(model="softmax"),
    Quadratic(dimension=5, noise=0.5),
    Null(dimension=4, losses="keyed"),
]


def skip_without_packages(name: str) -> None:
    """Skip a test of a task that needs an optional package that is not installed."""
    if name == "image-folder":
        pytest.importorskip("PIL", reason="image-folder decodes with pillow, which is not installed")


def bind(task: Task, seed: int = 1, clients: int = 6) -> Any:
    skip_without_packages(task.name)
    return task.bind(seed=seed, clients=clients, partition=Iid())


def losses(problem: Any, x: Any, client: int, round: int, steps: Any) -> Any:
    objective = problem.objective(client, round)
    objective.point[:] = x
    return [objective.loss(step) for step in steps]


def the_schema_knows_the_dimension_that_the_problem_has(task: Any) -> None:
    problem = bind(task)
    x0 = problem.x0()
    assert task.dimension == problem.dimension == x0.size
    assert x0.shape == (task.dimension,) and x0.dtype == np.float32


def the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array(task: Any) -> None:
    first, second = bind(task, clients=6).x0(), bind(task, clients=2).x0()
    assert first.tobytes() == second.tobytes()
    problem = bind(task)
    problem.x0()[:] = 7
    assert problem.x0().tobytes() == first.tobytes()
    if task.name not in (
        "null",
        "blackbox-attack",
        "language-model",
    ):  # these start at zero or pretrained, whatever the seed
        assert bind(task, seed=2).x0().tobytes() != first.tobytes()


def a_step_asked_twice_at_one_point_gives_the_same_bits(task: Any) -> None:
    problem = bind(task)
    first = losses(problem, problem.x0(), 3, 5, [0, 0, 1, 0])
    assert all(type(loss) is float for loss in first) and first[0] == first[1] == first[3]
    problem.evaluate(problem.x0() + 1, "test")
    assert losses(problem, problem.x0(), 3, 5, [1, 0]) == [first[2], first[0]], "nor does the order of steps matter"


def losses_do_not_depend_on_who_else_is_asked(task: Any) -> None:
    alone, crowd = bind(task), bind(task)
    x = alone.x0()
    for other in (0, 1, 4):
        losses(crowd, x * 2, other, 5, [0, 1])
    assert losses(alone, x, 2, 5, [0, 1]) == losses(crowd, x, 2, 5, [0, 1])


def metrics_are_finite_on_every_split_and_another_word_is_refused(task: Any) -> None:
    problem = bind(task)
    for split in ("train", "validation", "test"):
        metrics = problem.evaluate(problem.x0(), split)
        assert "loss" in metrics and all(math.isfinite(value) for value in metrics.values())
    with pytest.raises(DataError, match="'dev'; expected one of train, validation, test"):
        problem.evaluate(problem.x0(), "dev")


def named_tensors_hold_every_coordinate_and_share_nothing(task: Any) -> None:
    problem = bind(task)
    x = problem.x0()
    tensors = problem.state_dict(x)
    assert sum(tensor.size for tensor in tensors.values()) == x.size
    assert all(tensor.flags.c_contiguous and tensor.flags.owndata for tensor in tensors.values())
    before = {name: tensor.copy() for name, tensor in tensors.items()}
    problem.objective(0, 0).point[:] = 5
    x[:] = 5
    assert all(np.array_equal(tensors[name], before[name]) for name in tensors)


CONTRACT = [
    the_schema_knows_the_dimension_that_the_problem_has,
    the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array,
    a_step_asked_twice_at_one_point_gives_the_same_bits,
    losses_do_not_depend_on_who_else_is_asked,
    metrics_are_finite_on_every_split_and_another_word_is_refused,
    named_tensors_hold_every_coordinate_and_share_nothing,
]
