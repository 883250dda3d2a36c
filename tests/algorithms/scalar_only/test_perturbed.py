"""The points at which clients take losses, and the norms and projections of their directions, against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, seed_of, x0

from seedbus.algorithms.contract import Replica, Vector
from seedbus.algorithms.directions import directions, reference
from seedbus.algorithms.directions.blocks import BLOCK
from seedbus.algorithms.scalar_only.perturbed import PERTURBED_MODELS

D, STEPS, P = 2 * BLOCK + 77, 3, 2
BORDERS = (0, 100, 700, BLOCK + 5_000, D)  # of layers: one of them has more than one block
SCALARS = np.array([[0.5, -2.0], [1.5, 0.25], [-1.0, 3.0]], np.float32)
SHIFTS = [(0, 0.0), (0, 0.5), (1, -0.25)]
CASES = [
    ("decomfl", "copy", "float"),
    ("decomfl", "light", "float"),
    ("decomfl", "compensate", "float"),
    ("decomfl", "copy", "bfloat16"),
    ("decomfl", "light", "bfloat16"),
    ("hiso", "copy", "float"),
    ("hiso", "light", "float"),
]
each = pytest.mark.parametrize(("name", "revert", "arithmetic"), CASES)


class Seen:
    """An objective that keeps the points at which its losses are taken, and whose gradient is its point.

    Attributes:
        at: the points of one call, which clients share.
        seen: copies of those where losses were taken; a loss is its number among them.
    """

    def __init__(self, at: Sequence[Vector]) -> None:
        self.at = at
        self.point = at[0]
        self.seen: list[Vector] = []

    def points(self) -> Sequence[Vector]:
        return self.at

    def measure(self, step: int, count: int) -> list[float]:
        self.seen += [point.copy() for point in self.at[:count]]
        return [float(len(self.seen) - count + number) for number in range(count)]

    def measure_at(self, step: int, fill: Callable[[slice, Vector], None]) -> list[float]:
        for begin, end in pairwise(BORDERS):
            fill(slice(begin, end), self.point[begin:end])
        return self.measure(step, 1)

    def read(self, measured: Sequence[list[float]]) -> list[float]:
        return [loss for losses in measured for loss in losses]

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        return self.point.copy()


def clients(points: int = 1) -> list[Any]:
    """Two that share points."""
    at = [np.full(D, np.nan, np.float32) for _ in range(points)]
    return [Seen(at), Seen(at)]


class Plain:
    """A client's model in float64: x, and the directions that √H divides."""

    def __init__(self, name: str, revert: str, arithmetic: str = "float") -> None:
        fields = {"perturbations": P, "local_steps": STEPS, "learning_rate": 0.5}
        self.algorithm = make(name, revert=revert, arithmetic=arithmetic, **fields)
        self.replica: Replica = self.algorithm.replica(x0(D))
        self.is_divided = "hessian" in self.replica.fields
        if self.is_divided:
            self.replica.fields["hessian"][:] = np.linspace(0.25, 4, D)
        self.plan = self.algorithm.plan(0, 0, seed_of(0))
        self.model = PERTURBED_MODELS[revert](self.algorithm, directions("gaussian"), self.replica, self.plan)

    def z(self, step: int, perturbation: int) -> Any:
        out = np.empty(D, np.float32)
        reference("gaussian").fill(out, seed=self.plan.seed, step=step, perturbation=perturbation)
        return out / np.sqrt(self.replica.fields["hessian"], dtype=np.float64) if self.is_divided else np.float64(out)

    def x(self, step: int) -> Any:
        moves = [SCALARS[k, p] / P * self.z(k, p) for k in range(step) for p in range(P)]
        return self.algorithm.point(self.replica) - 0.5 * np.sum([np.zeros(D), *moves], axis=0)


@each
@pytest.mark.parametrize("points", [1, 2])
def test_losses_are_taken_around_the_model_after_each_step_and_forks_leave_each_other_alone(
    name: str, revert: str, arithmetic: str, points: int
) -> None:
    plain = Plain(name, revert, arithmetic)
    before = bits(plain.replica)
    error = 2e-5 if arithmetic == "float" else 0.03  # x, below 4, is rounded to 8 bits after each step

    def assert_around(model: Any, step: int) -> None:
        both = clients(points)
        assert model.losses(both)(SHIFTS) == [[0.0, 1.0, 2.0]] * 2
        expected = [plain.x(step) + scale * plain.z(step, p) for p, scale in SHIFTS]
        for client in both:
            np.testing.assert_allclose(client.seen, expected, rtol=0, atol=error)

    model, other = plain.model.fork(), plain.model.fork()
    for step in range(STEPS):
        assert_around(model, step)
        model.advance(SCALARS[step])
    assert_around(other, 0)
    assert bits(plain.replica) == before


@each
def test_the_squared_norms_are_those_of_the_steps_directions(name: str, revert: str, arithmetic: str) -> None:
    plain = Plain(name, revert, arithmetic)
    for step in range(2):
        expected = [np.sum(plain.z(step, p) ** 2) for p in range(P)]
        np.testing.assert_allclose(plain.model.squared_norms(P), expected, rtol=1e-6)
        plain.model.advance(SCALARS[step])


@pytest.mark.parametrize("name", ["decomfl", "hiso"])
def test_a_gradient_at_the_model_after_each_step_is_projected_onto_the_steps_directions(name: str) -> None:
    plain = Plain(name, "copy")
    for step in range(2):
        expected = [np.dot(plain.x(step), plain.z(step, p)) for p in range(P)]
        found = plain.model.project_gradients(clients(), P)
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-5, atol=1e-4)  # sums of 33,000 products that cancel
        plain.model.advance(SCALARS[step])
