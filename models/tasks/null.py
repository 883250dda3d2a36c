"""A task that costs nothing, to measure the simulator itself: no data, no network, a loss from one coordinate.

The invariant: a loss costs the same whatever the dimension, and it is the same at every call with the same step and
point.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.partitions import Partition
from seedbus.models.streams import digest, private_key
from seedbus.models.task import Fill, Problem, Task, Vector, check_split, refuse_criterion, refuse_partition


class Null(Task, frozen=True):
    """Nothing is learned: what a run then costs is messages, directions and replay."""

    name: Literal["null"] = "null"
    dimension: int = Field(10, ge=1, description="d, the number of coordinates")
    losses: Literal["zero", "keyed"] = Field(
        "zero",
        description="always 0, or the first coordinate times a weight in [−1, 1) keyed by seed, client, round and step",
    )

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Raises `DataError` for any partition but iid: there is no data to divide."""
        refuse_partition(self.name, partition)
        return NullProblem(self, seed=seed)


class NullProblem:
    """See `task.Problem`; for one thread."""

    def __init__(self, task: Null, *, seed: int) -> None:
        self.task, self.seed = task, seed
        self.dimension = task.dimension
        self.point: Vector = np.zeros(self.dimension, dtype=np.float32)

    def x0(self) -> NDArray[np.float32]:
        """Zeros, whatever the seed."""
        return np.zeros(self.dimension, dtype=np.float32)

    def samples(self, client: int) -> int:
        """One: clients weigh alike."""
        return 1

    def objective(self, client: int, round: int) -> NullObjective:
        """The client's loss in that round; it reads this problem's one point."""
        return NullObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """{"loss": 0.0}."""
        check_split(split)
        return {"loss": 0.0}

    def state_dict(self, x: Vector) -> dict[str, Vector]:
        """{"x": a copy of x}."""
        return {"x": x.copy()}


class NullObjective:
    """Zero, or the point's first coordinate times a weight of the step."""

    def __init__(self, problem: NullProblem, client: int, round: int) -> None:
        self.point: Vector = problem.point
        self._key = (problem.seed, client, round)
        self._is_zero = problem.task.losses == "zero"
        self._at: int | None = None
        self._known = 0.0

    samples = 1
    steps_an_epoch = 1

    @property
    def key(self) -> int:
        return private_key(*self._key)

    def loss(self, step: int) -> float:
        """0.0, or w·point[0]."""
        return self._weight(step) * float(self.point[0])

    def loss_at(self, step: int, fill: Fill) -> float:
        """The same where `fill` says: all there is, is one layer."""
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        """w in the first coordinate."""
        refuse_criterion(criterion)
        found = np.zeros_like(self.point)
        found[0] = self._weight(step)
        return found

    def _weight(self, step: int) -> float:
        if not self._is_zero and step != self._at:
            self._known = int.from_bytes(digest("null", *self._key, step, size=8), "little") / 2**63 - 1
            self._at = step
        return self._known
