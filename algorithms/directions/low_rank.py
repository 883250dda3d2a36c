"""Directions whose matrices have a low rank: Z = U Vᵀ / √r for each matrix of a network, as LOZO has them.

    U    [rows, r], from the stream of (seed, step, perturbation): other numbers for each direction
    V    [columns, r], from the stream of (V's seed, 0, 0): the same for all directions of that seed

A parameter that is no matrix has independent coordinates, from U's stream. All draws have the law's variance 1, and so
have the coordinates of Z. One stream holds all of U, parameter by parameter and row by row, so that a block draws the
rows that it covers; another holds all of V, column by column.

Arithmetic, which never changes: no product of matrices, whose order of additions is the library's. A coordinate is

    s ← U[i,0]·V[c,0],   s ← s + U[i,q]·V[c,q] for q = 1 … r − 1,   z = s · (1/√r)

with every operation rounded by itself. A sum over perturbations is taken in U: W = Σ_p coefficient[p] · U(p), as
`Directions.accumulate` adds them, and then Z of W. So a step costs r products a coordinate, however many directions it
has. U, V and W are drawn and added in the processor's memory, by the backend that is fastest there, and products are
taken where the vectors lie: NumPy and torch round each of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from seedbus.algorithms.directions.contract import ALIGNMENT, Directions, Place, Step
from seedbus.algorithms.directions.laws.law import Law
from seedbus.algorithms.directions.selection import directions, reference
from seedbus.algorithms.objective import Factor
from seedbus.vector import Vector, is_on_host

KEPT = 4
"""How many V are kept: all blocks and directions share one."""

Draw = Callable[..., None]
"""Writes numbers of a stream to `out`, from `start` on."""


class Layer(NamedTuple):
    """One parameter among the coordinates.

    Attributes:
        first: its first coordinate.
        rows: rows of the matrix, or the number of coordinates of any other parameter.
        columns: columns of the matrix; 0: the parameter is no matrix.
        u: where its U begins among all U; of no matrix, its coordinates.
        v: where its V begins among all V.
    """

    first: int
    rows: int
    columns: int
    u: int
    v: int

    @property
    def size(self) -> int:
        return self.rows * max(1, self.columns)


@dataclass(frozen=True)
class Layers:
    """The parameters of a network, and the rank of the directions of its matrices.

    Attributes:
        layers: in the order of their coordinates.
        rank: r.
    """

    layers: tuple[Layer, ...]
    rank: int

    @staticmethod
    def of(shapes: Sequence[tuple[int, ...]], rank: int) -> Layers:
        """Return the layers for parameters of these shapes; one with several axes is a matrix with a row for each of
        its first."""
        layers, first, u, v = [], 0, 0, 0
        for shape in shapes:
            size = math.prod(shape)
            rows, columns = (shape[0], size // shape[0]) if len(shape) > 1 and size else (size, 0)
            layers.append(Layer(first, rows, columns, u, v))
            first, u, v = first + size, u + (rank * rows if columns else rows), v + rank * columns
        return Layers(tuple(layers), rank)

    @property
    def dimension(self) -> int:
        """d."""
        return sum(layer.size for layer in self.layers)

    @property
    def u_size(self) -> int:
        return sum(layer.rows * (self.rank if layer.columns else 1) for layer in self.layers)

    @property
    def v_size(self) -> int:
        return sum(layer.columns * self.rank for layer in self.layers)


@dataclass(frozen=True)
class LowRankDirections:
    """Implements `Directions` for one V.

    Attributes:
        law: of the numbers in U and V.
        layers: the parameters, and the rank.
        v_seed: 64 bits that key V.
    """

    law: Law
    layers: Layers
    v_seed: int

    def fill(self, out: Vector, **where: Unpack[Place]) -> None:
        """See `Directions.fill`."""
        start = where.pop("start", 0)
        self._expand(out, partial(_source(self.law, out.dtype).fill, **where), start)

    def accumulate(
        self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **where: Unpack[Step]
    ) -> None:
        """See `Directions.accumulate`; the sum is taken in U."""
        source, weights = _source(self.law, out.dtype), np.asarray(coefficients, out.dtype)
        start = where.pop("start", 0)
        self._expand(out, partial(source.accumulate, coefficients=weights, **where), start)
        if divisor is not None:
            np.divide(out, divisor, out=out)

    def perturb(
        self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **where: Unpack[Place]
    ) -> None:
        """See `Directions.perturb`."""
        z = np.empty_like(out)
        self.fill(z, **where)
        if divisor is not None:
            np.divide(z, divisor, out=z)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(z, z.dtype.type(scale), out=z)
            np.add(x, z, out=out)

    def factors(self, shifts: Sequence[tuple[int, float]], *, seed: int, step: int) -> list[Factor]:
        """Return the differences s·z(p) of each parameter by their factors, float32, for shifts (p, s)."""
        u = np.zeros((len(shifts), self.layers.u_size), np.float32)
        for row, (perturbation, scale) in zip(u, shifts, strict=True):
            if scale:
                directions(self.law).fill(row, seed=seed, step=step, perturbation=perturbation)
        v = _drawn(self.law, self.layers.v_size, self.v_seed, u.dtype)
        scales = np.array([scale for _, scale in shifts], np.float32)[:, None]
        rank, found = self.layers.rank, list[Factor]()
        for layer in self.layers.layers:
            own = u[:, layer.u :][:, : layer.rows * (rank if layer.columns else 1)]
            if not layer.columns:
                found.append(Factor(own * scales, None))
                continue
            right = v[layer.v :][: rank * layer.columns].reshape(rank, layer.columns).copy()
            left = (own * (scales * np.float32(1 / math.sqrt(rank)))).reshape(len(shifts), layer.rows, rank)
            found.append(Factor(left, right))
        return found

    def _expand(self, out: Vector, draw: Draw, start: int) -> None:
        """Write the coordinates from `start` on of the direction whose U `draw` writes."""
        if start + out.size > self.layers.dimension:
            end, dimension = start + out.size, self.layers.dimension
            raise ValueError(f"coordinates {start:,} to {end:,}: the layers have {dimension:,}")
        rank = self.layers.rank
        v = _drawn(self.law, self.layers.v_size, self.v_seed, out.dtype)
        factor = out.dtype.type(1 / math.sqrt(rank))
        multiply = _fastest(out)
        for layer, first, last in self._parts(start, out.size):
            part = out[layer.first + first - start : layer.first + last - start]
            if not layer.columns:
                np.copyto(part, _numbers(draw, layer.u + first, layer.u + last, out.dtype))
                continue
            row, column = divmod(first, layer.columns)
            rows = -(-last // layer.columns) - row
            u = _numbers(draw, layer.u + rank * row, layer.u + rank * (row + rows), out.dtype)
            multiply(part, u, v[layer.v :][: rank * layer.columns], column, layer.columns, factor)

    def _parts(self, start: int, size: int) -> Iterator[tuple[Layer, int, int]]:
        """Yield each layer that a span has part in, and which of the layer's coordinates: first and last."""
        for layer in self.layers.layers:
            first, last = max(0, start - layer.first), min(layer.size, start + size - layer.first)
            if first < last:
                yield layer, first, last


