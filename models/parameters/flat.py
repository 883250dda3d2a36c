"""A torch module whose parameters are views into one flat contiguous float32 vector, shared by NumPy and torch.

See `coordinates` for how vector and module are connected; here all parameters are coordinates, in the order of
`module.parameters()`.

A convolution's weights are stored as [out, height, width, in], and the module uses a permuted view, [out, in, height,
width]: torch's channels_last, in which its CPU convolutions are faster. Forward and loss at batch 32 on one core (Xeon
2.5 GHz, torch 2.13, medians), contiguous against channels_last: MNIST CNN 12.7 and 8.4 ms, Fashion CNN 31.0 and 13.6.
(If a batch is itself channels_last, torch reorders contiguous weights, and the difference is small.)

Initial values are PyTorch's default distribution, uniform within ±1/√fan_in (an LSTM's within ±1/√hidden), drawn by
NumPy, so that they need no torch generator and have the same bits on every processor. **Ours**: an embedding, normal by
default, is uniform within ±√3, with the same mean and variance, because the logarithms and roots of a normal draw may
differ between processors, and the tails hardly matter to a layer that reads eight such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.parameters.coordinates import Coordinates

_FAN_IN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)


class FlatModule(Coordinates):
    """A module whose parameters are all coordinates, and its gradient.

    Raises:
        TypeError: the module has buffers (no algorithm advances batch statistics), or parameters that are not float32.
    """

    def __init__(self, module: nn.Module) -> None:
        _check_flattens(module)
        super().__init__(module.requires_grad_(False), list(module.parameters()))
        self._gradient: NDArray[np.float32] | None = None

    @staticmethod
    def shaped(span: Tensor, shape: Any) -> Tensor:
        """Return a view of a parameter's coordinates in its shape; convolutions are stored [out, height, width, in]."""
        if len(shape) != 4:
            return span.view(shape)
        out, inputs, height, width = shape
        return span.view(out, height, width, inputs).permute(0, 3, 1, 2)

    @contextmanager
    def differentiated(self) -> Iterator[NDArray[np.float32]]:
        """Within this context `backward` adds to the vector, float32 [d], at first zero; later calls reuse it."""
        if self._gradient is None:
            self._gradient = np.zeros_like(self.point)
            views = self.views(torch.from_numpy(self._gradient))
            for parameter, view in zip(self.module.parameters(), views, strict=True):
                parameter.grad = view
        self._gradient[:] = 0
        self.module.requires_grad_(True)
        try:
            yield self._gradient
        finally:
            self.module.requires_grad_(False)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the parameters by name, as contiguous copies in the module's shapes."""
        return {name: np.array(p.numpy(), order="C") for name, p in self.module.named_parameters()}


def initial_values(module: nn.Module, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw initial values, float32 [d], from PyTorch's default distributions. Raises `TypeError` for other layers."""
    owners: dict[Tensor, tuple[nn.Module, str]] = {}  # the first owner of a tied parameter, as in module.parameters()
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            owners.setdefault(parameter, (layer, name))
    return np.concatenate([_initial(*owners[parameter], parameter, rng) for parameter in module.parameters()])


def _initial(layer: nn.Module, name: str, parameter: Tensor, rng: np.random.Generator) -> NDArray[np.float32]:
    if isinstance(layer, _FAN_IN):
        return _uniform(1 / math.sqrt(layer.weight[0].numel()), parameter.numel(), rng)
    if isinstance(layer, nn.LSTM):
        return _uniform(1 / math.sqrt(layer.hidden_size), parameter.numel(), rng)
    if isinstance(layer, nn.Embedding):
        return _uniform(math.sqrt(3), parameter.numel(), rng)
    if isinstance(layer, _NORMS):
        return np.full(parameter.numel(), 1 if name == "weight" else 0, dtype=np.float32)
    raise TypeError(
        f"{type(layer).__name__}.{name} has no initial values defined: add its rule to models/parameters/flat.py"
    )


def _uniform(bound: float, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw within ±bound. Multiply and subtract are separate NumPy calls, never fused: the same bits everywhere."""
    return (rng.random(count, dtype=np.float32) * np.float32(2) - np.float32(1)) * np.float32(bound)


def _check_flattens(module: nn.Module) -> None:
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise TypeError(
            f"{type(module).__name__} has buffers ({', '.join(buffers)}): use GroupNorm instead of BatchNorm"
        )
    others = [name for name, p in module.named_parameters() if p.dtype != torch.float32]
    if others:
        raise TypeError(f"{type(module).__name__} has parameters that are not float32: {', '.join(others)}")
