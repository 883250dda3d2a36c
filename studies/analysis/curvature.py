"""The curvature of F, the mean loss over training samples, at one model: its Hessian's spectrum and diagonal.

Small networks: exact, from the whole matrix and its eigenvalues. Larger ones: from probes v with
coordinates ±1. One run of Lanczos' method from v gives Σ τ f(θ), whose mean over probes times d is Tr f(∇²F)
(stochastic Lanczos quadrature), and v ⊙ f(∇²F)v, whose mean is the diagonal of f(∇²F) (Bekas, Kokiopoulou, Saad 2007:
Hutchinson's estimator, coordinate by coordinate). Further probes of one product each improve the diagonal of ∇²F.

Σ is |∇²F|, the Hessian with its eigenvalues' absolute values, as HiSo's paper suggests for losses that are not convex
(arXiv:2506.02370, §5.1, footnote).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.generators import generator
from seedbus.models.task import Derivatives
from seedbus.scenarios.reporting.meter import Meter
from seedbus.studies.analysis.estimate import Estimate
from seedbus.studies.analysis.lanczos import Vector64, lanczos


@dataclass(frozen=True)
class Effort:
    """How much is spent on a model, and on which metric.

    Attributes:
        samples: training samples of F.
        probes: runs of Lanczos' method.
        steps: products of each.
        diagonal_probes: further products for the diagonal.
        exact_up_to: the most coordinates of a model whose Hessian is made whole.
        nulls: how many H without a signal are made.
        clients: the most clients that are trained and compared.
        client_samples: samples of each client that are measured.
        test_samples: samples on which networks' outputs are compared.
        metric: by which it is told how well clients are served; None: the first of the task's beside its loss.
    """

    samples: Annotated[int, Field(ge=1)] = 1000
    probes: Annotated[int, Field(ge=1)] = 8
    steps: Annotated[int, Field(ge=2)] = 30
    diagonal_probes: Annotated[int, Field(ge=0)] = 64
    exact_up_to: Annotated[int, Field(ge=0)] = 2000
    nulls: Annotated[int, Field(ge=0)] = 20
    clients: Annotated[int, Field(ge=2)] = 10
    client_samples: Annotated[int, Field(ge=1)] = 1000
    test_samples: Annotated[int, Field(ge=1)] = 500
    metric: str | None = None


@dataclass(frozen=True)
class Curvature:
    """The Hessian at a model, of d coordinates.

    Attributes:
        gradient: ∇F, float64 [d].
        nodes: a row of eigenvalues, exact or Lanczos', for each probe; float64 [k] each.
        weights: their weights; of each row the sum is 1.
        diagonals: estimates of the diagonal of ∇²F, float64 [n, d]; exact: one.
        absolute_diagonals: estimates of the diagonal of Σ, float64 [probes, d]; exact: one.
        products: how many products with the Hessian were computed; exact: its rows.
        is_exact: whether the whole matrix was made.
    """

    gradient: Vector64
    nodes: list[Vector64]
    weights: list[Vector64]
    diagonals: NDArray[np.float64] = field(repr=False)
    absolute_diagonals: NDArray[np.float64] = field(repr=False)
    products: int
    is_exact: bool

    @property
    def dimension(self) -> int:
        return int(self.gradient.size)

    @property
    def method(self) -> str:
        """How it was measured."""
        if self.is_exact:
            return "exact"
        return f"{len(self.nodes)} probes × {max(map(len, self.nodes))} steps of Lanczos"

    @cached_property
    def diagonal(self) -> Vector64:
        """The diagonal of ∇²F, float64 [d]."""
        mean: Vector64 = self.diagonals.mean(axis=0)
        return mean

    @property
    def highest(self) -> float:
        """The largest eigenvalue."""
        return max(float(nodes[-1]) for nodes in self.nodes)

    @property
    def lowest(self) -> float:
        """The smallest eigenvalue, which is negative where F is not convex."""
        return min(float(nodes[0]) for nodes in self.nodes)

    @property
    def smoothness(self) -> float:
        """L, the largest magnitude of an eigenvalue."""
        return max(abs(self.highest), abs(self.lowest))

    def trace(self, function: Callable[[Vector64], Vector64] = lambda each: each) -> Estimate:
        """Return Tr f(∇²F)."""
        return self.over_probes(
            [
                self.dimension * float(weights @ function(nodes))
                for nodes, weights in zip(self.nodes, self.weights, strict=True)
            ]
        )

    def whitened(self, inverse: Vector64) -> Estimate:
        """Return Tr(H^−½ Σ H^−½) for a diagonal H; inverse: 1/H, float64 [d]."""
        return self.over_probes(self.absolute_diagonals @ inverse)

    def over_probes(self, found: list[float] | NDArray[np.float64]) -> Estimate:
        """Return the mean of a number that each probe found."""
        return Estimate.of(found, is_exact=self.is_exact)

    def ranked(self) -> tuple[Vector64, Vector64]:
        """Return the magnitudes of eigenvalues, largest first, and how many eigenvalues have each or a larger one."""
        sizes = np.abs(np.concatenate(self.nodes))
        shares = np.concatenate(self.weights) * self.dimension / len(self.nodes)
        order = np.argsort(-sizes)
        return sizes[order], np.cumsum(shares[order])


def measured(derivatives: Derivatives, dimension: int, effort: Effort, meter: Meter, what: str) -> Curvature:
    """Measure the curvature at a model.

    Args:
        derivatives: those of F there.
        dimension: d.
        effort: how much is spent.
        meter: shows progress.
        what: the model's name there.

    Raises:
        FloatingPointError: a derivative is not a finite number, as after training that diverged.
    """
    gradient = _finite(derivatives.gradient())
    if dimension <= effort.exact_up_to:
        return exact(derivatives, gradient, meter, what)
    nodes, weights, diagonals, absolute = [], [], [], []
    products = meter.begin(f"{what}: spectrum", effort.probes * effort.steps + effort.diagonal_probes)

    def times(vector: Vector64) -> Vector64:
        products.advance()
        return _finite(derivatives.times(vector))

    for number in range(effort.probes):
        probe = _signs(number, dimension)
        krylov = lanczos(times, probe, effort.steps)
        nodes.append(krylov.nodes)
        weights.append(krylov.weights)
        diagonals.append(probe * krylov.applied(lambda each: each))
        absolute.append(probe * krylov.applied(np.abs))
    for number in range(effort.probes, effort.probes + effort.diagonal_probes):
        probe = _signs(number, dimension)
        diagonals.append(probe * times(probe))
    products.end()
    return Curvature(gradient, nodes, weights, np.array(diagonals), np.array(absolute), int(products.done), False)


def exact(derivatives: Derivatives, gradient: Vector64, meter: Meter, what: str) -> Curvature:
    """Measure the curvature from the whole Hessian, whose rounding errors are made symmetric."""
    dimension = gradient.size
    rows = meter.begin(f"{what}: Hessian", dimension)
    matrix = _finite(derivatives.block(np.arange(dimension), rows.advance))
    rows.end()
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    absolute = (vectors**2) @ np.abs(values)
    weights = np.full(dimension, 1 / dimension)
    return Curvature(
        gradient, [values], [weights], np.diag(matrix)[None].copy(), absolute[None], dimension, is_exact=True
    )


def _finite(vector: Vector64) -> Vector64:
    """Return a vector or a matrix whose numbers are all finite. Raises `FloatingPointError`."""
    if not np.isfinite(vector).all():
        raise FloatingPointError("a derivative is not a finite number")
    return vector


def _signs(number: int, dimension: int) -> Vector64:
    """Return a probe, its coordinates ±1, the same ones in every analysis."""
    return np.asarray(2.0 * generator("probe", number).integers(0, 2, dimension) - 1.0, np.float64)
