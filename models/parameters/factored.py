"""Losses at points x + s·z(p) whose directions z are of low rank: all in one pass, whose matrices are those of x.

A layer with the weight W + U(p)Vᵀ takes x(p) to x(p)Wᵀ + (x(p)V)U(p)ᵀ. So W is read once for all points, no matrix of a
point is formed, and what all points have in common is computed once: values that no perturbed weight has entered yet,
and their product with W. (EGGROLL, Sarkar et al. 2025, arXiv:2511.16652, has the same for a population of strategies.)
Other parameters, such as biases and the weights of normalisation layers, are small, and each point has its own.

torch's vmap runs the network for all points, and keeps apart which values depend on them. Inside, a mode takes each of
torch's functions that is given a matrix, and computes it by factors; it refuses those that it has no rule for.

The invariant: the operations on one batch, and their shapes, depend on the batch and the number of points alone. So a
client's losses do not depend on which other clients its process hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.parameters.coordinates import FORMS, Coordinates
from seedbus.models.parameters.products import product
from seedbus.models.parameters.stacked import CLOSE, LossOf

FIELD = "algorithm.forward"
EXPECTED = "a network of linear layers, convolutions and embeddings, or algorithm.forward: each"


ROWS = 512
"""Most rows of a product, if those of one point are not more: oneDNN is slower by a half with 5,000 than with 500."""


class Factor(Protocol):
    """The perturbations of one parameter at n points; see `algorithms.objective.Factor`."""

    @property
    def left(self) -> NDArray[np.float32]: ...
    @property
    def right(self) -> NDArray[np.float32] | None: ...


class Perturbed(NamedTuple):
    """A matrix at the points: weight + left · right.

    Attributes:
        weight: at x, in the parameter's shape, [rows, …].
        left: U of each point, [n, rows, r], of which a function within vmap sees one.
        right: Vᵀ in the shape of r rows of the parameter, [r, …].
    """

    weight: Tensor
    left: Tensor
    right: Tensor


def losses(coordinates: Coordinates, factors: Sequence[Factor], loss: Callable[[], Tensor]) -> Tensor:
    """Return losses at points around that of a module, [n]; they stay on their device.

    Args:
        coordinates: the module with its point.
        factors: the perturbations of each parameter, in their order.
        loss: computes the loss by the module.

    Raises:
        DataError: the module uses a matrix in a way that has no rule.
    """
    _ = coordinates.point  # the parameters are its views from now on
    return _passed(coordinates, [parameter.data for parameter in coordinates.parameters], factors, loss)


def check(coordinates: Coordinates, loss: Callable[[], Tensor]) -> None:
    """Compute a loss by factors of 0 where the parameters are NaN beside those that torch is given.

    Args:
        coordinates: the module, whose parameters have the values at which to compute.
        loss: computes the loss by the module.

    Raises:
        DataError: the loss is another one, or cannot be computed so.
    """
    with torch.no_grad():
        plain = loss()
    try:
        with coordinates.without_values() as values:
            found = _passed(coordinates, values, [_still(parameter) for parameter in coordinates.parameters], loss)
    except Exception as error:  # torch raises unrelated types
        is_told = isinstance(error, DataError) and error.__cause__ is None
        if is_told or is_out_of_memory(error):
            raise
        reason = str(error.__cause__ or error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise DataError(FIELD, f"factored, and a network that vmap cannot run ({reason})", EXPECTED) from error
    if not torch.allclose(found, plain.reshape(1), rtol=CLOSE, atol=CLOSE, equal_nan=True):
        where = f"factored, and a network whose loss is then {found[0].item():.6g} where it is {plain.item():.6g}"
        raise DataError(FIELD, where, EXPECTED)


class _Still(NamedTuple):
    left: NDArray[np.float32]
    right: NDArray[np.float32] | None


def _still(parameter: nn.Parameter) -> _Still:
    """Return a perturbation of 0, at two points."""
    if not is_matrix(tuple(parameter.shape)):
        return _Still(np.zeros((2, parameter.numel()), np.float32), None)
    rows, columns = parameter.shape[0], parameter[0].numel()
    return _Still(np.zeros((2, rows, 1), np.float32), np.zeros((1, columns), np.float32))


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a parameter of this shape has a direction of low rank."""
    return len(shape) > 1 and math.prod(shape) > 0


