"""Quadratics with a known optimum: f_i(x) = ½ Σ_j a_j (x_j − c_ij)² for client i, F = the mean over clients.

The a_j run geometrically from 1/condition to 1, so F is 1-smooth. Client centres are c_i = c + heterogeneity·s_i, with
c in [−1, 1)^d and s_i of zero mean and unit variance in every coordinate; F's optimum is their mean. With `noise`, the
loss of a step is f_i(x) + noise·⟨ξ, x − c_i⟩, ξ keyed by (seed, client, round, step), of zero mean and unit variance: a
stochastic gradient with that standard deviation in every coordinate.

The invariant: losses are summed in float64 whatever the point's type, so with a float64 point they test the theory.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from seedbus.models.partitions import Partition
from seedbus.models.streams import private_key, stream
from seedbus.models.task import Fill, Problem, Task, Vector, check_split, refuse_criterion, refuse_partition


class Quadratic(Task, frozen=True):
    """A quadratic for each client: known optimum, known smoothness, no data and no torch."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gap")

    name: Literal["quadratic"] = "quadratic"
    dimension: int = Field(20, ge=1, description="d, the number of coordinates")
    condition: float = Field(10.0, ge=1, le=1e12, description="largest curvature over the smallest; the largest is 1")
    heterogeneity: float = Field(1.0, ge=0, le=1e6, description="standard deviation of client optima, a coordinate")
    noise: float = Field(0.0, ge=0, le=1e6, description="standard deviation of stochastic gradients, a coordinate")

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Raises `DataError` for any partition but iid: `heterogeneity` is what makes clients differ here."""
        refuse_partition(self.name, partition)
        return QuadraticProblem(self, seed=seed, clients=clients)


class QuadraticProblem:
    """See `task.Problem`; for one thread.

    dtype: of the point and of x₀; float32 as every run, float64 for the theory tests.
    """

    def __init__(self, task: Quadratic, *, seed: int, clients: int, dtype: DTypeLike = np.float32) -> None:
        self.task, self.seed, self.clients = task, seed, clients
        self.dimension = task.dimension
        self.point: Vector = np.zeros(self.dimension, dtype=dtype)
        self.curvature = np.geomspace(1 / task.condition, 1.0, self.dimension)  # a, float64 [d]
        self._center = _uniform(stream("center", task.name, seed), self.dimension)

    def x0(self) -> Vector:
        """Uniform in [−1, 1), drawn in float32 whatever the dtype."""
        drawn = stream("x0", self.task.name, self.seed).random(self.dimension, dtype=np.float32)
        return (drawn * np.float32(2) - np.float32(1)).astype(self.point.dtype)

    def samples(self, client: int) -> int:
        """One: clients weigh alike."""
        return 1

    def center(self, client: int) -> NDArray[np.float64]:
        """c_i, where the client's own loss is 0, float64 [d]."""
        shift = _uniform(stream("center", self.task.name, self.seed, client), self.dimension)
        return self._center + self.task.heterogeneity * math.sqrt(3) * shift

    @cached_property
    def optimum(self) -> NDArray[np.float64]:
        """x*, the minimiser of F, float64 [d]."""
        return self._moments[0]

    @cached_property
    def least_loss(self) -> float:
        """F(x*): what heterogeneity leaves over."""
        return float(0.5 * np.sum(self.curvature * self._moments[1]))

    def objective(self, client: int, round: int) -> QuadraticObjective:
        """The client's loss in that round; it reads this problem's one point."""
        return QuadraticObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """{"loss": F(x), "gap": F(x) − F(x*)}, without noise and the same on every split."""
        check_split(split)
        gap = float(0.5 * np.sum(self.curvature * (x - self.optimum) ** 2))
        return {"loss": self.least_loss + gap, "gap": gap}

    def state_dict(self, x: Vector) -> dict[str, Vector]:
        """{"x": a copy of x}."""
        return {"x": x.copy()}

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the centres over the clients, one client at a time (Welford 1962)."""
        mean, squares = np.zeros(self.dimension), np.zeros(self.dimension)
        for client in range(self.clients):
            center = self.center(client)
            apart = center - mean
            mean += apart / (client + 1)
            squares += apart * (center - mean)
        return mean, squares / self.clients


class QuadraticObjective:
    """f_i at the problem's point; `point` may be replaced by an array of another type, float64 for instance."""

    def __init__(self, problem: QuadraticProblem, client: int, round: int) -> None:
        self.point: Vector = problem.point
        self._problem, self._key = problem, (client, round)
        self._center = problem.center(client)
        self._at: int | None = None

    def loss(self, step: int) -> float:
        """f_i(point), and the step's noise; summed in float64."""
        apart = self.point - self._center
        loss = 0.5 * np.sum(self._problem.curvature * apart**2)
        if self._problem.task.noise:
            loss += self._problem.task.noise * np.sum(self.noise(step) * apart)
        return float(loss)

    def loss_at(self, step: int, fill: Fill) -> float:
        """The same where `fill` says: all there is, is one layer."""
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        """∇f_i(point), and the step's noise, in the point's own type."""
        refuse_criterion(criterion)
        found = self._problem.curvature * (self.point - self._center)
        if self._problem.task.noise:
            found = found + self._problem.task.noise * self.noise(step)
        return found.astype(self.point.dtype)

    samples = 1
    steps_an_epoch = 1

    @property
    def key(self) -> int:
        return private_key(self._problem.seed, *self._key)

    def noise(self, step: int) -> NDArray[np.float64]:
        """ξ, float64 [d], drawn once a step."""
        if step != self._at:
            name, seed = self._problem.task.name, self._problem.seed
            rng = stream("noise", name, seed, *self._key, step)
            self._xi = math.sqrt(3) * _uniform(rng, self._problem.dimension)
            self._at = step
        return self._xi


def _uniform(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Uniform in [−1, 1): variance ⅓, and exact on every processor, where a normal's tails are not."""
    return 2 * rng.random(count) - 1
