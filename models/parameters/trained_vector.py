"""The trained parameters of a large module as views into one flat float32 vector; the frozen ones stay as they are.

`flat.FlatModule` is for small networks, all of which is trained; see `coordinates` for what both are. The order is that
of `module.parameters()`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seedbus.models.parameters.coordinates import Coordinates


class TrainedVector(Coordinates):
    """A module in evaluation mode; `requires_grad` says which of its parameters are coordinates."""

    def __init__(self, module: nn.Module) -> None:
        self._named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        odd = [name for name, p in self._named if p.dtype != torch.float32]
        if odd:
            raise TypeError(f"trained parameters are float32, and {odd[0]} is not")
        super().__init__(module, [p for _, p in self._named])
        self._slopes: NDArray[np.float32] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is frozen."""
        return self.dimension == sum(p.numel() for p in self.module.parameters())

    def gradient(self, loss: Tensor) -> NDArray[np.float32]:
        """The loss's gradient, float32 [d], in a buffer that the next call overwrites."""
        if self._slopes is None:
            self._slopes = np.zeros_like(self.point)
            for (_, parameter), span in zip(self._named, self.views(torch.from_numpy(self._slopes)), strict=True):
                parameter.grad = span  # backward adds to it in place
        self._slopes[:] = 0
        loss.backward()  # type: ignore[no-untyped-call]
        return self._slopes

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The trained parameters by name, in their own shapes: copies."""
        return {name: p.detach().numpy().copy() for name, p in self._named}

    def frozen_digest(self, *facts: bytes) -> bytes:
        """Of all that decides a loss and is no coordinate: frozen parameters, stored buffers, and the facts given."""
        state = hashlib.blake2b(digest_size=16)
        for fact in facts:
            state.update(hashlib.blake2b(fact).digest())
        trained = {name for name, _ in self._named}
        persistent = self.module.state_dict()
        for name, parameter in self.module.named_parameters():
            if name not in trained:
                _add(state, name, parameter)
        for name, buffer in self.module.named_buffers():
            if name in persistent:
                _add(state, name, buffer)
        return state.digest()


class _Widened(nn.Module):
    """A weight of 16 bits as float32, made anew each time that it is used."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.float()


def widen_frozen(module: nn.Module) -> None:
    """Let frozen parameters of 16 bits be stored as they are and computed with in float32.

    A difference of two losses would drown in the rounding of 16-bit arithmetic. A tied parameter stays one.
    """
    for layer in list(module.modules()):
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if parameter.dtype in (torch.bfloat16, torch.float16) and not parameter.requires_grad:
                parametrize.register_parametrization(layer, name, _Widened(), unsafe=True)


def _add(state: hashlib.blake2b, name: str, tensor: Tensor) -> None:
    state.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
    state.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
