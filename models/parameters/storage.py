"""Frozen weights in fewer bits than they are computed with: 16, or by bitsandbytes 8 or 4. Each is widened when used.

    int8    1 + 1/16 bytes a weight: whole numbers from −127 to 127, and a scale for every 64 of them
    nf4     1/2 + 1/16 bytes a weight: the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, arXiv:2305.14314)

Only the matrices of layers are quantised, as in QLoRA: embeddings, norms and the head stay in 16 bits. Activations are
never quantised, since rounding them would hide the difference of two losses.

The invariant: weights are quantised on the processor, so their bits are the same whatever the device of a process is;
all that a loss depends on is a parameter or a persistent buffer of the module.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils import parametrize

from seedbus.models.errors import DataError

QUANTISED = ("int8", "nf4")
BLOCK = 64  # weights with one scale
LARGE = 1 << 23  # weights: widened, 32 MiB, for which glibc never uses memory that it keeps


def quieten() -> None:
    """Keep bitsandbytes, which peft imports, from logging what it lacks for faster products that are not used here."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def kept_in(dtype: str) -> str:
    """Return the type in which a model is loaded whose frozen weights are to be stored in `dtype`."""
    return "bfloat16" if dtype in QUANTISED else dtype


def quantise_frozen(module: nn.Module, dtype: str, *, leave: Iterable[nn.Module]) -> None:
    """Store the frozen matrices of layers in 8 or 4 bits.

    Args:
        module: the module; its trained parameters are marked by `requires_grad`.
        dtype: "int8" or "nf4"; anything else changes nothing.
        leave: parts of it that are left as they are, such as its head.

    Raises:
        DataError: bitsandbytes is not installed.
    """
    if dtype not in QUANTISED:
        return
    functional, left = _bitsandbytes(dtype), {layer for part in leave for layer in part.modules()}
    for layer in list(module.modules()):
        if layer in left or not (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"):
            continue
        weight: Any = layer.weight
        if not weight.requires_grad:
            packed, widened = _quantised(functional, weight.detach().float(), dtype)
            layer.weight = nn.Parameter(packed, requires_grad=False)
            parametrize.register_parametrization(layer, "weight", widened, unsafe=True)


def widen_frozen(module: nn.Module) -> None:
    """Keep frozen 16-bit parameters in 16 bits, but compute with them in float32.

    In 16-bit arithmetic, rounding would exceed the difference of two losses. Tied parameters stay tied. Buffers, such
    as the statistics of BatchNorm layers, are few, and are kept in float32 from now on.
    """
    for layer in list(module.modules()):
        for name, buffer in list(layer.named_buffers(recurse=False)):
            if buffer.dtype in (torch.bfloat16, torch.float16):
                layer.register_buffer(name, buffer.float(), persistent=name not in layer._non_persistent_buffers_set)
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if parameter.dtype in (torch.bfloat16, torch.float16) and not parameter.requires_grad:
                parametrize.register_parametrization(layer, name, _Widened(), unsafe=True)
    _give_back_freed()  # what was loaded and converted


def _give_back_freed() -> None:
    """Have glibc give the memory that is freed, and that it keeps, back to the system."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class _Widened(nn.Module):
    """Converts a 16-bit weight to float32 each time that it is used."""

    def forward(self, weight: Tensor) -> Tensor:
        if weight.numel() >= LARGE and weight.device.type == "cpu":
            _give_back_freed()  # what smaller layers were widened into
        return weight.float()


class _Dequantised(nn.Module):
    """Converts a quantised weight to float32 each time that it is used."""

    scales: Tensor
    code: Tensor

    def __init__(self, functional: Any, state: Any, dtype: str, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("scales", state.absmax)  # float32 [blocks]
        self.register_buffer("code", state.code)  # float32: the values that a number of bits stands for
        self._functional, self._shape, self._is_four_bits = functional, shape, dtype == "nf4"

    def forward(self, packed: Tensor) -> Tensor:
        known = {"absmax": self.scales, "code": self.code, "blocksize": BLOCK, "dtype": torch.float32}
        if self._is_four_bits:
            shape = torch.Size((self.scales.numel(), BLOCK))
            state = self._functional.QuantState(shape=shape, quant_type="nf4", **known)
            blocks: Tensor = self._functional.dequantize_4bit(packed, state)
        else:
            blocks = self._functional.dequantize_blockwise(packed, self._functional.QuantState(**known))
        return blocks.view(-1)[: self._shape.numel()].view(self._shape)


def _quantised(functional: Any, weight: Tensor, dtype: str) -> tuple[Tensor, _Dequantised]:
    # one block a row: for rows of other lengths bitsandbytes 0.50 returns wrong weights on processors
    blocks = pad(weight.reshape(-1), (0, -weight.numel() % BLOCK)).view(-1, BLOCK)
    if dtype == "nf4":
        packed, state = functional.quantize_4bit(blocks, blocksize=BLOCK, quant_type="nf4")
    else:
        code = functional.create_linear_map(signed=True, total_bits=8)
        packed, state = functional.quantize_blockwise(blocks, code=code, blocksize=BLOCK)
    return packed, _Dequantised(functional, state, dtype, weight.shape)


def _bitsandbytes(dtype: str) -> Any:
    """Return the functions of bitsandbytes. Raises `DataError` if it is not installed."""
    quieten()
    try:
        from bitsandbytes import functional
    except ImportError as error:
        found = f"{dtype}, and no package bitsandbytes ({error})"
        expected = '`pip install "seedbus[quantized]"`, or bfloat16'
        raise DataError("task.dtype", found, expected) from error
    return functional
