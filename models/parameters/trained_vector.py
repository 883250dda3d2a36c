"""The trained parameters of a large module as views into one flat float32 vector; frozen ones are not part of it.

`flat.FlatModule` is for small networks that are trained completely; `coordinates` has the common part. The order is
that of `module.parameters()`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.device import repeatable_gradients
from seedbus.models.parameters.coordinates import Coordinates, add_tensor
from seedbus.models.task import Vector


class TrainedVector(Coordinates):
    """A module in evaluation mode; its parameters with `requires_grad` are the coordinates."""

    def __init__(self, module: nn.Module) -> None:
        self._named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        others = [name for name, p in self._named if p.dtype != torch.float32]
        if others:
            raise TypeError(f"trained parameters must be float32, and {others[0]} is not")
        super().__init__(module, [p for _, p in self._named])
        self._gradient: Vector | None = None

    @property
    def is_whole(self) -> bool:
        """Whether no parameter is frozen."""
        return self.dimension == sum(p.numel() for p in self.module.parameters())

    def gradient(self, losses: Iterable[Callable[[], Tensor]]) -> Vector:
        """Return the gradient of a sum of losses, float32 [d]; the next call overwrites it."""
        if self._gradient is None:
            self._gradient = np.zeros_like(self.point)
            for (_, parameter), span in zip(self._named, self.views(self.tensor(self._gradient)), strict=True):
                parameter.grad = span  # backward adds to it in place
        self._gradient[:] = 0
        with repeatable_gradients(self.module, self.device):
            for loss in losses:
                loss().backward()  # type: ignore[no-untyped-call]
        return self._gradient

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return copies of the trained parameters by name, in their own shapes."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self._named}

    def frozen_digest(self, *facts: bytes) -> bytes:
        """Return a digest of what a loss depends on beside x: frozen parameters, persistent buffers and given facts."""
        state = hashlib.blake2b(digest_size=16)
        for fact in facts:
            state.update(hashlib.blake2b(fact).digest())
        trained = {name for name, _ in self._named}
        persistent = self.module.state_dict()
        for name, parameter in self.module.named_parameters():
            if name not in trained:
                add_tensor(state, name, parameter)
        for name, buffer in self.module.named_buffers():
            if name in persistent:
                add_tensor(state, name, buffer)
        return state.digest()
