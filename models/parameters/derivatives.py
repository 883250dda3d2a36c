"""Gradients and Hessian-vector products of a mean loss at one point, by torch's autograd.

A product with the Hessian is the derivative of ⟨∇F(x), v⟩ (Pearlmutter 1994): it costs about as much as two gradients,
and the Hessian, d × d, is not made. Where it is wanted, its rows are the derivatives of the gradient's coordinates: of
each loss the gradient is computed once, and for each row only what its parameter's gradient depends on is
differentiated. The kinks of ReLU and of max pooling count as straight, as in every autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from seedbus.models.device import repeatable_gradients
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.task import Vector


class LossDerivatives:
    """The derivatives of a sum of losses at the point of a module; see `task.Derivatives`."""

    def __init__(self, flat: FlatModule, losses: Sequence[Callable[[], Tensor]]) -> None:
        self._flat = flat
        self._losses = losses
        self._parameters = [parameter for parameter in flat.module.parameters() if parameter.requires_grad]

    def gradient(self) -> NDArray[np.float64]:
        """Return the gradient, float64 [d]."""
        return self._sum(lambda loss: self._differentiated(loss))

    def times(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the Hessian and a vector, float64 [d] each; computed in float32."""
        along = self._flat.views(torch.from_numpy(vector.astype(np.float32)).to(self._flat.device or "cpu"))

        def product(loss: Tensor) -> Sequence[Tensor]:
            gradient = self._differentiated(loss, create_graph=True)
            return self._differentiated(gradient, along)

        return self._sum(product)

    def block(self, places: NDArray[np.int64], advance: Callable[[float], None]) -> NDArray[np.float64]:
        """Return rows and columns of the Hessian, float64 [n, n]; see `task.Derivatives`. Computed in float32."""
        matrix = np.zeros((places.size, places.size))
        ends = np.cumsum([parameter.numel() for parameter in self._parameters])
        owners = np.searchsorted(ends, places, side="right").tolist()
        unit = torch.zeros(self._flat.dimension, device=self._flat.device or "cpu")
        along = self._flat.views(unit)
        for loss in self._losses:
            gradient = self._differentiated(loss(), create_graph=True)
            for row, (place, owner) in enumerate(zip(places.tolist(), owners, strict=True)):
                unit[place] = 1
                product = self._differentiated(gradient[owner], along[owner], retain_graph=True)
                unit[place] = 0
                matrix[row] += self._flattened(product)[places]
                advance(1 / len(self._losses))
        return matrix

    def _differentiated(
        self, of: Tensor | Sequence[Tensor], along: Tensor | Sequence[Tensor] | None = None, **graph: bool
    ) -> Sequence[Tensor]:
        return torch.autograd.grad(of, self._parameters, along, allow_unused=True, materialize_grads=True, **graph)

    def _sum(self, derivative: Callable[[Tensor], Sequence[Tensor]]) -> NDArray[np.float64]:
        """Return the sum over all losses, added in float64; only one of their graphs is in memory at a time."""
        total = np.zeros(self._flat.dimension)
        for loss in self._losses:
            total += self._flattened(derivative(loss()))
        return total

    def _flattened(self, parts: Sequence[Tensor]) -> NDArray[np.float32]:
        """Return a derivative by each parameter as one vector, float32 [d]."""
        flat = torch.empty(self._flat.dimension, device=self._flat.device or "cpu")
        for view, part in zip(self._flat.views(flat), parts, strict=True):
            view.copy_(part.detach())
        found: NDArray[np.float32] = flat.cpu().numpy()
        return found


@contextmanager
def loss_derivatives(flat: FlatModule, x: Vector, losses: Sequence[Callable[[], Tensor]]) -> Iterator[LossDerivatives]:
    """Yield the derivatives of a sum of losses at x, [d], which must not be changed meanwhile."""
    with (
        flat.at(x),
        flat.differentiated(),
        repeatable_gradients(flat.module, flat.device),
        sdpa_kernel(SDPBackend.MATH),  # the faster kernels have no second one
    ):
        yield LossDerivatives(flat, losses)
