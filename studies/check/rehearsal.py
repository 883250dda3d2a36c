"""An algorithm's rounds without a bus and without a data set, in which the same clients take part every time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.contract import Replica, ReportRefused, Vector, local
from seedbus.algorithms.directions import reference
from seedbus.studies.check.promises import seed_of
from seedbus.vector import inner

DIMENSION = 1_003
"""Odd, so that the end of a vector, which does not fill a kernel's step, is always tested."""
ROUNDS = 7


class Quadratic:
    """One client's loss in one round, ½ mean_j a_j (x_j − c_j)²; every mini-batch has its own c.

    Args:
        dimension: d.
        client: the client.
        round: the round.
        dtype: of the point.
        grain: losses are multiples of it, if it is not 0; with a coarse grain no mean of gradient scalars is rounded.

    Attributes:
        point: x, [d].
        evaluations: how many forward passes have been made; a gradient counts as 3.
    """

    samples, steps_an_epoch = 5, 2

    def __init__(self, dimension: int, client: int, round: int, dtype: Any = np.float32, grain: float = 0.0) -> None:
        self.point: Vector = np.full(dimension, np.nan, dtype)
        self.evaluations = 0
        self._indices = np.arange(dimension)
        self._batch = 10 * client + 3 * round
        self._grain = grain
        self._curvature = 1.5 + np.sin(self._indices)
        self._centres: dict[int, Vector] = {}

    @property
    def key(self) -> int:
        return 2**63 + self._batch

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        if criterion is not None:
            raise TypeError("a quadratic has no outputs")
        self.evaluations += 3  # one forward pass, and a backward pass that costs two
        gradient: Vector = self._curvature * self._difference(step) / self.point.size
        return gradient.astype(self.point.dtype)

    @cached_property
    def tangent(self) -> Vector:
        return np.zeros_like(self.point)

    def slope(self, step: int) -> float:
        return inner(self.gradient(step), self.tangent)  # which counts as 3 as well

    def loss(self, step: int) -> float:
        self.evaluations += 1
        difference = self._difference(step)
        loss = float(self._curvature @ (difference * difference)) / (2 * difference.size)
        return round(loss / self._grain) * self._grain if self._grain else loss

    def _difference(self, step: int) -> Vector:
        if step not in self._centres:
            self._centres[step] = np.cos(self._indices + self._batch + step)
        difference: Vector = self.point - self._centres[step]
        return difference


class Classifier(Quadratic):
    """The loss of a network with three classes and `DIMENSION` parameters, for methods that need its outputs."""

    def __init__(self, dimension: int, client: int, round: int) -> None:
        super().__init__(dimension, client, round)
        from torch import nn

        from seedbus.models.parameters.flat import FlatModule

        self._flat = FlatModule(nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Linear(100, 3)))
        if self._flat.point.size != dimension:
            raise ValueError(f"the classifier has {self._flat.point.size} parameters, not {dimension}")
        self.point = self._flat.point

    def loss(self, step: int) -> float:
        from torch.nn.functional import cross_entropy

        self.evaluations += 1
        inputs, labels = self._drawn(step)
        return float(cross_entropy(self._flat.module(inputs), labels))

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        from torch.nn.functional import cross_entropy

        from seedbus.models.parameters.gradients import backward, outputs

        self.evaluations += 3
        inputs, labels = self._drawn(step)
        if criterion is None:
            return backward(self._flat, [lambda: cross_entropy(self._flat.module(inputs), labels)])
        return backward(self._flat, [lambda: criterion(outputs(self._flat, inputs, labels))])

    def outputs(self, step: int, at: Vector) -> Any:
        from seedbus.models.parameters.gradients import Outputs, through

        self.evaluations += 1
        inputs, labels = self._drawn(step)
        *hidden, logits = through(self._flat, inputs, -1, at)
        return Outputs(inputs, logits.detach(), tuple(each.detach() for each in hidden), labels)

    def through(self, hidden: Any, number: int, at: Vector) -> Any:
        from seedbus.models.parameters.gradients import through

        return through(self._flat, hidden, number, at)[-1]

    def counts(self) -> NDArray[np.int64]:
        return np.array([3, 2, 1])

    def _drawn(self, step: int) -> tuple[Any, Any]:
        import torch

        from seedbus.models.device import moved

        labels = np.arange(5) % 3
        inputs = np.cos(np.arange(30.0).reshape(5, 6) * (self._batch + step + 1)) + labels[:, None]
        return moved((torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels)), self._flat.device)