def _passed(
    coordinates: Coordinates, values: Sequence[Tensor], factors: Sequence[Factor], loss: Callable[[], Tensor]
) -> Tensor:
    """Return the losses of one pass, whose parameters at x are these values, [n]."""

    def beside(array: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(array).to(coordinates.device or "cpu")

    others: dict[str, Tensor] = {}
    matrices: dict[Tensor, tuple[Tensor, Tensor]] = {}
    lefts: list[Tensor] = []
    every = zip(coordinates.names, coordinates.parameters, values, factors, strict=True)
    for name, parameter, value, factor in every:
        left = beside(factor.left)
        if factor.right is None:
            others[f"network.{name}"] = value + left.view(-1, *value.shape)
        else:
            matrices[parameter] = value, coordinates.rows(beside(factor.right), parameter)
            lefts.append(left)
    module = LossOf(coordinates.module, loss)

    def at_one(lefts: list[Tensor], others: dict[str, Tensor]) -> Tensor:
        perturbed = {
            parameter: Perturbed(weight, left, right)
            for (parameter, (weight, right)), left in zip(matrices.items(), lefts, strict=True)
        }
        with _ByFactors(perturbed):
            found: Tensor = functional_call(module, others, ())
            return found.reshape(())

    return torch.vmap(at_one)(lefts, others)


class _ByFactors(TorchFunctionMode):
    """Computes by factors each function of torch that is given a perturbed matrix."""

    def __init__(self, perturbed: Mapping[Tensor, Perturbed]) -> None:
        super().__init__()
        self._perturbed = dict(perturbed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [] if func in FORMS else [*self._matrices_in((args, kwargs))]
        if not given:
            return _FOLDED.get(func, func)(*args, **kwargs)
        if func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.int64:
            return self._chosen(self._perturbed[given[0]], args[1])
        rule = _RULES.get(func)
        found = NotImplemented if rule is None or len(given) > 1 else rule(self._perturbed[given[0]], *args, **kwargs)
        if found is NotImplemented:
            shape = list(given[0].shape)
            named = getattr(func, "__self__", func) if "__get__" in str(func) else func
            name = getattr(named, "__name__", str(func)).lstrip("_")
            raise DataError(FIELD, f"factored, and a trained matrix {shape} in torch's `{name}`", EXPECTED)
        return found

    def _chosen(self, of: Perturbed, rows: Tensor) -> Tensor:
        """Return some rows of a matrix, as a perturbed matrix of their own: a head computes some tokens' logits."""
        chosen = of.weight[rows]
        self._perturbed[chosen] = Perturbed(chosen, of.left[rows], of.right)
        return chosen

    def _matrices_in(self, value: Any) -> Iterator[Tensor]:
        """Yield the perturbed matrices in the arguments of a function."""
        if isinstance(value, Tensor):
            if value in self._perturbed:
                yield value
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._matrices_in(each)
        elif isinstance(value, dict):
            yield from self._matrices_in([*value.values()])


class _Linear(torch.autograd.Function):
    """x(p)Wᵀ + (x(p)V)U(p)ᵀ of all points p: one product by W, and by V, where vmap would have one for each."""

    @staticmethod
    def forward(*_: Any) -> Tensor:
        raise RuntimeError("a product by factors outside of vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: there is no backward pass."""

    @staticmethod
    def vmap(
        info: Any,
        dims: Any,
        multiply: Callable[..., Tensor],
        inputs: Tensor,
        weight: Tensor,
        right: Tensor,
        left: Tensor,
    ) -> tuple[Tensor, int]:
        """Return the outputs, [n, …, out], and that their first axis has the points."""
        is_common = dims[1] is None
        shape = inputs.shape[:-1] if is_common else inputs.movedim(dims[1], 0).shape[1:-1]
        count = shape.numel()
        rows = (inputs if is_common else inputs.movedim(dims[1], 0)).reshape(-1, inputs.shape[-1])
        narrow, left = functional.linear(rows, right), left.movedim(dims[4], 0)
        if is_common:
            base = multiply(rows, weight).expand(info.batch_size, -1, -1)
            sums = torch.baddbmm(base, narrow.expand(info.batch_size, -1, -1), left.to(narrow.dtype).mT)
            return sums.view(info.batch_size, *shape, -1), 0
        sums = narrow.new_empty(info.batch_size, count, len(weight))
        together = max(ROWS // max(count, 1), 1)
        parts = zip(
            _split(rows, together * count), _split(narrow, together * count), _split(left, together), strict=True
        )
        for out, (part, few, into) in zip(_split(sums, together), parts, strict=True):
            base = multiply(part, weight).view(out.shape)
            torch.baddbmm(base, few.view(len(out), count, -1), into.to(few.dtype).mT, out=out)
        return sums.view(info.batch_size, *shape, -1), 0


def _split(tensor: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return the parts of a tensor with so many rows each, of which the last one may have fewer."""
    return torch.split(tensor, size)


class _Folded(torch.autograd.Function):
    """A function of rows or of texts, called once for those of all points, where vmap calls it once for each point."""

    @staticmethod
    def forward(call: Callable[..., Tensor], folded: int, *tensors: Tensor) -> Tensor:
        return call(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: there is no backward pass."""

    @staticmethod
    def vmap(info: Any, dims: Any, call: Callable[..., Tensor], folded: int, *tensors: Tensor) -> tuple[Tensor, int]:
        """Return the outputs, [n, …], and that their first axis has the points; see `_fold`."""
        each = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors[:folded], dims[2:], strict=False)
        ]
        found = call(*(tensor.flatten(0, 1) for tensor in each), *tensors[folded:])
        return found.view(info.batch_size, -1, *found.shape[1:]), 0


def _fold(call: Callable[..., Tensor], *tensors: Tensor, constant: Sequence[Tensor] = ()) -> Tensor:
    """Return call(*tensors, *constant), whose tensors have rows or texts as their first axis, [rows, …] each."""
    return _Folded.apply(call, len(tensors), *tensors, *constant)  # type: ignore[no-any-return, no-untyped-call]


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a product by a weight that is the same at all points."""
    found = _fold(product, inputs.reshape(-1, inputs.shape[-1]), constant=[weight])
    found = found.view(*inputs.shape[:-1], -1)
    return found if bias is None else found + bias


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
    """Return scaled dot products' attention, of texts [texts, heads, tokens, width]."""
    if query.dim() != 4 or (attn_mask is not None and attn_mask.dim() != 4):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)
    mask = () if attn_mask is None else (attn_mask.expand(len(query), *attn_mask.shape[1:]),)
    return _fold(partial(functional.scaled_dot_product_attention, **options), query, key, value, *mask)


def _group_norm(
    inputs: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return a normalisation of groups, [b, channels, …]; within vmap torch takes no images in channels_last."""
    found = _fold(lambda each: functional.group_norm(each, num_groups, eps=eps), inputs)
    ones = [1] * (inputs.dim() - 2)
    found = found if weight is None else found * weight.reshape(-1, *ones)
    return found if bias is None else found + bias.reshape(-1, *ones)


def _by(multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def linear(of: Perturbed, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        found: Tensor = _Linear.apply(multiply, inputs, of.weight, of.right, of.left)  # type: ignore[no-untyped-call]
        return found if bias is None else found + bias

    return linear


def _embedding(of: Perturbed, ids: Tensor, weight: Tensor, *others: Any, **options: Any) -> Any:
    """Return the rows of some tokens: those of the weight, and those of U times Vᵀ."""
    if options.get("max_norm", next(iter(others[1:]), None)) is not None:
        return NotImplemented  # it changes the weight
    return functional.embedding(ids, of.weight) + functional.embedding(ids, of.left) @ of.right


def _convolution(convolve: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the rule of a convolution: r filters first, and then their outputs into the channels of each point."""

    def rule(
        of: Perturbed,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        places = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        filters = of.right.repeat(groups, *[1] * (of.right.dim() - 1))
        narrow = convolve(inputs, filters, None, **places)
        into = of.left.reshape(*of.left.shape, *[1] * (of.right.dim() - 2))
        found = convolve(inputs, of.weight, None, **places) + convolve(narrow, into, None, groups=groups)
        return found if bias is None else found + bias.reshape(-1, *[1] * (of.right.dim() - 2))

    return rule


def _matmul(of: Perturbed, inputs: Tensor, weight: Tensor) -> Any:
    if isinstance(inputs, Tensor) and weight.dim() == 2 and inputs.shape[-1] == len(of.weight):
        return inputs @ of.weight + (inputs @ of.left) @ of.right
    return NotImplemented


def _addmm(of: Perturbed, added: Tensor, inputs: Tensor, weight: Tensor) -> Any:
    found = _matmul(of, inputs, weight)
    return found if found is NotImplemented else found + added


_RULES: dict[Any, Callable[..., Any]] = {
    functional.linear: _by(functional.linear),
    product: _by(product),
    functional.embedding: _embedding,
    **{each: _convolution(each) for each in (functional.conv1d, functional.conv2d, functional.conv3d)},
    **{each: _matmul for each in (torch.matmul, Tensor.matmul, Tensor.__matmul__)},
    torch.addmm: _addmm,
}
"""What torch's functions compute by factors: given the matrix, and what the function is given."""
_FOLDED: dict[Any, Callable[..., Tensor]] = {
    product: _product,
    functional.scaled_dot_product_attention: _attention,
    functional.group_norm: _group_norm,
}
"""Functions that vmap would call once for each point, or compute by many operations."""
