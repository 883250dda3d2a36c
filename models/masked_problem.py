"""A problem of which only the coordinates of a mask are trained: its x is these s coordinates, in their order.

The problem inside has d coordinates. Its points begin as x₀, and before each loss the trained coordinates are written
into them: nobody else writes to a point, so the others keep the values of x₀.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.mask import Mask
from seedbus.models.task import (
    Derivatives,
    Fill,
    HasClasses,
    HasLayers,
    HasNamedClients,
    HasSlopes,
    NeedsPreparation,
    Note,
    Problem,
    Relabelling,
    TwiceDifferentiable,
    Vector,
)

if TYPE_CHECKING:
    from torch import nn


class MaskedProblem:
    """Implements `task.Problem` for the coordinates of a mask. Not thread-safe.

    Attributes:
        inside: the problem of all coordinates.
        mask_digest: 16 bytes of the mask: which coordinates it has.
    """

    def __init__(self, problem: Problem, mask: Mask, seed: int) -> None:
        """Choose the mask; seed: the run's. Raises `DataError`."""
        self.inside = problem
        self._x0 = problem.x0()
        self._places = mask.choose(problem, self._x0, seed)
        self.mask_digest = hashlib.blake2b(self._places.astype("<i8").tobytes(), digest_size=16).digest()
        self._points: list[tuple[Vector, Vector]] = []  # of the problem inside, and of this one
        self._tangent: tuple[Vector, Vector] | None = None  # likewise

    @property
    def dimension(self) -> int:
        return int(self._places.size)

    @property
    def device(self) -> Any:
        """That of the problem inside, if it tells one; see `device.placed_beside`."""
        inside: Any = self.inside
        return inside.device

    def x0(self) -> Vector:
        return self._x0[self._places]

    def objective(self, client: int, round: int) -> MaskedObjective:
        return MaskedObjective(self, self.inside.objective(client, round))

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        return self.inside.evaluate(self.whole(x), split)

    def owned(self, split: str) -> Any:
        """See `task.HasParts`, which the problem inside must be."""
        inside: Any = self.inside
        return inside.owned(split)

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """See `task.HasParts`."""
        inside: Any = self.inside
        found: dict[str, float] = inside.evaluate_part(self.whole(x), split, indices)
        return found

    def samples(self, client: int) -> int:
        return self.inside.samples(client)

    def client_names(self) -> list[str]:
        return self.inside.client_names() if isinstance(self.inside, HasNamedClients) else []

    @property
    def number_of_classes(self) -> int:
        return self.inside.number_of_classes if isinstance(self.inside, HasClasses) else 0

    def relabel(self, relabelling: Relabelling | None) -> None:
        if hasattr(self.inside, "relabel"):
            self.inside.relabel(relabelling)

    @contextmanager
    def derivatives(self, x: Vector, count: int) -> Iterator[MaskedDerivatives]:
        """Yield the derivatives by the trained coordinates; see `task.TwiceDifferentiable`.

        Raises:
            TypeError: the problem inside has none.
        """
        if not isinstance(self.inside, TwiceDifferentiable):
            raise TypeError(f"{type(self.inside).__name__} has no derivatives")
        with self.inside.derivatives(self.whole(x), count) as whole:
            yield MaskedDerivatives(whole, self._places, self._x0.size)

    def network_at(self, x: Vector) -> nn.Module:
        """See `task.HasNetwork`; for a problem inside that is one."""
        inside: Any = self.inside
        network: nn.Module = inside.network_at(self.whole(x))
        return network

    def state_dict(self, x: Vector) -> dict[str, NDArray[Any]]:
        return self.inside.state_dict(self.whole(x))

    def prepare(self, note: Note) -> None:
        if isinstance(self.inside, NeedsPreparation):
            self.inside.prepare(note)
        self._points = []  # a preparation may write to points

    def check_layers(self) -> None:
        if isinstance(self.inside, HasLayers):
            self.inside.check_layers()

    def check_slopes(self) -> None:
        if isinstance(self.inside, HasSlopes):
            self.inside.check_slopes()

    def identity(self) -> bytes:
        """Return a digest of all coordinates of x₀, and of what else decides the problem inside."""
        inside = self.inside.identity() if hasattr(self.inside, "identity") else b""
        return hashlib.blake2b(self._x0.astype("<f4").tobytes() + inside, digest_size=16).digest()

    def probe(self) -> bytes:
        digest: bytes = self.inside.probe() if hasattr(self.inside, "probe") else b""
        self._points = []
        return digest

    def whole(self, x: Vector) -> Vector:
        """Return all coordinates, [d], with x [s] in the places of the mask."""
        whole = self._x0.copy()
        whole[self._places] = np.asarray(x)
        return whole

    def points(self, inside: Sequence[Vector]) -> list[Vector]:
        """Return a point [s] for each of those inside [d], which are written to by `write`."""
        if not self._points:
            for point in inside:
                np.copyto(point, self._x0)
                self._points.append((point, np.zeros_like(point[: self.dimension])))
        return [own for _, own in self._points]

    def write(self, count: int) -> None:
        """Write the first `count` points into those inside."""
        for point, own in self._points[:count]:
            point[self._places] = own

    def tangent(self, inside: Vector) -> Vector:
        """Return a direction [s] for that inside [d], which is 0 elsewhere, and written to by `write_tangent`."""
        if self._tangent is None:
            inside[:] = 0
            self._tangent = inside, np.zeros_like(inside[: self.dimension])
        return self._tangent[1]

    def write_tangent(self, inside: Vector) -> None:
        """Write the direction into that inside."""
        inside[self._places] = self.tangent(inside)

    def trained(self, vector: Vector) -> Vector:
        """Return the trained coordinates, [s], of a vector of all coordinates."""
        found: Any = np.asarray(vector)[self._places]
        own: Vector = np.zeros_like(vector[: self.dimension])
        np.copyto(own, found)
        return own

    def filled(self, fill: Fill) -> Fill:
        """Return what writes all coordinates of a span, from what writes trained ones."""

        def fill_all(span: slice, out: Vector) -> None:
            first, last = np.searchsorted(self._places, [span.start, span.stop]).tolist()
            np.copyto(out, self._x0[span])
            if first < last:
                own = np.zeros_like(out[: last - first])
                fill(slice(first, last), own)
                out[self._places[first:last] - span.start] = own

        return fill_all


