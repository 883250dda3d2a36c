"""The model in a client's local steps, and the losses at perturbed points around it. Three ways, two to the same bits:

copy    x + μz is written to the objectives' point, a second vector of length d. Local steps write to a third one.
        Clients at the same x share the point: each perturbed point is computed once, and every client's loss is
        evaluated there.
light   No second vector of length d is needed. When a forward pass reaches a layer, the layer's x_k + μz is computed
        block by block from the replica, which is never written to, and from the client's own earlier scalars. This
        takes the memory of one more layer, and each loss computes all directions of the k earlier steps again. The
        first step costs no more than with copy, but clients share no work.

compensate  x is perturbed and steps are taken in one vector, which drifts by what rounding leaves (`compensation`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, Self

import numpy as np

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import ALIGNMENT, Directions, for_blocks
from seedbus.algorithms.directions.bfloat16 import empty_values
from seedbus.algorithms.objective import Deferred, Objective, Sloped, deferred
from seedbus.algorithms.scalar_only.block import Block, total
from seedbus.algorithms.scalar_only.compensation import DRIFTED, moves
from seedbus.algorithms.scalar_only.differences import Losses, Shift, projections
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, Scalars
from seedbus.vector import Vector


class Steps(Protocol):
    """The parts of an algorithm that a local step uses; see `ScalarOnly`."""

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None: ...
    def coordinates(self, x: Any) -> Vector: ...
    def move(
        self, block: Block, source: Directions, divisor: Vector | None, plan: ScalarPlan, k: int, scalars: Scalars
    ) -> None: ...


class PerturbedModel(ABC):
    """The model after k local steps, at first k = 0. A client takes further steps on a `fork` of its own."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        self._steps = steps
        self._directions = directions
        self._replica = replica
        self._plan = plan
        self._k = 0

    @abstractmethod
    def fork(self) -> Self:
        """Return an independent copy of a model that has taken no step, on which one client takes steps."""

    @abstractmethod
    def losses(self, objectives: Sequence[Objective]) -> Losses:
        """Return a function that computes the objectives' losses around the model, on step k's mini-batches."""

    def project_gradients(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        """Return the projections of each objective's gradient onto the directions of step k."""
        raise TypeError(f"{type(self).__name__} makes no gradients")

    def slopes(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        """Return the derivatives of each objective along the directions of step k, by forward-mode differentiation."""
        raise TypeError(f"{type(self).__name__} makes no derivatives")

    def squared_norms(self, perturbations: int) -> list[float]:
        """Return ‖z(p)‖² for each direction of step k."""
        x, where = self._replica.x, {"seed": self._plan.seed, "step": self._k}

        def along(perturbation: int) -> float:
            def squares(span: slice) -> Vector:
                block = Block(self._replica.fields, span)
                self._directions.fill(block.delta, perturbation=perturbation, start=span.start, **where)
                sqrt_hessian = self._steps.divisor(block.fields, block.sqrt_hessian)
                z = np.asarray(block.delta if sqrt_hessian is None else block.delta / sqrt_hessian, np.float64)
                return z * z

            return total(x, squares)

        return [along(perturbation) for perturbation in range(perturbations)]

    @abstractmethod
    def advance(self, scalars: Scalars) -> None:
        """Take local step k with the gradient scalars that were measured, float32 [P]."""

    def _at_points(
        self,
        objectives: Sequence[Objective],
        ways_to: Callable[[Sequence[Shift]], Sequence[Any]],
        write: Callable[[Any, Any], None],
    ) -> Losses:
        """Return a function that writes each place to the objectives' points, as many at a time as there are.

        Args:
            objectives: each client's.
            ways_to: returns how each place is reached, and maybe a way back.
            write: goes a way, and writes the place to a point; None: to none.
        """
        clients = [deferred(objective) for objective in objectives]
        points = clients[0].points()

        def losses(shifts: Sequence[Shift]) -> list[list[float]]:
            measured: list[list[Any]] = [[] for _ in clients]
            ways = ways_to(shifts)
            for start in range(0, len(shifts), len(points)):
                together = ways[start : min(start + len(points), len(shifts))]
                for point, way in zip(points, together, strict=False):
                    write(point, way)
                for client, own in zip(clients, measured, strict=True):
                    own.append(client.measure(self._k, len(together)))
            for back in ways[len(shifts) :]:
                write(None, back)
            return read(clients[0], measured)

        return losses

    def _perturb(self, out: Vector, x: Vector, sqrt_hessian: Vector | None, p: int, scale: float, start: int) -> None:
        where = {"seed": self._plan.seed, "step": self._k, "perturbation": p, "start": start}
        self._directions.perturb(out, x, scale, divisor=sqrt_hessian, **where)


class Copying(PerturbedModel):
    """`revert: copy`, see above."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        super().__init__(steps, directions, replica, plan)
        self._sqrt_hessian = steps.divisor(replica.fields, empty_values(replica.x))
        self._fields = replica.fields

    def fork(self) -> Self:
        return copy(self)  # forks share √H; the first `advance` copies the fields

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        return self._at_points(objectives, list, self._write)

    def project_gradients(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        results = []
        for objective in objectives:
            self._copy_to(objective.point)
            gradient = gradient_of(objective, "algorithm.estimator: projection")
            results.append(projections(gradient(self._k), self._direct, perturbations))
        return results

    def slopes(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        clients = [sloped(objective) for objective in objectives]
        self._copy_to(clients[0].point)  # clients share it, and the tangent
        tangent = clients[0].tangent
        measured: list[list[Any]] = [[] for _ in clients]
        for p in range(perturbations):
            for_blocks(tangent.size, lambda span, p=p: self._direct(tangent[span], p, span), like=tangent)  # type: ignore[misc]
            for client, own in zip(clients, measured, strict=True):
                own.append(client.slope(self._k))
        found = read(deferred(clients[0]), measured)
        return [tuple(own) for own in found]

    def _direct(self, z: Vector, perturbation: int, span: slice) -> None:
        """Write a span of direction z(p) of step k."""
        where = {"seed": self._plan.seed, "step": self._k}
        self._directions.fill(z, perturbation=perturbation, start=span.start, **where)
        if self._sqrt_hessian is not None:
            z /= self._sqrt_hessian[span]

    def advance(self, scalars: Scalars) -> None:
        fields = self._replica.copy().fields if self._k == 0 else self._fields
        sqrt_hessian = self._sqrt_hessian

        def move(span: slice) -> None:
            block = Block(fields, span)
            divisor = None if sqrt_hessian is None else sqrt_hessian[span]
            self._steps.move(block, self._directions, divisor, self._plan, self._k, scalars)
            block.store()

        for_blocks(fields["x"].size, move, like=fields["x"])
        self._fields = fields
        self._k += 1

    @property
    def point(self) -> Vector:
        """The model's coordinates, [d]; not to be written to."""
        return self._steps.coordinates(self._fields["x"])

    def _coordinates(self, span: slice) -> Vector:
        return self._steps.coordinates(self._fields["x"][span])

    def _write(self, point: Vector, shift: Shift) -> None:
        """Write x + scale · z(p) to a point."""
        sqrt_hessian, (p, scale) = self._sqrt_hessian, shift

        def move(span: slice) -> None:
            divisor = None if sqrt_hessian is None else sqrt_hessian[span]
            self._perturb(point[span], self._coordinates(span), divisor, p, scale, span.start)

        if scale:
            for_blocks(point.size, move, like=point)
        else:
            self._copy_to(point)

    def _copy_to(self, point: Vector) -> None:
        def copy_span(span: slice) -> None:
            np.copyto(point[span], self._coordinates(span))

        for_blocks(point.size, copy_span, like=point)


class Layerwise(PerturbedModel):
    """`revert: light`, see above."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        super().__init__(steps, directions, replica, plan)
        self._earlier: list[Scalars] = []  # of the steps taken, float32 [P] each

    def fork(self) -> Self:
        return type(self)(self._steps, self._directions, self._replica, self._plan)

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        clients = [deferred(objective) for objective in objectives]

        def losses(shifts: Sequence[Shift]) -> list[list[float]]:
            measured: list[list[Any]] = [[] for _ in clients]
            for p, scale in shifts:
                fill = self._fill(p, scale)
                for client, own in zip(clients, measured, strict=True):
                    own.append(client.measure_at(self._k, fill))
            return read(clients[0], measured)

        return losses

    def advance(self, scalars: Scalars) -> None:
        self._earlier.append(scalars)
        self._k += 1

    def _fill(self, p: int, scale: float) -> Callable[[slice, Vector], None]:
        """Return a function that writes any span of x_k + scale · z(p)."""

        def fill(span: slice, out: Vector) -> None:
            first = span.start - span.start % ALIGNMENT  # unlike a block of directions, a layer may begin anywhere

            def write(part: slice) -> None:
                block = slice(first + part.start, first + part.stop)
                begin = max(block.start, span.start)
                values = self._perturbed(block, p, scale)
                out[begin - span.start : block.stop - span.start] = values[begin - block.start :]

            for_blocks(span.stop - first, write, like=out)

        return fill

    def _perturbed(self, span: slice, p: int, scale: float) -> Vector:
        """Return (x_k + scale · z(p))[span], for a span that begins at a multiple of `ALIGNMENT`."""
        block = Block(self._replica.fields, span)
        sqrt_hessian = self._steps.divisor(block.fields, block.sqrt_hessian)
        if self._earlier:
            block.fields = {name: field.copy() for name, field in block.fields.items()}
        for k, scalars in enumerate(self._earlier):
            self._steps.move(block, self._directions, sqrt_hessian, self._plan, k, scalars)
        x = self._steps.coordinates(block.fields["x"])
        if not scale:
            return x
        out = np.empty_like(x)
        self._perturb(out, x, sqrt_hessian, p, scale, span.start)
        return out


class InPlace(PerturbedModel):
    """`revert: compensate`, see above."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        super().__init__(steps, directions, replica, plan)
        self._x: Vector = replica.fields[DRIFTED].copy()  # other followers hold the same replica

    def fork(self) -> Self:
        own = copy(self)
        own._x = self._x.copy()
        return own

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        return self._at_points(objectives, moves, self._write)

    def advance(self, scalars: Scalars) -> None:
        def move(span: slice) -> None:
            self._steps.move(Block({"x": self._x}, span), self._directions, None, self._plan, self._k, scalars)

        for_blocks(self._x.size, move, like=self._x)
        self._k += 1

    def _write(self, point: Vector | None, way: Sequence[Shift]) -> None:
        """Add moves along directions of step k to x, and copy it to a point."""

        def go(span: slice) -> None:
            for p, amount in way:
                self._perturb(self._x[span], self._x[span], None, p, amount, span.start)

        for_blocks(self._x.size, go, like=self._x)
        if point is not None:
            np.copyto(point, self._x)


PERTURBED_MODELS: Mapping[str, type[PerturbedModel]] = {"copy": Copying, "light": Layerwise, "compensate": InPlace}
"""Value of `revert` → class."""


def gradient_of(objective: object, needed_by: str) -> Callable[[int], Vector]:
    """Return the gradient of an objective by local step; needed_by: what needs it. Raises `TypeError` without one."""
    gradient: Callable[[int], Vector] = having("gradient", objective, needed_by).gradient
    return gradient


def sloped(objective: Objective) -> Sloped:
    """Return an objective as one with derivatives along directions. Raises `TypeError` if it has none."""
    either: Sloped = having("slope", objective, "algorithm.estimator: forward-mode")
    return either


def having(method: str, objective: object, needed_by: str) -> Any:
    """Return an objective that has a method. Raises `TypeError` if it has not; needed_by: what needs it, in words."""
    if not hasattr(objective, method):
        raise TypeError(f"{type(objective).__name__} has no {method}, which {needed_by} needs")
    return objective


def read(reader: Deferred, measured: Sequence[Sequence[Any]]) -> list[list[float]]:
    """Return the losses of each client, which one of them reads in one transfer."""
    losses = reader.read([each for own in measured for each in own])
    count = len(losses) // len(measured)
    return [losses[start : start + count] for start in range(0, len(losses), count)]
