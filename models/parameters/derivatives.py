"""Gradients and Hessian-vector products of a mean loss at one point, by torch's autograd.

A product with the Hessian is the derivative of ⟨∇F(x), v⟩ (Pearlmutter 1994): it costs about as much as two gradients,
and the Hessian, d × d, is never made. The kinks of ReLU and of max pooling count as straight, as in every autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

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

    def _differentiated(
        self, of: Tensor | Sequence[Tensor], along: Sequence[Tensor] | None = None, *, create_graph: bool = False
    ) -> Sequence[Tensor]:
        return torch.autograd.grad(
            of, self._parameters, along, create_graph=create_graph, allow_unused=True, materialize_grads=True
        )

    def _sum(self, derivative: Callable[[Tensor], Sequence[Tensor]]) -> NDArray[np.float64]:
        """Return the sum over all losses, added in float64; only one of their graphs is in memory at a time."""
        total = np.zeros(self._flat.dimension)
        flat = torch.zeros(self._flat.dimension, device=self._flat.device or "cpu")
        for loss in self._losses:
            for view, part in zip(self._flat.views(flat), derivative(loss()), strict=True):
                view.copy_(part.detach())
            total += flat.cpu().numpy()
        return total


@contextmanager
def loss_derivatives(flat: FlatModule, x: Vector, losses: Sequence[Callable[[], Tensor]]) -> Iterator[LossDerivatives]:
    """Yield the derivatives of a sum of losses at x, [d], which must not be changed meanwhile."""
    with flat.at(x), flat.differentiated(), sdpa_kernel(SDPBackend.MATH):  # the faster kernels have no second one
        yield LossDerivatives(flat, losses)