class MaskedDerivatives:
    """Derivatives by the trained coordinates: the rows and columns of a mask; see `task.Derivatives`."""

    def __init__(self, whole: Derivatives, places: NDArray[np.int64], dimension: int) -> None:
        """Restrict derivatives.

        Args:
            whole: those by all coordinates, [d].
            places: the coordinates of the mask, [s].
            dimension: d.
        """
        self._whole = whole
        self._places = places
        self._dimension = dimension

    def gradient(self) -> NDArray[np.float64]:
        """Return the gradient by the trained coordinates, float64 [s]."""
        return self._whole.gradient()[self._places]

    def times(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the Hessian's rows and columns of the mask, [s, s], and a vector, float64 [s] each."""
        along = np.zeros(self._dimension)
        along[self._places] = vector
        return self._whole.times(along)[self._places]

    def block(self, places: NDArray[np.int64], advance: Callable[[float], None]) -> NDArray[np.float64]:
        """Return the Hessian's rows and columns of some trained coordinates, float64 [n, n]."""
        return self._whole.block(self._places[places], advance)


class MaskedObjective:
    """One client's loss in one round as a function of the trained coordinates."""

    def __init__(self, problem: MaskedProblem, inside: Any) -> None:
        self._problem = problem
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        """Return what has nothing to do with coordinates: of the client's samples, its key, and equal losses."""
        if name not in ("samples", "key", "steps_an_epoch", "counts", "compare", "steps", "equal"):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return getattr(self._inside, name)

    @property
    def point(self) -> Vector:
        return self.points()[0]

    def points(self) -> list[Vector]:
        inside = self._inside.points() if hasattr(self._inside, "points") else [self._inside.point]
        return self._problem.points(inside)

    def loss(self, step: int) -> float:
        return self.read([self.measure(step, 1)])[0]

    def measure(self, step: int, count: int) -> Any:
        self.points()
        self._problem.write(count)
        if hasattr(self._inside, "measure"):
            return self._inside.measure(step, count)
        return self._inside.loss(step)

    def loss_at(self, step: int, fill: Fill) -> float:
        return self.read([self.measure_at(step, fill)])[0]

    def measure_at(self, step: int, fill: Fill) -> Any:
        measure_at: Callable[..., Any] | None = getattr(
            self._inside, "measure_at", getattr(self._inside, "loss_at", None)
        )
        if measure_at is None:
            raise TypeError(f"{type(self._inside).__name__} has no loss_at, which algorithm.revert: light needs")
        return measure_at(step, self._problem.filled(fill))

    def read(self, measured: Sequence[Any]) -> list[float]:
        return list(self._inside.read(measured) if hasattr(self._inside, "read") else measured)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        self.points()
        self._problem.write(1)
        return self._problem.trained(self._inside.gradient(step, criterion))

    @property
    def tangent(self) -> Vector:
        return self._problem.tangent(self._inside.tangent)

    def slope(self, step: int) -> Any:
        self.points()
        self._problem.write(1)
        self._problem.write_tangent(self._inside.tangent)
        return self._inside.slope(step)

    def outputs(self, step: int, at: Vector) -> Any:
        return self._inside.outputs(step, self._problem.whole(at))

    def through(self, hidden: Any, number: int, at: Vector) -> Any:
        return self._inside.through(hidden, number, self._problem.whole(at))
