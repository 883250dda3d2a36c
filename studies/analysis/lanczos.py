"""Lanczos' method, and the quadrature of a symmetric matrix's spectrum that follows from it.

k steps from a vector v make an orthonormal basis V [d, k] and a tridiagonal T = VᵀAV (Golub and Van Loan, §10.1). The
eigenvalues θ of T are the nodes of a Gauss quadrature, and the squared first components τ of its eigenvectors the
weights: vᵀf(A)v ≈ ‖v‖² Σ τ f(θ), exact for polynomials up to degree 2k − 1 (Ubaru, Chen, Saad 2017), and
f(A)v ≈ ‖v‖ V f(T) e₁. The basis is orthogonalised anew in every step, twice, because rounding would let eigenvalues
appear several times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector64 = NDArray[np.float64]
Product = Callable[[Vector64], Vector64]
_LOST = 1e-8  # β below this part of the largest one: the basis spans an invariant subspace


@dataclass(frozen=True)
class Krylov:
    """What k steps from one vector have found of a symmetric matrix.

    Attributes:
        nodes: θ, float64 [k], ascending.
        weights: τ, float64 [k]; their sum is 1.
        norm: ‖v‖.
        basis: V, float64 [k, d].
        vectors: eigenvectors of T, float64 [k, k], a column for each node.
    """

    nodes: Vector64
    weights: Vector64
    norm: float
    basis: Vector64
    vectors: Vector64

    def applied(self, function: Callable[[Vector64], Vector64]) -> Vector64:
        """Return f(A)v, float64 [d]."""
        along = self.vectors @ (function(self.nodes) * self.vectors[0])
        applied: Vector64 = self.norm * (along @ self.basis)
        return applied


def lanczos(times: Product, start: Vector64, steps: int) -> Krylov:
    """Return what Lanczos' method finds, in at most `steps` products.

    Args:
        times: returns the product of the matrix and a vector, float64 [d] each.
        start: v, float64 [d], not 0.
        steps: k; fewer are taken if the basis spans an invariant subspace before.
    """
    norm = float(np.linalg.norm(start))
    basis = np.empty((min(steps, start.size), start.size))
    diagonal, beside = [], [0.0]
    vector = start / norm
    for step in range(len(basis)):
        basis[step] = vector
        product = times(vector)
        diagonal.append(float(vector @ product))
        known = basis[: step + 1]
        for _ in range(2):
            product = product - (known @ product) @ known
        length = float(np.linalg.norm(product))
        if length <= _LOST * max(abs(diagonal[0]), *beside, length if step == 0 else 0.0):
            break
        beside.append(length)
        vector = product / length
    size = len(diagonal)
    tridiagonal = np.diag(diagonal) + np.diag(beside[1:size], 1) + np.diag(beside[1:size], -1)
    nodes, vectors = np.linalg.eigh(tridiagonal)
    return Krylov(nodes, vectors[0] ** 2, norm, basis[:size], vectors)
