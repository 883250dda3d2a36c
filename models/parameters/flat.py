"""A torch module whose parameters are views into one flat contiguous float32 vector, shared by NumPy and torch.

See `coordinates` for how vector and module are connected; here all parameters that require gradients are coordinates,
in the order of `module.parameters()`. Frozen parameters and buffers are constants.

A convolution's weights are stored as [out, height, width, in], and the module uses a permuted view, [out, in, height,
width]: torch's channels_last, in which its CPU convolutions are faster. Forward and loss at batch 32 on one core (Xeon
2.5 GHz, torch 2.13, medians), contiguous against channels_last: MNIST CNN 12.7 and 8.4 ms, Fashion CNN 31.0 and 13.6.
(If a batch is itself channels_last, torch reorders contiguous weights, and the difference is small.)

Initial values are PyTorch's default distribution, uniform within ±1/√fan_in (a recurrent layer's within ±1/√hidden).
They are drawn by NumPy, so that they need no torch generator and have the same bits on every processor. **Ours**: an
embedding, normal by default, is uniform within ±√3, with the same mean and variance, because the logarithms and roots
of a normal draw may differ between processors, and the tails hardly matter to a layer that reads eight such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbus.models.parameters.coordinates import Coordinates
from seedbus.models.task import Vector

_FAN_IN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)
_IMAGE_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class FlatModule(Coordinates):
    """A module, those of its parameters that are trained, and its gradient.

    Args:
        module: the module; its parameters that require gradients are trained.
        frozen_statistics: whether running statistics, as of BatchNorm, are constants instead of an error.

    Raises:
        TypeError: the module has running statistics, or trained parameters that are not float32.
    """

    def __init__(self, module: nn.Module, *, frozen_statistics: bool = False) -> None:
        self._named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        _check_flattens(module, self._named, frozen_statistics)
        owned = [layer.weight for layer in module.modules() if isinstance(layer, _IMAGE_CONVOLUTIONS)]
        self._channels_last = set(owned)
        super().__init__(module, list(self._named.values()))
        self._require_gradients(False)
        self._gradient: Vector | None = None

    def shaped(self, span: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return a view of a parameter's coordinates in its shape; convolutions are stored [out, height, width, in]."""
        return self.rows(span, parameter) if parameter in self._channels_last else span.view(parameter.shape)

    def rows(self, values: Tensor, parameter: nn.Parameter) -> Tensor:
        """See `coordinates.Coordinates`."""
        if parameter not in self._channels_last:
            return super().rows(values, parameter)
        _, inputs, height, width = parameter.shape
        return values.view(-1, height, width, inputs).permute(0, 3, 1, 2)

    def by_parameter(self, vector: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return views of a vector, float32 [d], by the parameters whose shapes they have."""
        return dict(zip(self._named.values(), self.views(vector), strict=True))

    @contextmanager
    def differentiated(self) -> Iterator[Vector]:
        """Within this context `backward` adds to the vector, float32 [d], at first zero; later calls reuse it."""
        if self._gradient is None:
            self._gradient = np.zeros_like(self.point)
            for parameter, view in self.by_parameter(self.tensor(self._gradient)).items():
                parameter.grad = view
        self._gradient[:] = 0
        self._require_gradients(True)
        try:
            yield self._gradient
        finally:
            self._require_gradients(False)

    def _require_gradients(self, required: bool) -> None:
        for parameter in self._named.values():
            parameter.requires_grad_(required)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the trained parameters by name, as contiguous copies in the module's shapes."""
        return {name: np.array(p.cpu().numpy(), order="C") for name, p in self._named.items()}

    def constants(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what the module computes with beside its trained parameters, by name."""
        yield from ((name, p) for name, p in self.module.named_parameters() if name not in self._named)
        yield from self.module.named_buffers()


def initial_values(module: nn.Module, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw initial values, float32 [d], from PyTorch's default distributions.

    Args:
        module: the module.
        rng: the source of the draws.

    Raises:
        TypeError: a layer has no initial values defined.
    """
    owners: dict[Tensor, tuple[nn.Module, str]] = {}  # the first owner of a tied parameter, as in module.parameters()
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            owners.setdefault(parameter, (layer, name))
    return np.concatenate([_initial(*owners[parameter], parameter, rng) for parameter in module.parameters()])


def _initial(layer: nn.Module, name: str, parameter: Tensor, rng: np.random.Generator) -> NDArray[np.float32]:
    if isinstance(layer, _FAN_IN):
        return _uniform(1 / math.sqrt(layer.weight[0].numel()), parameter.numel(), rng)
    if isinstance(layer, nn.RNNBase):
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


def running_statistics(module: nn.Module) -> list[str]:
    """Return the names of layers with statistics that training would update, as those of BatchNorm."""
    layers = [name for name, layer in module.named_modules() if getattr(layer, "running_mean", None) is not None]
    return [name or type(module).__name__ for name in layers]


def _check_flattens(module: nn.Module, trained: dict[str, nn.Parameter], frozen_statistics: bool) -> None:
    layers = running_statistics(module)
    if layers and not frozen_statistics:
        raise TypeError(f"{', '.join(layers)}: running statistics are no function of x; use GroupNorm instead")
    others = [name for name, p in trained.items() if p.dtype != torch.float32]
    if others:
        raise TypeError(f"{type(module).__name__} has parameters that are not float32: {', '.join(others)}")
