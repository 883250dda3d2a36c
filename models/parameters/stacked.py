"""Losses at several points of a small network in one call: torch's vmap over rows of parameters.

A small network spends its time in the calls of its operations, and on a GPU in their launches; vmap makes one
operation for all rows of each that a loss consists of. It adds in another order than single losses do, and may add in
another one for another number of rows. So the number of points of a call is part of a scenario.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from seedbus.models.device import vector_on
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.parameters.coordinates import LINE, aligned_zeros
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.task import Vector

FIELD = "task.forward: stacked"
_SLOW = "There is a performance drop|An output with one or more elements was resized"
"""What torch warns of where vmap runs an operation row by row, or in a way that will end."""
CLOSE = 1e-3
"""How far a stacked loss may be from a single one, relative to it: far above rounding, far below another function."""


class StackedLoss:
    """The losses of a network on one batch at several points.

    Args:
        flat: the network.
        loss: maps inputs and labels to the loss, by the network.
        count: number of points.

    Attributes:
        points: the points, float32 [d] each; the caller writes into them.
    """

    def __init__(self, flat: FlatModule, loss: Callable[[Any, Tensor], Tensor], count: int) -> None:
        width = -(-flat.dimension // LINE) * LINE  # each point begins at a cache line
        memory = vector_on(aligned_zeros(count * width), flat.device)
        self.points: list[Vector] = [memory[at : at + flat.dimension] for at in range(0, count * width, width)]
        rows = flat.tensor(memory).view(count, width)[:, : flat.dimension]
        views = torch.vmap(lambda row: tuple(flat.views(row)))(rows)
        self._parameters = {f"network.{name}": view for name, view in zip(flat.names, views, strict=True)}
        self._flat, self._loss = flat, loss
        self._module = LossOf(flat.module, loss)

    def losses(self, inputs: Any, labels: Tensor, count: int) -> Tensor:
        """Return the losses at the first `count` points, [count]."""

        def at_one(parameters: dict[str, Tensor]) -> Tensor:
            loss: Tensor = functional_call(self._module, parameters, (inputs, labels))
            return loss.reshape(())

        return torch.vmap(at_one)({name: rows[:count] for name, rows in self._parameters.items()})

    def write(self, x: NDArray[np.float32]) -> None:
        """Write one vector, float32 [d], to all points."""
        for point in self.points:
            np.copyto(point, x)

    def check(self, x0: NDArray[np.float32], inputs: Any, labels: Tensor) -> None:
        """Compare losses around x₀, float32 [d], with single ones. Raises `DataError` for a network that vmap refuses.

        Args:
            x0: the initial point.
            inputs: a batch.
            labels: the labels of that batch.
        """
        for row, point in enumerate(self.points):
            np.copyto(point, x0 * np.float32(1 - row / (8 * len(self.points))))
        with torch.no_grad():
            nothing = np.full_like(x0, np.nan)  # so that a weight shows which vmap is not given
            with _naming_layer(self._flat.module), self._flat.at(nothing), warnings.catch_warnings():
                warnings.filterwarnings("error", message=_SLOW)
                stacked = self.losses(inputs, labels, len(self.points)).tolist()
            for point, found in zip(self.points, stacked, strict=True):
                with self._flat.at(point):
                    single = self._loss(inputs, labels).item()
                if not (math.isclose(found, single, rel_tol=CLOSE, abs_tol=CLOSE) or math.isnan(single)):
                    where = f"a network whose stacked loss is {found:.6g} where its loss is {single:.6g}"
                    raise DataError(FIELD, where, "a network that uses its parameters as torch's layers do, or eager")


class LossOf(nn.Module):
    """A loss as a module around its network, whose parameters, `network.NAME`, `functional_call` takes by name."""

    def __init__(self, network: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network, self._loss = network, loss

    def forward(self, *batch: Any) -> Tensor:
        return self._loss(*batch)


@contextmanager
def _naming_layer(module: nn.Module) -> Iterator[None]:
    """Turn an error of vmap into one sentence that names the layer in which it is raised. Raises `DataError`."""
    running: list[str] = []

    def entered(name: str) -> Any:
        return lambda *_: running.append(name)

    hooks: list[Any] = []
    for name, layer in module.named_modules():
        hooks += [
            layer.register_forward_pre_hook(entered(f"layer {name} ({type(layer).__name__})")),
            layer.register_forward_hook(lambda *_: running.pop() and None),
        ]
    try:
        yield
    except Exception as error:  # torch raises unrelated types
        if is_out_of_memory(error):
            raise
        where = running[-1] if running else "a loss"
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise DataError(FIELD, f"{where}, which vmap cannot run ({reason})", "task.forward: eager") from None
    finally:
        for hook in hooks:
            hook.remove()
