"""Derivatives along one direction, by torch's forward-mode automatic differentiation.

A forward pass carries with each value v its derivative v' along the direction, the tangent. A layer needs only those of
its inputs, so no activation is kept, as a gradient needs them all (Spry, arXiv:2405.15551). Each product Wy takes
three: Wy, W'y and Wy'. Nothing is perturbed, so there is no μ, and no two losses are subtracted.

The invariant: a derivative is that of the loss which `gradient` differentiates, at the module's point, where kinks
count as they do there; but operations that have no forward derivative are computed by others of the same function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from seedbus.models.device import repeatable_gradients
from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.parameters.coordinates import Coordinates
from seedbus.models.parameters.stacked import LossOf

FIELD = "algorithm.estimator"
EXPECTED = "forward, central or projection"


def slope(coordinates: Coordinates, loss: Callable[[], Tensor]) -> Tensor:
    """Return ⟨∇loss, tangent⟩ at the point of a module, a tensor of one number that stays on its device.

    Args:
        coordinates: the module with its point and `tangent`.
        loss: computes the loss by the module.
    """
    _ = coordinates.point  # the parameters are its views from now on
    with _differentiating(coordinates):
        found = _passed(coordinates, [parameter.data for parameter in coordinates.parameters], loss)
        # `check` has found a derivative, so a loss without one uses no trained weight in this batch
        derivative: Tensor = torch.zeros_like(found.primal) if found.tangent is None else found.tangent
        return derivative


def check(coordinates: Coordinates, loss: Callable[[], Tensor]) -> None:
    """Compute a derivative and its loss where the parameters are NaN beside those that torch is given.

    Args:
        coordinates: the module, whose parameters have the values at which to compute.
        loss: computes the loss by the module.

    Raises:
        DataError: torch cannot differentiate the loss so, the module uses parameters that are no attributes of it, or
            no derivative by its parameters reaches the loss.
    """
    with torch.no_grad():
        plain = loss()
    coordinates.tangent[:] = 1
    try:
        with coordinates.without_values() as values, _differentiating(coordinates):
            found = _passed(coordinates, values, loss)
    except Exception as error:  # torch raises unrelated types
        if is_out_of_memory(error):
            raise
        cause = error.__cause__ if isinstance(error, DataError) and error.__cause__ is not None else error
        reason = str(cause).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise DataError(FIELD, f"forward-mode, and a network that torch cannot run so ({reason})", EXPECTED) from error
    finally:
        coordinates.tangent[:] = 0
    if found.tangent is None:  # an operation without a forward derivative drops it, silently
        raise DataError(FIELD, "forward-mode, and a loss that no derivative by the trained weights reaches", EXPECTED)
    if bool(plain.isfinite().all()) and not bool(torch.stack([found.primal, found.tangent]).isfinite().all()):
        where = "forward-mode, and a network that uses parameters where torch does not tell of it"
        raise DataError(FIELD, where, EXPECTED)


def _passed(coordinates: Coordinates, values: Sequence[Tensor], loss: Callable[[], Tensor]) -> Any:
    """Return the loss and its derivative along the tangent, None if it has none, with parameters of these values."""
    torch_ad: Any = forward_ad  # without types
    tangents = coordinates.views(coordinates.tensor(coordinates.tangent))
    duals = {
        f"network.{name}": torch_ad.make_dual(value, along)
        for name, value, along in zip(coordinates.names, values, tangents, strict=True)
    }
    return torch_ad.unpack_dual(functional_call(LossOf(coordinates.module, loss), duals, ()).reshape(()))


@contextmanager
def _differentiating(coordinates: Coordinates) -> Iterator[None]:
    """Within this context values may have tangents, and layers compute by operations that have forward derivatives.

    Gradients stay enabled, for layers that compute otherwise without, but no value requires one: no graph is made.
    """
    _load_rules()
    layers = list(coordinates.module.modules())
    with ExitStack() as stack:
        stack.enter_context(repeatable_gradients(coordinates.module, coordinates.device))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if any(isinstance(layer, nn.RNNBase) for layer in layers):
            stack.enter_context(_without_onednn())
        for layer in layers:
            if isinstance(layer, nn.GroupNorm):  # its derivative takes no images in channels_last
                stack.callback(layer.register_forward_pre_hook(_contiguous).remove)
        stack.enter_context(forward_ad.dual_level())
        yield


@cache
def _load_rules() -> None:
    """Let torch compile, by what it calls deprecated itself, the rules that the first tangent of a process loads."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))  # type: ignore[no-untyped-call]


def _contiguous(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(each.contiguous() for each in inputs)


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Within this context layers do not use oneDNN, whose recurrent ones have no forward derivative."""
    onednn: Any = torch.backends.mkldnn
    before = onednn.enabled
    onednn.enabled = False
    try:
        yield
    finally:
        onednn.enabled = before