def _source(law: Law, dtype: Any) -> Directions:
    return directions(law) if dtype == np.float32 else reference(law)


def _numbers(draw: Draw, first: int, last: int, dtype: Any) -> Vector:
    """Return numbers `first` to `last` of a stream, in host memory."""
    before = first % ALIGNMENT
    out = np.empty(last - first + before, dtype)
    draw(out, start=first - before)
    return out[before:]


@lru_cache(maxsize=KEPT)
def _drawn(law: Law, size: int, seed: int, dtype: Any) -> Vector:
    """Return the numbers of V, in host memory, read-only."""
    out = np.empty(size, dtype)
    _source(law, dtype).fill(out, seed=seed, step=0, perturbation=0)
    out.flags.writeable = False
    return out


def _fastest(out: Any) -> Callable[..., None]:
    """Return what writes products to vectors such as `out`: see `numba_low_rank.products`."""
    if not is_on_host(out):
        return _tensor_products
    if out.dtype != np.float32:
        return _products
    from seedbus.algorithms.directions.numba_low_rank import products

    return products


def _products(
    out: Any, u: Any, v: Any, first: int, columns: int, factor: Any, outer: Callable[..., Any] = np.multiply.outer
) -> None:
    """The same in NumPy, or in torch."""
    rank = len(v) // columns
    rows, within = u.reshape(-1, rank), slice(first, first + len(out))
    if len(rows) == 1:
        v, within = v.reshape(rank, columns)[:, within], slice(None)
    v = v.reshape(rank, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = outer(rows[:, 0], v[0])
        for q in range(1, rank):
            total += outer(rows[:, q], v[q])
        total *= factor
    out[:] = total.reshape(-1)[within]


def _tensor_products(out: Any, u: Vector, v: Vector, first: int, columns: int, factor: Any) -> None:
    """The same on a device: each product, sum and factor is an operation of its own."""
    import torch

    from seedbus.tensors import tensor_of

    device = out.tensor.device
    _products(out.tensor, tensor_of(u, device), tensor_of(v, device), first, columns, float(factor), torch.outer)
