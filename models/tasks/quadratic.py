"""Quadratics with a known optimum: f_i(x) = ½ Σ_j a_j (x_j − c_ij)² for client i, F = the mean over clients.

The a_j form a geometric sequence from 1/condition to 1, so F is 1-smooth. Client centres are
c_i = c + heterogeneity·s_i, with c in [−1, 1)^d and s_i of zero mean and unit variance in every coordinate; F's optimum
is their mean. With `noise`, the loss of a step is f_i(x) + noise·⟨ξ, x − c_i⟩, with ξ keyed by (seed, client, round,
step), of zero mean and unit variance: a stochastic gradient with standard deviation `noise` in every coordinate.

The invariant: losses are summed in float64 for a point of any type, so with a float64 point they can test theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from seedbus.models.generators import brief, client_key, generator
from seedbus.models.partition import Partition
from seedbus.models.task import Fill, Problem, Task, Vector, check_split, refuse_criterion


class Quadratic(Task, frozen=True):
    """One quadratic for each client: known optimum and smoothness, without data or torch."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gap")
    has_layers: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    has_slopes: ClassVar[bool] = False
    uses_device: ClassVar[bool] = False

    name: Literal["quadratic"] = "quadratic"
    dimension: int = Field(20, ge=1, description="d, the number of coordinates")
    condition: float = Field(10.0, ge=1, le=1e12, description="largest curvature over the smallest; the largest is 1")
    heterogeneity: float = Field(1.0, ge=0, le=1e6, description="standard deviation of client optima, each coordinate")
    noise: float = Field(0.0, ge=0, le=1e6, description="standard deviation of stochastic gradients, each coordinate")

    @property
    def may_hold_out(self) -> bool:
        """See `Task`."""
        return False

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Return the problem, of any partition: `heterogeneity` makes clients differ."""
        return QuadraticProblem(self, seed=seed, clients=clients)


class QuadraticProblem:
    """The problem of a quadratic task; see `task.Problem`.

    Attributes:
        task: the task.
        seed: the run's seed.
        clients: number of clients.
        dimension: number of coordinates, d.
        point: the point of the next loss, [d]; float32 in runs, float64 in theory tests.
        curvature: a, float64 [d].
    """

    def __init__(self, task: Quadratic, *, seed: int, clients: int, dtype: DTypeLike = np.float32) -> None:
        self.task = task
        self.seed = seed
        self.clients = clients
        self.dimension = task.dimension
        self.point: Vector = np.zeros(self.dimension, dtype=dtype)
        self.curvature = _geometric(task.condition, self.dimension)
        self._center = _uniform(generator("center", task.name, seed), self.dimension)

    def x0(self) -> Vector:
        """Return a point uniform in [−1, 1)^d, drawn in float32 for any type of the point."""
        drawn = generator("x0", self.task.name, self.seed).random(self.dimension, dtype=np.float32)
        return (drawn * np.float32(2) - np.float32(1)).astype(self.point.dtype)

    def samples(self, client: int) -> int:
        """Return 1: clients weigh equally."""
        return 1

    def center(self, client: int) -> NDArray[np.float64]:
        """Return c_i, at which the client's own loss is 0, float64 [d]."""
        shift = _uniform(brief("center", self.task.name, self.seed, client), self.dimension)
        return self._center + self.task.heterogeneity * math.sqrt(3) * shift

    @cached_property
    def optimum(self) -> NDArray[np.float64]:
        """The minimiser of F, x*, float64 [d]."""
        return self._moments[0]

    @cached_property
    def least_loss(self) -> float:
        """The minimum F(x*), which is positive for heterogeneous clients."""
        return float(0.5 * np.sum(self.curvature * self._moments[1]))

    def objective(self, client: int, round: int) -> QuadraticObjective:
        """Return a client's loss in a round; it reads this problem's point."""
        return QuadraticObjective(self, client, round)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return {"loss": F(x), "gap": F(x) − F(x*)}, without noise and the same for every split."""
        check_split(split)
        gap = float(0.5 * np.sum(self.curvature * (x - self.optimum) ** 2))
        return {"loss": self.least_loss + gap, "gap": gap}

    @contextmanager
    def derivatives(self, x: Vector, count: int) -> Iterator[QuadraticDerivatives]:
        """Yield the derivatives of F at x, which has no samples: `count` changes nothing."""
        yield QuadraticDerivatives(self.curvature, x - self.optimum)

    def state_dict(self, x: Vector) -> dict[str, Vector]:
        """Return {"x": a copy of x}."""
        return {"x": x.copy()}

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the clients' centres, float64 [d], computed one client at a time (Welford 1962)."""
        mean, squares = np.zeros(self.dimension), np.zeros(self.dimension)
        for client in range(self.clients):
            center = self.center(client)
            deviation = center - mean
            mean += deviation / (client + 1)
            squares += deviation * (center - mean)
        return mean, squares / self.clients


