"""A client's loss as algorithms see it: its values, and where a task has them its gradients and its network's outputs.

`models` implements these protocols. This module imports no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seedbus.vector import Vector


class Objective(Protocol):
    """One client's loss in one round."""

    @property
    def point(self) -> Vector:
        """The point at which the next loss is taken, [d]. The caller writes x + μz into it, so nothing is copied."""
        ...

    def loss(self, step: int) -> float:
        """Return f(point; ξ), the mean loss over the mini-batch of local step `step`.

        Every call for one step uses the same mini-batch.
        """
        ...


class Deferred(Protocol):
    """An objective whose losses stay unread until all that a local step needs are read in one transfer."""

    def points(self) -> Sequence[Vector]:
        """Return the points of one call of `measure`, [d] each; the caller writes into them."""
        ...

    def measure(self, step: int, count: int) -> Any:
        """Return the losses at the first `count` points on the mini-batch of local step `step`, not yet read."""
        ...

    def measure_at(self, step: int, fill: Callable[[slice, Vector], None]) -> Any:
        """Return what `Layered.loss_at` returns, not yet read."""
        ...

    def read(self, measured: Sequence[Any]) -> list[float]:
        """Return measured losses as numbers, in their order."""
        ...


class Compared(Protocol):
    """An objective that is told the losses of each local step, and counts the steps where they do not differ.

    It is known by its `compare`, for a check of a protocol would take longer than all else here.

    Attributes:
        steps: number of local steps.
        equal: how many of them had losses that its arithmetic can hardly tell apart.
    """

    steps: int
    equal: int

    def compare(self, losses: Sequence[float]) -> None:
        """Take the losses of one local step, at all of its points."""
        ...


@runtime_checkable
class Layered(Protocol):
    """An objective that needs no point: it requests coordinates when its forward pass reaches them."""

    def loss_at(self, step: int, fill: Callable[[slice, Vector], None]) -> float:
        """Return f(y; ξ), the mean loss over the mini-batch of local step `step`.

        Args:
            step: the local step.
            fill: fill(span, out) writes y[span] to out. A span may begin at any coordinate, and a layer that is
                reached again requests its coordinates again.
        """
        ...


class Sloped(Objective, Protocol):
    """An objective with derivatives along single directions, by forward-mode automatic differentiation."""

    @property
    def tangent(self) -> Vector:
        """The direction of the next derivative, [d]; the caller writes into it, as into `point`."""
        ...

    def slope(self, step: int) -> Any:
        """Return ⟨∇f(point; ξ), tangent⟩ on the mini-batch of local step `step`, not yet read; see `Deferred.read`."""
        ...


class Factor(NamedTuple):
    """The differences of one parameter from its values at x, at n points whose directions are of low rank.

    Attributes:
        left: μU/√r of each point, float32 [n, rows, r]; of a parameter that is no matrix μz, [n, size].
        right: Vᵀ, float32 [r, columns], which all points share; None: the parameter is no matrix.
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32] | None


class Factored(Deferred, Protocol):
    """An objective with losses at several points of low-rank directions in one pass, which forms no point."""

    def measure_factored(self, step: int, factors: Sequence[Factor]) -> Any:
        """Return the losses around the first of `points` on the mini-batch of local step `step`, not yet read.

        Args:
            step: the local step.
            factors: of each parameter, in the order of its coordinates.
        """
        ...


class Immediate:
    """Any objective as a `Deferred` one: each of its losses is a number at once."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def points(self) -> Sequence[Vector]:
        return [self._objective.point]

    def measure(self, step: int, count: int) -> Any:
        return self._objective.loss(step)

    def measure_at(self, step: int, fill: Callable[[slice, Vector], None]) -> Any:
        if isinstance(self._objective, Layered):
            return self._objective.loss_at(step, fill)
        name = type(self._objective).__name__
        raise TypeError(f"{name} has no loss_at, which algorithm.revert: light needs; copy does not")

    def read(self, measured: Sequence[Any]) -> list[float]:
        return list(measured)


def deferred(objective: Objective) -> Deferred:
    """Return an objective as one whose losses are read together."""
    either: Any = objective
    return either if hasattr(either, "measure") else Immediate(objective)


class Outputs(Protocol):
    """A network's outputs for one mini-batch of b samples: torch tensors, with their graph if a gradient is needed."""

    @property
    def logits(self) -> Any:
        """Logits, [b, classes]."""
        ...

    @property
    def hidden(self) -> tuple[Any, ...]:
        """The output of each block of the network but the last, [b, …] each; refused where there is only one."""
        ...

    @property
    def features(self) -> Any:
        """The input of the last block, [b, features]; refused where it is the only one."""
        ...

    @property
    def targets(self) -> Any:
        """What cross-entropy compares the logits with: labels, or with a data set of the user's own others, [b, …]."""
        ...

    @property
    def labels(self) -> Any:
        """Labels, int64 [b]; refused where the targets are others."""
        ...


Criterion = Callable[[Outputs], Any]
"""Computes a loss, a torch scalar, from a network's outputs."""


PASSES = 3
"""Evaluations of f that one gradient costs: one forward pass, and one backward pass that costs as much as two."""
SLOPE_PASSES = 3
"""Those that a derivative along one direction costs: of each product Wy the pass also computes W'y + Wy'."""


class Differentiable(Objective, Protocol):
    """An objective with gradients, for first-order local training."""

    @property
    def samples(self) -> int:
        """The number of the client's training samples."""
        ...

    @property
    def key(self) -> int:
        """64 bits, a function of seed, client and round, that key the client's own random draws."""
        ...

    @property
    def steps_an_epoch(self) -> int:
        """The number of mini-batches in one pass over the client's samples."""
        ...

    def gradient(self, step: int, criterion: Criterion | None = None) -> Vector:
        """Return the gradient at `point`, [d]. The next call overwrites the array.

        Args:
            step: the local step, whose mini-batch is used.
            criterion: the loss to differentiate; None for the task's mean loss.

        Raises:
            TypeError: a criterion is given, but the task has no outputs.
        """
        ...

    def outputs(self, step: int, at: Vector) -> Outputs:
        """Return the network's outputs at another point for the mini-batch of `step`, without a graph."""
        ...

    def through(self, hidden: Any, number: int, at: Vector) -> Any:
        """Return the logits, [b, classes], that the network's later blocks compute from the output of one block.

        Args:
            hidden: the output of that block, [b, …]; the graph of the logits leads back to it.
            number: the number of that block.
            at: the point, [d], from which the later blocks take their parameters.
        """
        ...

    def counts(self) -> NDArray[np.int64]:
        """Return how many of the client's samples belong to each class, [classes]."""
        ...
