"""What every task promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedbus.algorithms.objective import deferred
from seedbus.models.errors import DataError
from seedbus.models.partitions.iid import Iid
from seedbus.models.task import Task
from seedbus.studies.check.promises import require, require_same
from seedbus.studies.check.runs import TWO_WORKERS, ended, require_equal_ends, require_no_divergence, world

CLIENTS = 6
_STEPS_OF_GRADIENT = (1e-1, 1e-2, 1e-3)


def bind(task: Task, seed: int = 1, clients: int = CLIENTS) -> Any:
    """Return the task's problem, its samples divided evenly."""
    return task.bind(seed=seed, clients=clients, partition=Iid())


def losses(problem: Any, x: Any, client: int, round: int, steps: Any) -> list[float]:
    """Return a client's losses at x in steps of a round."""
    objective = problem.objective(client, round)
    objective.point[:] = x
    return [objective.loss(step) for step in steps]


def results(task: Any) -> Any:
    """Return what another process has to find, too."""
    problem = bind(task)
    x = problem.x0()
    return x, losses(problem, x, 2, 1, [0, 1]), sorted(problem.evaluate(x, "test").items())


def the_schema_knows_the_dimension_that_the_problem_has(task: Any) -> None:
    """The task, without data, knows the dimension that its problem and x₀ have; x₀ is float32."""
    problem = bind(task)
    x0 = problem.x0()
    found = {"task": task.dimension, "problem": problem.dimension, "x₀": x0.size}
    require(len(set(found.values())) == 1, f"the dimensions are {found}")
    require((x0.shape, x0.dtype) == ((task.dimension,), np.float32), f"x₀ is {x0.dtype} {x0.shape}")


def the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array(task: Any) -> None:
    """x₀ has the same bits in every problem, whatever clients there are, and is a new array each time."""
    problem = bind(task)
    first = problem.x0().copy()
    require_same(bind(task, clients=2).x0(), first, "with 2 clients x₀", "with 6")
    require_same(bind(task).x0(), first, "bound again x₀", "and before")
    problem.x0()[:] = 7
    require_same(problem.x0(), first, "after a change of what was returned x₀", "and before")


def a_step_asked_twice_at_one_point_gives_the_same_bits(task: Any) -> None:
    """A loss is a Python float, and the same for one step and point, whatever was computed in between."""
    problem = bind(task)
    first = losses(problem, problem.x0(), 3, 5, [0, 0, 1, 0])
    require(all(type(loss) is float for loss in first), f"a loss is a {type(first[0]).__name__}, not a float")
    require(first[0] == first[1] == first[3], f"step 0 gave {first[0]!r}, {first[1]!r} and {first[3]!r}")
    problem.evaluate(problem.x0() + 1, "test")
    again = losses(problem, problem.x0(), 3, 5, [1, 0])
    require(again == [first[2], first[0]], f"steps 1 and 0 gave {again}, and before {[first[2], first[0]]}")


def losses_do_not_depend_on_who_else_is_asked(task: Any) -> None:
    """A client's losses do not depend on which other clients were asked, nor on how often the task was bound."""
    alone, crowd = bind(task), bind(task)
    x = alone.x0()
    for other in (0, 1, 4):
        losses(crowd, x * 2, other, 5, [0, 1])
    found, expected = losses(crowd, x, 2, 5, [0, 1]), losses(alone, x, 2, 5, [0, 1])
    require(found == expected, f"after others' they are {found}, and alone {expected}")


def every_client_has_samples(task: Any) -> None:
    """Every client has training samples, at least one."""
    problem = bind(task)
    found = [problem.samples(client) for client in range(CLIENTS)]
    require(all(isinstance(each, int | np.integer) and each >= 1 for each in found), f"found {found}")


def metrics_are_finite_on_every_split(task: Any) -> None:
    """Metrics are finite floats on every split, and those that the task names, the loss among them."""
    problem = bind(task)
    for split in ("train", "validation", "test"):
        metrics = problem.evaluate(problem.x0(), split)
        require("loss" in metrics and set(task.metrics) <= set(metrics), f"{split} has {sorted(metrics)}")
        require(all(math.isfinite(value) for value in metrics.values()), f"{split} has {metrics}")


