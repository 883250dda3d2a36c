"""Where clients stand in their local steps, and their losses around there. Two ways, to the same bits:

copy    x + μz is written to the objectives' point, a second vector of length d, and local steps go on in a third.
        Clients at one x share the point: each is made once, and every client's loss is taken there.
light   nothing is as long as x. When a forward pass reaches a layer, its x_k + μz is made of the replica, which
        nobody writes to, and of the client's own earlier scalars, block by block: the memory of one layer more, and
        all directions of the k steps behind again at each of the step's losses. The first step costs no more than
        with copy, but clients share nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Protocol, Self

import numpy as np

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import ALIGNMENT, Directions, for_blocks
from seedbus.algorithms.objective import Layered, Objective
from seedbus.algorithms.scalar_only.block import Block, coefficients_of
from seedbus.algorithms.scalar_only.differences import Losses, projections
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, Scalars
from seedbus.algorithms.vector import Vector


class Steps(Protocol):
    """What of an algorithm a local step is made of; `ScalarOnly` says what each does."""

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None: ...
    def step(self, block: Block, learning_rate: float) -> None: ...


class PerturbedModel(ABC):
    """Before the first local step. Who goes on from there does so on a place of its `own`."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        self._steps, self._directions, self._replica, self._plan = steps, directions, replica, plan
        self._k = 0

    @abstractmethod
    def own(self) -> Self:
        """The same place, for one client to go on from."""

    @abstractmethod
    def losses(self, objectives: Sequence[Objective]) -> Losses:
        """Of the step at hand, on its own mini-batches."""

    def projected(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        """Each client's gradient along the directions of the step at hand."""
        raise TypeError(f"{type(self).__name__} makes no gradients")

    @abstractmethod
    def go_on(self, scalars: Scalars) -> None:
        """One local step, by what was measured, float32 [P]."""

    def _move(self, block: Block, sqrt_hessian: Vector | None, k: int, scalars: Scalars) -> None:
        """x ← x − η·Δ, and m, in a block; sqrt_hessian: what divides the directions there."""
        where = {"seed": self._plan.seed, "step": k, "start": block.start}
        coefficients = coefficients_of(scalars, 1.0, block.delta.dtype.type)
        self._directions.accumulate(block.delta, coefficients, divisor=sqrt_hessian, **where)
        self._steps.step(block, self._plan.learning_rate)

    def _perturb(self, out: Vector, x: Vector, sqrt_hessian: Vector | None, p: int, scale: float, start: int) -> None:
        where = {"seed": self._plan.seed, "step": self._k, "perturbation": p, "start": start}
        self._directions.perturb(out, x, scale, divisor=sqrt_hessian, **where)


class Copying(PerturbedModel):
    """See `copy` above."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        super().__init__(steps, directions, replica, plan)
        self._root = steps.divisor(replica.fields, np.empty_like(replica.x))
        self._fields = replica.fields

    def own(self) -> Self:
        return copy(self)  # √H is everybody's

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        point, x, sqrt_hessian = objectives[0].point, self._fields["x"], self._root

        def losses(p: int, scale: float) -> list[float]:
            def shift(span: slice) -> None:
                self._perturb(
                    point[span], x[span], None if sqrt_hessian is None else sqrt_hessian[span], p, scale, span.start
                )

            if scale:
                for_blocks(x.size, shift)
            else:
                np.copyto(point, x)
            return [objective.loss(self._k) for objective in objectives]

        return losses

    def projected(self, objectives: Sequence[Objective], perturbations: int) -> list[tuple[float, ...]]:
        sqrt_hessian, where = self._root, {"seed": self._plan.seed, "step": self._k}

        def write(z: Vector, perturbation: int, span: slice) -> None:
            self._directions.fill(z, perturbation=perturbation, start=span.start, **where)
            if sqrt_hessian is not None:
                z /= sqrt_hessian[span]

        found = []
        for objective in objectives:
            np.copyto(objective.point, self._fields["x"])
            found.append(projections(_gradient(objective)(self._k), write, perturbations))
        return found

    def go_on(self, scalars: Scalars) -> None:
        fields = self._replica.copy().fields if self._k == 0 else self._fields
        sqrt_hessian = self._root

        def advance(span: slice) -> None:
            block = Block(fields, span)
            self._move(block, None if sqrt_hessian is None else sqrt_hessian[span], self._k, scalars)

        with np.errstate(over="ignore", invalid="ignore"):
            for_blocks(fields["x"].size, advance)
        self._fields = fields
        self._k += 1


class Layerwise(PerturbedModel):
    """See `light` above."""

    def __init__(self, steps: Steps, directions: Directions, replica: Replica, plan: ScalarPlan) -> None:
        super().__init__(steps, directions, replica, plan)
        self._behind: list[Scalars] = []

    def own(self) -> Self:
        return type(self)(self._steps, self._directions, self._replica, self._plan)

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        def losses(p: int, scale: float) -> list[float]:
            fill = self._fill(p, scale)
            return [_layered(objective)(self._k, fill) for objective in objectives]

        return losses

    def go_on(self, scalars: Scalars) -> None:
        self._behind.append(scalars)
        self._k += 1

    def _fill(self, p: int, scale: float) -> Callable[[slice, Vector], None]:
        """Writes x_k + scale · z(p) where it is asked for."""

        def fill(span: slice, out: Vector) -> None:
            first = span.start - span.start % ALIGNMENT  # a layer begins anywhere, a direction's block does not

            def make(part: slice) -> None:
                here = slice(first + part.start, first + part.stop)
                begin = max(here.start, span.start)
                made = self._made(here, p, scale)
                out[begin - span.start : here.stop - span.start] = made[begin - here.start :]

            for_blocks(span.stop - first, make)

        return fill

    def _made(self, here: slice, p: int, scale: float) -> Vector:
        """x_k + scale · z(p) in a block that begins at a multiple of `ALIGNMENT`."""
        block = Block(self._replica.fields, here)
        sqrt_hessian = self._steps.divisor(block.fields, block.sqrt_hessian)
        if self._behind:
            block.fields = {name: field.copy() for name, field in block.fields.items()}
        with np.errstate(over="ignore", invalid="ignore"):
            for k, scalars in enumerate(self._behind):
                self._move(block, sqrt_hessian, k, scalars)
        x = block.fields["x"]
        if scale:
            self._perturb(block.spare, x, sqrt_hessian, p, scale, here.start)
        return block.spare if scale else x


WAYS: Mapping[str, type[PerturbedModel]] = {"copy": Copying, "light": Layerwise}


def _gradient(objective: object) -> Callable[[int], Vector]:
    found: Callable[[int], Vector] | None = getattr(objective, "gradient", None)
    if found is None:
        raise TypeError(f"{type(objective).__name__} has no gradient, which algorithm.estimator: projection needs")
    return found


def _layered(objective: object) -> Callable[[int, Callable[[slice, Vector], None]], float]:
    if isinstance(objective, Layered):
        return objective.loss_at
    raise TypeError(f"{type(objective).__name__} has no loss_at, which algorithm.revert: light needs; copy does not")
