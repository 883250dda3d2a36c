"""A network of the user as one flat vector, and what its forward pass must promise.

The invariant: a loss is a function of x, the batch and constants. So a forward pass that changes its weights, buffers
or inputs, or draws at random, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.own_code.named import name_of
from seedbus.models.own_code.network import BatchNorm, built_alike, digest, packed, reason
from seedbus.models.own_code.repeated import repeated
from seedbus.models.parameters.coordinates import add_tensor
from seedbus.models.parameters.flat import FlatModule


class OwnNetwork:
    """A network that a function of the user returns.

    Args:
        network: as `built` takes it.
        seed: the run's.
        field: the field of the scenario that names it, for messages.
        batch_norm: what to do with running statistics.

    Attributes:
        field: as given.
        name: the function's name.
        flat: the network.
        x0: the initial point, float32 [d]: the weights that the function gave it.

    Raises:
        DataError: the function fails, or what it returns cannot be trained.
    """

    def __init__(self, network: Any, seed: int, *, field: str, batch_norm: BatchNorm = "refused") -> None:
        self.field, self.name = field, name_of(network)
        module, again = built_alike(network, seed, field=field, batch_norm=batch_norm)
        self.flat = FlatModule(module, frozen_statistics=True)
        is_apart = set(module.parameters()).isdisjoint(again.parameters())  # a function may return its layers again
        self._unused = FlatModule(again, frozen_statistics=True) if is_apart else None
        self.x0 = self.flat.values()

    def identity(self, data: bytes) -> bytes:
        """Return a digest of the network's frozen parameters and buffers, and of a digest of its data, 16 bytes."""
        state = hashlib.blake2b(data, digest_size=16)
        for name, constant in [*self.flat.constants(), *packed(self.flat.module)]:
            add_tensor(state, name, constant)
        return state.digest()

    def passed(self, forward: Callable[[Any], Any], inputs: Any) -> Any:
        """Return the outputs for a batch of inputs. Raises `DataError` if the forward pass fails."""
        try:
            return forward(inputs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            where = f"a forward pass that fails on inputs {shapes_of(inputs)} ({reason(error)})"
            raise DataError(self.field, where, ways_out(error) or "a network for the data set's inputs") from error

    def check_passes(self, forward: Callable[[Any], Any], batch: Callable[[], Any]) -> Any:
        """Compute the outputs of one batch more than once, and return them.

        Args:
            forward: returns outputs for inputs.
            batch: makes the batch's inputs anew.

        Raises:
            DataError: the forward pass fails, changes what it must not, or draws at random.
        """
        before, inputs = digest(self.flat.module), batch()
        with torch.no_grad():  # a second call may write to the same tensor
            first, is_equal = repeated(
                lambda: tree_map_only(Tensor, torch.clone, self.passed(forward, inputs)), equal_tensors, calls=2
            )
        if digest(self.flat.module) != before:
            found = "a forward pass that changes parameters or buffers"
            raise DataError(self.field, found, "one that changes neither")
        if not is_equal and not equal_tensors(inputs, batch()):
            raise DataError(self.field, "a forward pass that changes its inputs", "one that changes a copy of them")
        if not is_equal:
            expected = "a forward pass that draws nothing at random (the network is in evaluation mode)"
            raise DataError(self.field, "other outputs for the same inputs at a second call", expected)
        self._check_memory(forward, batch)
        return first

    def _check_memory(self, forward: Callable[[Any], Any], batch: Callable[[], Any]) -> None:
        """Compare the outputs at another point with those of a network that was never used. Raises `DataError`."""
        unused, self._unused = self._unused, None
        if unused is None:
            return
        moved, module, outputs = self.flat.values(), self.flat.module, []
        moved[:] = self.x0 + np.sin(np.arange(moved.size)) / 64
        for flat in (self.flat, unused):
            with torch.no_grad(), flat.at(moved):
                self.flat.module = flat.module
                outputs.append(tree_map_only(Tensor, torch.clone, self.passed(forward, batch())))
        self.flat.module = module
        if not equal_tensors(*outputs):
            found = f"outputs of {self.name} that depend on an earlier call, as if it kept what it made of its weights"
            raise DataError(self.field, found, "a forward pass that computes all from the weights that it has")


def ways_out(error: BaseException) -> str | None:
    """Return what would be accepted instead of a network that fails so; None: nothing is known."""
    if "more than 1 value per channel" not in str(error):
        return None
    return (
        "batches of two samples or more, or norms that need no batch: GroupNorm, LayerNorm, or BatchNorm with running "
        "statistics and task.batch_norm: frozen"
    )


def shapes_of(value: Any) -> str:
    """Return types and shapes of the tensors in a structure of them, for messages."""
    tensors = [f"{each.dtype}{list(each.shape)}" for each in tree_leaves(value) if isinstance(each, Tensor)]
    return ", ".join(tensors).replace("torch.", "") or f"of type {type(value).__name__}"


def equal_tensors(first: Any, second: Any) -> bool:
    """Whether two structures have the same tensors."""
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs if isinstance(a, Tensor))