def a_gradient_is_that_of_the_loss(task: Any) -> None:
    """If an objective has gradients, the loss rises along one at the rate that the gradient has."""
    problem = bind(task)
    objective = problem.objective(1, 2)
    if not hasattr(objective, "gradient"):
        return
    x = problem.x0()
    objective.point[:] = x
    gradient = np.array(objective.gradient(0), np.float64)
    norm = float(np.linalg.norm(gradient))
    if norm == 0:
        return
    rates = []
    for length in _STEPS_OF_GRADIENT:
        ends = []
        for sign in (1, -1):
            objective.point[:] = x + sign * length * gradient / norm
            ends.append(objective.loss(0))
        rates.append((ends[0] - ends[1]) / (2 * length))
    near = min(rates, key=lambda rate: abs(rate - norm))
    require(abs(near - norm) < 0.05 * norm, f"along the gradient, of norm {norm:.6g}, the loss rises by {near:.6g}")


def a_slope_is_the_gradient_along_a_direction(task: Any) -> None:
    """If an objective has slopes and gradients, a slope is ⟨∇f(point), tangent⟩."""
    problem: Any = bind(task)
    objective = problem.objective(1, 2)
    if not (hasattr(objective, "slope") and hasattr(objective, "gradient")):
        return
    try:
        problem.check_slopes()
    except DataError:  # which a run would raise: torch has no such derivative of one of its operations
        return
    x = problem.x0()
    objective.point[:] = x
    objective.tangent[:] = np.cos(np.arange(x.size) + 1)
    (slope,) = deferred(objective).read([objective.slope(0)])
    gradient, along = (np.array(each, np.float64) for each in (objective.gradient(0), objective.tangent))
    bound = 1e-4 * float(np.linalg.norm(gradient) * np.linalg.norm(along))
    found = f"a slope is {slope:.6g}, and the gradient along that direction {gradient @ along:.6g}"
    require(abs(slope - gradient @ along) <= bound, found)


def named_tensors_hold_every_coordinate_and_share_nothing(task: Any) -> None:
    """`state_dict` returns every coordinate in contiguous arrays that share nothing with x or the problem."""
    problem = bind(task)
    x = problem.x0()
    tensors = problem.state_dict(x)
    size = sum(tensor.size for tensor in tensors.values())
    require(size == x.size, f"the tensors have {size} numbers, and x {x.size}")
    loose = [name for name, tensor in tensors.items() if not (tensor.flags.c_contiguous and tensor.flags.owndata)]
    require(not loose, f"{loose} are no contiguous copies")
    before = {name: tensor.copy() for name, tensor in tensors.items()}
    problem.objective(0, 0).point[:] = 5
    x[:] = 5
    for name, tensor in tensors.items():
        require_same(tensor, before[name], f"after a change of x, {name}", "and before")


def a_run_in_two_worker_processes_ends_as_in_one(task: Any) -> None:
    """A run in two worker processes over ipc, which prove x₀ to the server, ends as in one process, bit for bit."""
    what = world(task=task.model_dump(mode="json"), stop={"rounds": 4})
    here = ended(what)
    require_no_divergence(here)
    require_equal_ends(ended(what, TWO_WORKERS), here, "in two worker processes", "in one process")


CONTRACT: Sequence[Any] = [
    the_schema_knows_the_dimension_that_the_problem_has,
    the_initial_point_is_the_same_bits_whatever_clients_there_are_and_a_new_array,
    a_step_asked_twice_at_one_point_gives_the_same_bits,
    losses_do_not_depend_on_who_else_is_asked,
    every_client_has_samples,
    metrics_are_finite_on_every_split,
    a_gradient_is_that_of_the_loss,
    a_slope_is_the_gradient_along_a_direction,
    named_tensors_hold_every_coordinate_and_share_nothing,
]
WORKERS: Sequence[Any] = [a_run_in_two_worker_processes_ends_as_in_one]
