"""A task without cost, to measure the simulator itself: no data, no network, and a loss of one coordinate.

The invariant: the cost of a loss does not depend on the dimension, and its value depends only on client, round, step
and point.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.keyed import keyed_bytes
from seedbus.models.generators import client_key
from seedbus.models.partition import Partition
from seedbus.models.task import Fill, Problem, Task, Vector, check_split, refuse_criterion


class Null(Task, frozen=True):
    """A task that learns nothing: the cost of a run is its messages, directions and replay."""

    has_samples: ClassVar[bool] = False
    has_slopes: ClassVar[bool] = False
    uses_device: ClassVar[bool] = False

    name: Literal["null"] = "null"
    dimension: int = Field(10, ge=1, description="d, the number of coordinates")
    losses: Literal["zero", "keyed"] = Field(
        "zero",
        description="always 0, or the first coordinate times a weight in [−1, 1) keyed by seed, client, round and step",
    )

    @property
    def may_hold_out(self) -> bool:
        """See `Task`."""
        return False

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Return the problem, of any partition: there is no data to divide."""
        return NullProblem(self, seed=seed)


class NullProblem:
    """The problem of a null task; see `task.Problem`."""

    def __init__(self, task: Null, *, seed: int) -> None:
        self.task = task
        self.seed = seed
        self.dimension = task.dimension
        self.point: Vector = np.zeros(self.dimension, dtype=np.float32)

    def x0(self) -> NDArray[np.float32]:
        """Return zeros for any seed."""
        return np.zeros(self.dimension, dtype=np.float32)

    def shapes(self) -> list[tuple[int, ...]]:
        """Return that of one vector, for algorithms that need shapes."""
        return [(self.dimension,)]

    def samples(self, client: int) -> int:
        """Return 1: clients weigh equally."""
        return 1

    def objective(self, client: int, round: int) -> NullObjective:
        """Return a client's loss in a round; it reads this problem's point."""
        return NullObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return {"loss": 0.0}."""
        check_split(split)
        return {"loss": 0.0}

    def state_dict(self, x: Vector) -> dict[str, Vector]:
        """Return {"x": a copy of x}."""
        return {"x": x.copy()}


class NullObjective:
    """A loss that is 0, or the point's first coordinate times a keyed weight w."""

    def __init__(self, problem: NullProblem, client: int, round: int) -> None:
        self.point: Vector = problem.point
        self._key = (problem.seed, client, round)
        self._is_zero = problem.task.losses == "zero"
        self._cached_step: int | None = None
        self._cached_weight = 0.0

    samples = 1
    steps_an_epoch = 1

    @property
    def key(self) -> int:
        return client_key(*self._key)

    def loss(self, step: int) -> float:
        """Return 0.0, or w·point[0]."""
        return self._weight(step) * float(self.point[0])

    def loss_at(self, step: int, fill: Fill) -> float:
        """Return the loss at the vector that `fill` writes; there is only one layer."""
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        """Return the gradient, [d]: w in the first coordinate."""
        refuse_criterion(criterion)
        gradient = np.zeros_like(self.point)
        gradient[0] = self._weight(step)
        return gradient

    def _weight(self, step: int) -> float:
        if not self._is_zero and step != self._cached_step:
            self._cached_weight = int.from_bytes(keyed_bytes("null", *self._key, step, size=8), "little") / 2**63 - 1
            self._cached_step = step
        return self._cached_weight
