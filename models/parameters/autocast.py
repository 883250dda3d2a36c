"""The type in which a forward pass computes its products: float32, or bfloat16 by torch's mixed precision.

The invariant: what decides between losses, a model's head and the loss itself, is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


class Autocast:
    """How a module computes."""

    def __init__(self, compute_dtype: str, device: Callable[[], torch.device | None]) -> None:
        """Choose.

        Args:
            compute_dtype: "float32" or "bfloat16".
            device: returns where the module lies; None: on the processor.
        """
        self._computes_in: torch.dtype = getattr(torch, compute_dtype)
        self._device = device

    def products(self) -> AbstractContextManager[Any]:
        """Within this context products are computed in the type; a weight is rounded to it each time it is used."""
        return self._context(is_narrow=True)

    def float32_head(self, head: nn.Module, chosen: Callable[[Tensor], Tensor] = lambda hidden: hidden) -> None:
        """Let a layer compute in float32 within `products`.

        Args:
            head: the layer.
            chosen: returns those of its inputs that it shall see.
        """
        product = head.forward

        def forward(hidden: Tensor) -> Any:
            with self._context(is_narrow=False):
                return product(chosen(hidden).float())

        head.forward = forward

    def _context(self, *, is_narrow: bool) -> AbstractContextManager[Any]:
        if self._computes_in == torch.float32:
            return nullcontext()
        kind = (self._device() or torch.device("cpu")).type
        return torch.autocast(kind, self._computes_in, enabled=is_narrow, cache_enabled=False)