class QuadraticDerivatives(NamedTuple):
    """The derivatives of F; see `task.Derivatives`.

    Attributes:
        curvature: a, float64 [d].
        offset: x − x*, float64 [d].
    """

    curvature: NDArray[np.float64]
    offset: NDArray[np.float64]

    def gradient(self) -> NDArray[np.float64]:
        return self.curvature * self.offset

    def times(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.curvature * vector

    def block(self, places: NDArray[np.int64], advance: Callable[[float], None]) -> NDArray[np.float64]:
        advance(places.size)
        return np.diag(self.curvature[places])


class QuadraticObjective:
    """The loss f_i at the problem's point; `point` may be replaced by an array of another type, such as float64."""

    def __init__(self, problem: QuadraticProblem, client: int, round: int) -> None:
        self.point: Vector = problem.point
        self._problem = problem
        self._key = (client, round)
        self._center = problem.center(client)
        self._cached_step: int | None = None

    def loss(self, step: int) -> float:
        """Return f_i(point) plus the step's noise, summed in float64."""
        offset = self.point - self._center
        loss = 0.5 * np.sum(self._problem.curvature * offset**2)
        if self._problem.task.noise:
            loss += self._problem.task.noise * np.sum(self.noise(step) * offset)
        return float(loss)

    def loss_at(self, step: int, fill: Fill) -> float:
        """Return the loss at the vector that `fill` writes; there is only one layer."""
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        """Return ∇f_i(point) plus the step's noise, [d], in the point's type."""
        refuse_criterion(criterion)
        gradient = self._problem.curvature * (self.point - self._center)
        if self._problem.task.noise:
            gradient = gradient + self._problem.task.noise * self.noise(step)
        return gradient.astype(self.point.dtype)

    samples = 1
    steps_an_epoch = 1

    @property
    def key(self) -> int:
        return client_key(self._problem.seed, *self._key)

    def noise(self, step: int) -> NDArray[np.float64]:
        """Return ξ of a step, float64 [d]."""
        if step != self._cached_step:
            rng = generator("noise", self._problem.task.name, self._problem.seed, *self._key, step)
            self._xi = math.sqrt(3) * _uniform(rng, self._problem.dimension)
            self._cached_step = step
        return self._xi


def _geometric(condition: float, size: int) -> NDArray[np.float64]:
    """Return a geometric sequence from 1/condition to 1, float64 [size], with the same bits on every processor.

    Each is a product of powers condition^(−2^b/(size − 1)), which Decimal computes. The last bits of NumPy's powers,
    as in `np.geomspace`, depend on the processor.
    """
    sequence, after = np.ones(size), np.arange(size)[::-1]  # how many terms come after each
    with localcontext(Context(prec=50)):  # and nothing of the context of the program
        for b in range((size - 1).bit_length()):
            power = float(Decimal(condition) ** (Decimal(-(1 << b)) / (size - 1)))
            np.multiply(sequence, power, out=sequence, where=(after >> b & 1).astype(bool))
    sequence[0] = 1 / condition
    return sequence


def _uniform(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw uniformly in [−1, 1), variance ⅓; unlike a normal draw it has the same bits on every processor."""
    return 2 * rng.random(count) - 1
