"""The user's network: built under random generators that are seeded from the run's seed, and checked.

The invariant: two calls with one seed return the same weights and buffers, in every process.
"""

from __future__ import annotations

import copy
import hashlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from seedbus.keyed import keyed_bits
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.own_code.named import found, name_of
from seedbus.models.own_code.repeated import generators_kept
from seedbus.models.parameters.coordinates import add_tensor
from seedbus.models.parameters.flat import running_statistics

_MODELS, _TORCH = (str(Path(file).parent) for file in (Path(__file__).parent, torch.__file__))
BatchNorm = Literal["refused", "frozen"]
TORCH_FIELD = "task.network"
"""The field of task `torch`."""


def built(network: Any, seed: int, *, field: str, batch_norm: BatchNorm = "refused") -> nn.Module:
    """Return a new module, with the weights that the user's function gave it.

    Args:
        network: a function that returns a module, a module, or the name of a function.
        seed: the run's; generators are seeded from it while the function runs, and then as they were before.
        field: the field of the scenario that names it, for messages.
        batch_norm: what to do with running statistics: refuse them, or keep them as they are.

    Raises:
        DataError: the function fails, or what it returns cannot be trained.
    """
    name, given = name_of(network), found(network, field)
    if isinstance(given, nn.Module):
        try:
            module = copy.deepcopy(given)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            found_there = f"{name}, a module that cannot be copied ({reason(error)})"
            raise DataError(field, found_there, "a function that returns it") from error
    else:
        module = called(given, field, name, keyed_bits("network", seed))
    _check(module, name, field, batch_norm)
    return module


def built_alike(network: Any, seed: int, *, field: str, batch_norm: BatchNorm) -> tuple[nn.Module, nn.Module]:
    """Return two new modules, as `built` does, if a second call gives the same one. Raises `DataError`."""
    module, again = (built(network, seed, field=field, batch_norm=batch_norm) for _ in range(2))
    if digest(module) != digest(again):
        raise DataError(
            field,
            f"other weights at a second call of {name_of(network)}",
            "the same at each call: loaded, or drawn from torch's or NumPy's generator, which are seeded for the call",
        )
    return module, again


def trained_size(module: nn.Module) -> int:
    """Return the number of parameters that require gradients; a tied parameter counts once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def initial_statistics(module: nn.Module) -> list[str]:
    """Return the names of layers whose running statistics are those of a new layer: mean 0 and variance 1."""
    found = []
    for name, layer in module.named_modules():
        mean, variance = getattr(layer, "running_mean", None), getattr(layer, "running_var", None)
        if mean is not None and variance is not None and not mean.any() and (variance == 1).all():
            found.append(name or type(layer).__name__)
    return found


def digest(module: nn.Module) -> bytes:
    """Return a digest of a module's parameters and buffers, 16 bytes."""
    state = hashlib.blake2b(digest_size=16)
    for name, tensor in [*module.named_parameters(), *module.named_buffers(), *packed(module)]:
        add_tensor(state, name, tensor)
    return state.digest()


def packed(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights that are neither parameters nor buffers, as those of quantised layers, by name."""
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            tensors = [each for each in tree_leaves(value) if isinstance(each, Tensor)]
            yield from ((name, each.dequantize() if each.is_quantized else each) for each in tensors)


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its type; with the line of the user's code that raised it."""
    text = str(error).strip().partition("\n")[0]
    frames = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if not file.startswith((_MODELS, _TORCH))]
    at = f", {own[-1][0]} line {own[-1][1]}" if own else ""
    return f"{type(error).__name__}: {text}{at}" if text else f"{type(error).__name__}{at}"


def called(function: Any, field: str, name: str, key: int) -> Any:
    """Return what a function of the user returns, with torch's, NumPy's and Python's generators seeded from a key.

    Args:
        function: takes no arguments.
        field: the field of the scenario that names it.
        name: the function's name, for messages.
        key: 64 bits.

    Raises:
        DataError: the function fails.
    """
    try:
        with generators_kept(key):
            return function()
    except DataError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise DataError(field, f"{name}, which fails ({reason(error)})", "a function without arguments") from error


def _check(module: Any, name: str, field: str, batch_norm: BatchNorm) -> None:
    if not isinstance(module, nn.Module):
        raise DataError(field, f"{name}, which returns a {type(module).__name__}", "a torch.nn.Module")
    try:
        module.eval()
    except NotImplementedError as error:
        found_there = f"{name} with a program that torch.export made, which has no evaluation mode ({reason(error)})"
        raise DataError(field, found_there, "the network that was exported") from None
    named = [*module.named_parameters(), *module.named_buffers()]
    lazy = [name for name, tensor in named if is_lazy(tensor)]
    if lazy:
        raise DataError(
            field,
            f"{name} without a shape yet: {lazy[0]}",
            "layers with all sizes, such as nn.Linear, or one forward pass before it is returned",
        )
    elsewhere = [f"{each} on {tensor.device}" for each, tensor in named if tensor.device.type != "cpu"]
    if elsewhere:
        raise DataError(field, f"{name} with {elsewhere[0]}", "a network on the CPU")
    sparse = [each for each, tensor in named if tensor.layout != torch.strided]
    if sparse:
        raise DataError(field, f"{name} with {sparse[0]}, which is sparse", "dense tensors (to_dense())")
    trained = {each: parameter for each, parameter in module.named_parameters() if parameter.requires_grad}
    others = [f"{each} in {p.dtype}".replace("torch.", "") for each, p in trained.items() if p.dtype != torch.float32]
    if others:
        raise DataError(field, f"{name} with {others[0]}", "trained parameters in float32 (module.float())")
    if not trained:
        raise DataError(
            field, f"{name} without a parameter that requires gradients", "at least one; quantised layers have none"
        )
    limited = [
        each or type(layer).__name__
        for each, layer in module.named_modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None
    ]
    if limited:
        where = f"{name} with max_norm in {limited[0]}: a forward pass changes its weights"
        raise DataError(field, where, "an embedding without max_norm")
    layers = running_statistics(module)
    if layers and batch_norm == "refused":
        task = "task.batch_norm: frozen" if field == TORCH_FIELD else "task: torch with batch_norm: frozen"
        raise DataError(
            field,
            f"{name} with running statistics in {layers[0]}: state outside x that no seed and scalar could rebuild",
            f"GroupNorm or LayerNorm instead, or {task} to keep the statistics as they are",
        )
