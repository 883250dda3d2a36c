"""A forward pass of a causal model that computes what the loss needs, and nothing else.

    padded (`language_network`)   rows of one width, as transformers takes them
    packed (here)                 all texts in one row, one after the other, without padding

Layers see tokens one by one, so they need no padding; attention is computed for the texts of one length together. The
last block computes keys and values of all tokens, and everything else where answers are scored only. Where answers of
one token each are compared with one another, the head computes their logits alone: the others shift all scores alike.
Products are oneDNN's (`parameters.products`).

Weights, and so x, are those of the padded pass; losses differ from its by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from seedbus.models.errors import DataError, is_out_of_memory
from seedbus.models.parameters.products import product
from seedbus.models.text.last_blocks import blocks_of
from seedbus.models.text.tokens import Batch, Packed, Pair, collate, layout

_ATTENTION = "seedbus-packed"
_PROBE = (Pair([1, 2, 3], [4]), Pair([3, 1, 2, 1, 3], [2, 1, 1]), Pair([2, 1, 1], [5]))


class _Pass(NamedTuple):
    """The packed pass that is being computed.

    Attributes:
        groups: see `Packed`.
        seeks: whether the last block is asked for its keys and values only.
        found: those keys and values, [1, heads, tokens, width] each; None: all tokens are computed.
    """

    groups: Sequence[tuple[int, int, int]]
    seeks: bool = False
    found: tuple[Tensor, Tensor] | None = None


class _Reached(Exception):
    """Carries keys and values out of a block, whose forward pass ends there."""

    def __init__(self, found: tuple[Tensor, Tensor]) -> None:
        self.found = found


_pass = ContextVar[_Pass | None]("_pass", default=None)  # transformers hands nothing of a model to its attention


class PackedModel:
    """Computes scores with a causal model of transformers. Not thread-safe.

    Its linear layers compute their products by oneDNN from now on.
    """

    def __init__(self, model: Any) -> None:
        """Prepare a model whose weights are on the host. Raises `DataError` if it takes no packed pass."""
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        self._model = model
        self._columns: Tensor | None = None  # of the vocabulary, which the head computes; None: all
        self._layout: Packed | None = None
        if model.config._attn_implementation != "sdpa":
            raise self._refused("whose attention is not torch's own")
        AttentionInterface.register(_ATTENTION, _attention)
        AttentionMaskInterface.register(_ATTENTION, sdpa_mask)  # for passes that are not packed
        model.set_attn_implementation(_ATTENTION)
        linears: list[Any] = [layer for layer in model.modules() if type(layer) is nn.Linear]
        for layer in linears:
            layer.forward = _product_of(layer)
        last = blocks_of(model)[-1]
        self._skipped = _Skipped(layer for layer in last.modules() if type(layer) is nn.Linear)
        last.forward = self._scored_only(last.forward)
        head = model.get_output_embeddings()
        head.forward = self._columns_only(head, head.forward)
        self._check()

    @property
    def layout(self) -> Packed | None:
        """The layout of the pass that is being computed; None: it is not packed."""
        return self._layout

    def scores(self, batch: Batch, packed: Packed) -> Tensor:
        """Return the mean log-likelihood of each pair's answer, float32 [pairs].

        Args:
            batch: the batch.
            packed: its layout; if it has `columns`, the scores of a sample's answers are shifted by the same number.
        """
        logits = self._logits(packed)
        if packed.columns is None:
            by_token = log_softmax(logits, dim=-1)[packed.places, batch.targets]
        else:
            by_token = logits[packed.places, packed.choices]
        sums = by_token.new_zeros(len(batch.lengths)).index_add(0, batch.owners, by_token)
        return sums / batch.lengths

    def _check(self) -> None:
        """Compare log-likelihoods of a packed pass with those of a padded one, in float32. Raises `DataError`."""
        batch = collate(_PROBE)
        with torch.inference_mode():
            every = self._model(input_ids=batch.ids, use_cache=False).logits.float()
            padded = log_softmax(every[batch.rows, batch.columns], dim=-1)
            try:
                places = layout(batch)
                packed = log_softmax(self._logits(places), dim=-1)[places.places]
            except Exception as error:  # of a model that has no such arguments
                if is_out_of_memory(error):
                    raise
                raise self._refused(f"({(str(error).splitlines() or [''])[0]})") from error
        if not torch.allclose(packed, padded, rtol=1e-3, atol=1e-3):
            raise self._refused("whose texts are not computed alone")

    def _logits(self, packed: Packed) -> Tensor:
        """Return the logits after the scored tokens, float32 [scored, vocabulary or columns]."""
        self._layout, self._columns = packed, packed.columns
        unused = torch.zeros(1, 1, 1, 1, device=packed.ids.device)  # of the form that transformers leaves as it is
        try:
            with _computing(_Pass(packed.groups)):
                logits: Tensor = self._model(
                    input_ids=packed.ids, position_ids=packed.positions, attention_mask=unused, use_cache=False
                ).logits
        finally:
            self._layout = self._columns = None
        return logits.flatten(end_dim=-2).float()

    def _scored_only(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the last block's forward pass: keys and values of all tokens, all else of the scored ones."""

        def shorter(*args: Any, **kwargs: Any) -> Any:
            packed = self._layout
            if packed is None:
                return forward(*args, **kwargs)
            with _computing(_Pass(packed.groups, seeks=True)):
                found = self._skipped.reach(lambda: forward(*args, **kwargs))
            args, kwargs = _at((args, kwargs), packed.scored, packed.ids.shape[1])
            with _computing(_Pass(packed.groups, found=found)):
                return forward(*args, **kwargs)

        return shorter

    def _columns_only(self, head: Any, forward: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def fewer(hidden: Tensor) -> Any:
            if self._columns is None:
                return forward(hidden)
            bias = None if head.bias is None else head.bias[self._columns]
            return product(hidden, head.weight[self._columns], bias)

        return fewer

    def _refused(self, why: str) -> DataError:
        return DataError("task.batching", f"packed, and {type(self._model).__name__} {why}", "padded")


class _Skipped:
    """The linear layers of a block of which its keys and values do not depend, such as that of queries."""

    def __init__(self, layers: Iterable[nn.Linear]) -> None:
        self._layers = list(layers)
        self._unused: list[nn.Linear] | None = None

    def reach(self, attend: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Return the keys and values with which a block calls its attention; these layers are not computed."""
        if self._unused is None:  # at the first call, of a check
            self._unused = [each for each in self._layers if self._is_unused(each, attend)]
        return self._reached(attend, self._unused, 0)

    def _is_unused(self, layer: nn.Linear, attend: Callable[[], Any]) -> bool:
        return all(bool(each.isfinite().all()) for each in self._reached(attend, [layer], math.nan))

    def _reached(self, attend: Callable[[], Any], skipped: Iterable[nn.Linear], value: float) -> tuple[Tensor, Tensor]:
        """Return keys and values where the outputs of some layers are one number."""
        with ExitStack() as stack:
            for layer in skipped:
                stack.callback(setattr, layer, "forward", layer.forward)
                layer.forward = _constant(layer, value)  # type: ignore[assignment, method-assign]
            try:
                attend()
            except _Reached as reached:
                return reached.found
        raise RuntimeError("its last block does not attend")


def _constant(layer: nn.Linear, value: float) -> Callable[[Tensor], Tensor]:
    """Return a layer's forward pass with one number as its outputs, of the type that it computes."""

    def forward(inputs: Tensor) -> Tensor:
        number = torch.full((1,), value, dtype=inputs.dtype, device=inputs.device)
        return number.expand(*inputs.shape[:-1], layer.out_features)

    return forward


def _product_of(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda inputs: product(inputs, layer.weight, layer.bias)


@contextmanager
def _computing(passed: _Pass) -> Iterator[None]:
    token = _pass.set(passed)
    try:
        yield
    finally:
        _pass.reset(token)


def _at(value: Any, places: Tensor, tokens: int) -> Any:
    """Return arguments of a block with those tensors that hold all tokens, [1, tokens, …], at some of them."""
    if isinstance(value, Tensor):
        return value[:, places] if value.dim() > 1 and value.shape[1] == tokens else value
    if isinstance(value, dict):
        return {name: _at(each, places, tokens) for name, each in value.items()}
    return tuple(_at(each, places, tokens) for each in value) if isinstance(value, tuple | list) else value


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Any]:
    """Attend within texts. See `transformers.integrations.sdpa_attention`, which computes it.

    Args:
        module: the layer.
        query: [1, heads, tokens, width], of the scored tokens if the pass has `found` keys.
        key: [1, heads, tokens, width].
        value: the same.
        attention_mask: None or unused in a packed pass.
        options: scaling and sliding window, for example.

    Returns:
        [1, tokens, heads, width], and no weights.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward as attend

    passed = _pass.get()
    if passed is None:
        return attend(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    if passed.seeks:
        raise _Reached((key, value))
    keys, values = passed.found or (key, value)
    window, parts, first, start = options.get("sliding_window"), [], 0, 0
    for rows, length, scored in passed.groups:
        asked = length if passed.found is None else scored
        queries = _texts(query, first, rows, asked)
        own = [_texts(each, start, rows, length) for each in (keys, values)]
        mask = _mask(asked, length, window, query.device)
        part, _ = attend(module, queries, *own, mask, **options | {"is_causal": mask is None and asked > 1})
        parts.append(part.flatten(0, 1))
        first, start = first + rows * asked, start + rows * length
    return torch.cat(parts)[None], None


def _texts(tokens: Tensor, first: int, rows: int, length: int) -> Tensor:
    """Return the texts of one length that begin at a place, [rows, heads, length, width]."""
    own = tokens[0, :, first : first + rows * length]
    return own.reshape(len(own), rows, length, -1).transpose(0, 1)


def _mask(asked: int, length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return which tokens the last tokens of a text see, [1, 1, asked, length]; None: torch's rule, or all."""
    is_wide = window is None or length <= window
    if is_wide and asked in (1, length):
        return None
    after = torch.arange(length, device=device) - torch.arange(length - asked, length, device=device)[:, None]
    seen = (after <= 0) if is_wide else (after <= 0) & (after > -int(window or 0))
    return seen[None, None]
