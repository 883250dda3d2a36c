"""Directions for torch tensors on a CUDA device, in Triton: the same methods and the same bits as the other backends.

Tensors are one-dimensional, contiguous, float32 or bfloat16 (or its bits, int16), and all of one size on one device.
The arithmetic is always float32: a bfloat16 is widened when it is read, and a result is rounded once when it is
written, to nearest, ties to even.

A NaN appears wherever it does in the reference, but its payload bits depend on the device.

Without a GPU the kernels run in Triton's interpreter, slowly and on the CPU, if TRITON_INTERPRET is 1 in the
environment before Triton is imported. Install Triton with `pip install seedbus[gpu]`; without it, importing this module
raises ImportError.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Unpack

import numpy as np
import torch
import triton
from numpy.typing import ArrayLike
from torch import Tensor

from seedbus.algorithms.directions import triton_kernels as kernels
from seedbus.algorithms.directions.contract import Place, Step, check_stream, stream_key
from seedbus.algorithms.directions.laws.law import Law

IS_INTERPRETED: Final = not isinstance(kernels.fill, triton.JITFunction)
STORAGE: Final = {torch.float32: torch.float32, torch.bfloat16: torch.int16, torch.int16: torch.int16}
"""dtype of a tensor → dtype under which the kernels read and write its memory."""


@dataclass(frozen=True)
class TritonDirections:
    """Directions of one law, on the device of the tensors."""

    law: Law

    def _table(self, device: torch.device) -> Tensor:
        """Return the upper half of the table of z on a device."""
        return table(self.law, device)

    def _words(self, where: Step, *perturbation: int) -> tuple[int, ...]:
        """Return the first coordinate, and the words of counter and key, as a kernel takes them."""
        signed = _signed(where["step"], *perturbation, *stream_key(self.law, where["seed"]))
        return where.get("start", 0), *signed

    def fill(self, out: Tensor, **where: Unpack[Place]) -> None:
        """Write out = z(step, perturbation)[start : start + len(out)]."""
        check_tensors(out)
        check_stream(self.law, len(out), **where)
        words = self._words(where, where["perturbation"])
        launch(kernels.fill, self.law, out, as_stored(out), self._table(out.device), len(out), *words)

    def accumulate(
        self, out: Tensor, coefficients: ArrayLike, divisor: Tensor | None = None, **where: Unpack[Step]
    ) -> None:
        """Write out = (Σ_p coefficients[p] · z(step, p)) / divisor, with coefficients [P] rounded to float32."""
        scales = torch.from_numpy(np.array(coefficients, np.float32))
        check_tensors(out, divisor)
        check_stream(self.law, len(out), perturbation=len(scales), **where)
        words = self._words(where)
        sums = (scales.to(out.device), len(scales), self._table(out.device), len(out))
        launch(kernels.accumulate, self.law, out, as_stored(out), as_stored(divisor), *sums, *words)

    def perturb(
        self, out: Tensor, x: Tensor, scale: float, divisor: Tensor | None = None, **where: Unpack[Place]
    ) -> None:
        """Write out = x + scale · (z(step, perturbation) / divisor) in one pass, with scale rounded to float32.

        out may be x itself.
        """
        check_tensors(out, x, divisor)
        check_stream(self.law, len(out), **where)
        words = self._words(where, where["perturbation"])
        vectors = (as_stored(out), as_stored(x), as_stored(divisor))
        launch(kernels.perturb, self.law, out, *vectors, float32(scale), self._table(out.device), len(out), *words)


def launch(kernel: Any, law: Law, out: Tensor, *arguments: Any, **options: Any) -> None:
    """Run a kernel over all of `out`, on out's device, with the options that keep its arithmetic exact."""
    if len(out):
        with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
            grid = (triton.cdiv(len(out), kernels.COUNT),)
            kernel[grid](*arguments, COUNT=kernels.COUNT, IS_GAUSSIAN=not law.is_signs, **options, **kernels.EXACT)


def check_tensors(out: Tensor, *others: Tensor | None) -> None:
    """Raise ValueError unless a kernel accepts these tensors together."""
    for tensor in (out, *others):
        if tensor is None:
            continue
        if tensor.dtype not in STORAGE or tensor.ndim != 1 or not tensor.is_contiguous():
            raise ValueError(
                f"Triton's directions take contiguous float32 or bfloat16 tensors of one dimension, "
                f"not {tensor.dtype} of {tuple(tensor.shape)}"
            )
        if tensor.shape != out.shape or tensor.device != out.device:
            raise ValueError(f"{len(tensor)} coordinates on {tensor.device} beside {len(out)} on {out.device}")
    if out.device.type != ("cpu" if IS_INTERPRETED else "cuda"):
        where = "in the interpreter, on cpu" if IS_INTERPRETED else "on cuda"
        raise ValueError(f"a tensor on {out.device}: Triton's kernels run {where}")


def as_stored(tensor: Tensor | None) -> Tensor | None:
    """Return a view of a tensor with the dtype that the kernels use, or None for None."""
    return None if tensor is None else tensor.view(STORAGE[tensor.dtype])


@lru_cache(maxsize=16)
def table(law: Law, device: torch.device) -> Tensor:
    """Return the upper half of a law's table on a device, 128 KiB."""
    return torch.from_numpy(law.table.copy()).to(device)


def float32(value: float) -> float:
    """Return the nearest float32, which a kernel receives exactly."""
    return float(np.float32(value))


def _signed(*words: int) -> tuple[int, ...]:
    """Return 32-bit words as signed numbers of the same bits, so that all have one type in a kernel."""
    return tuple(word - (word >> 31 << 32) for word in words)
