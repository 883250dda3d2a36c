"""Where Triton's kernels are tested: on the GPU if there is one, in Triton's interpreter on the CPU if there is none.

Import this before anything of ours that imports Triton: what runs a kernel is decided when Triton is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

from seedbus.algorithms.directions.contract import Kind
from seedbus.vector import Vector

if sys.platform != "linux":  # there the extra `dev` brings it, and whoever lacks it hears so by an ImportError
    pytest.skip("Triton exists for Linux alone, and so do these kernels", allow_module_level=True)

HAS_GPU = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = torch.device("cuda", torch.cuda.current_device()) if HAS_GPU else torch.device("cpu")


@contextmanager
def running() -> Iterator[None]:
    """Kernels may be imported and run: in the interpreter, which is NumPy, without a word about what overflows."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        if not HAS_GPU:
            patch.setenv("TRITON_INTERPRET", "1")
        yield


with running():
    from seedbus.algorithms.directions.triton_backend import IS_INTERPRETED, TritonDirections
    from seedbus.algorithms.scalar_only.replay import fold_tensors as replay

__all__ = ["DEVICE", "HAS_GPU", "Ferried", "assert_alike", "fetched", "replay", "running", "sent"]

if IS_INTERPRETED == HAS_GPU:
    # What runs a kernel is decided when its module is imported, once a process, and collection imports it here before
    # any test runs. Skipping would let all tests of the kernels go missing unnoticed.
    raise ImportError(
        "something imported the kernels before their interpreter was asked for: import triton_device first"
    )


def sent(vector: Vector) -> torch.Tensor:
    """A copy on the device."""
    return torch.from_numpy(vector.copy()).to(DEVICE)


def fetched(tensor: torch.Tensor) -> Vector:
    """A copy as float32, which holds every bfloat16."""
    copy: Vector = tensor.to(torch.float32).cpu().numpy().copy()
    return copy


@dataclass(frozen=True)
class Ferried:
    """Triton's directions for NumPy vectors, which travel to the device and back: they pass for any other backend."""

    kind: Kind

    def fill(self, out: Vector, **stream: Any) -> None:
        there = sent(out)
        TritonDirections(self.kind).fill(there, **stream)
        out[:] = fetched(there)

    def accumulate(self, out: Vector, coefficients: ArrayLike, *, divisor: Vector | None = None, **stream: Any) -> None:
        there = sent(out)
        part = None if divisor is None else sent(divisor)
        TritonDirections(self.kind).accumulate(there, coefficients, divisor=part, **stream)
        out[:] = fetched(there)

    def perturb(self, out: Vector, x: Vector, scale: float, *, divisor: Vector | None = None, **stream: Any) -> None:
        there, base = sent(out), sent(x)
        part = None if divisor is None else sent(divisor)
        TritonDirections(self.kind).perturb(there, base, scale, divisor=part, **stream)
        out[:] = fetched(there)


def assert_alike(ours: Vector, theirs: Vector) -> None:
    """The same bits, and a NaN where there is one: which NaN it is, is a processor's own."""
    assert ours.dtype == theirs.dtype == np.float32
    nowhere = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nowhere)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nowhere], theirs.view(np.uint32)[~nowhere])