def in_host_memory(vector: Vector) -> Vector:
    return vector


Place = Callable[[Vector], Vector]
"""Moves a vector into the memory of a device. A network is built on the device of this process (`models.device`)."""


def objective(
    algorithm: Any, client: int, round: int, dimension: int = DIMENSION, place: Place = in_host_memory
) -> Quadratic:
    """Return a client's objective that the algorithm can work with."""
    if algorithm.facts.needs_outputs:
        return Classifier(dimension, client, round)
    quadratic = Quadratic(dimension, client, round)
    quadratic.point = place(quadratic.point)
    return quadratic


def of_dimension(algorithm: Any, dimension: int) -> Any:
    """Return an algorithm for so many coordinates; and for the shapes with rows of 7, and the rest."""
    return algorithm.sized(dimension, [(dimension // 7, 7), (dimension % 7,)])


def x0(dimension: int = DIMENSION, dtype: Any = np.float32) -> Vector:
    """Return the initial point of every rehearsal, a direction divided by ten, [dimension]."""
    start = np.empty(dimension, np.float32)
    reference("gaussian").fill(start, seed=2**63 + 1, step=0, perturbation=0)
    return (start * np.float32(0.1)).astype(dtype)


class Rehearsal(NamedTuple):
    """A run in which the same clients take part in every round.

    Attributes:
        algorithm: with its size.
        plans: one a round.
        reports: one a round, by client.
        commits: one a round.
        states: the server's state before each commit.
        replica: of a client that folded each commit at once.
        place: moves vectors to where replicas and points lie.
    """

    algorithm: Any
    plans: list[Any]
    reports: list[dict[int, Any]]
    commits: list[Any]
    states: list[Any]
    replica: Replica
    place: Place = in_host_memory

    def newcomer(self) -> Replica:
        """Return a replica at version 0."""
        replica: Replica = self.algorithm.replica(x0(self.replica.dimension)).placed(self.place)
        return replica

    def objective(self, client: int, round: int) -> Quadratic:
        """Return a client's objective in a round."""
        return objective(self.algorithm, client, round, self.replica.dimension, self.place)


def rehearse(
    algorithm: Any,
    rounds: int = ROUNDS,
    *,
    clients: int = 3,
    dimension: int = DIMENSION,
    place: Place = in_host_memory,
) -> Rehearsal:
    """Run an algorithm's rounds without a bus, with so many clients or as many as it takes.

    Args:
        algorithm: the algorithm.
        rounds: how many rounds.
        clients: how many clients.
        dimension: d.
        place: moves vectors to where replicas and points are to lie.
    """
    clients = min(clients, algorithm.facts.most_clients or clients)
    algorithm = of_dimension(algorithm, dimension)
    replica, memory = algorithm.replica(x0(dimension)).placed(place), dict.fromkeys(range(clients))
    state = algorithm.first_state(lambda: x0(dimension))
    plans, reports, commits = [], [], []
    states: list[Any] = []
    for round in range(rounds):
        plan = algorithm.plan(round, replica.version, seed_of(round), state)
        answers = {}
        for client in range(clients):
            own = objective(algorithm, client, round, dimension, place)
            answers[client], memory[client] = local(algorithm, replica, memory[client], plan, own)
            try:
                algorithm.check(plan, answers[client])
            except ReportRefused as refused:
                raise AssertionError(f"`check` refuses the report that `local` returns: {refused}") from None
        states.append(state)
        commit, state = algorithm.aggregate(state, plan, answers)
        algorithm.apply(replica, [commit])
        plans.append(plan)
        reports.append(answers)
        commits.append(commit)
    return Rehearsal(algorithm, plans, reports, commits, states, replica, place)
