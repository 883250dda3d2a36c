"""The device on which Triton's kernels are tested: the GPU if there is one, else Triton's interpreter on the CPU.

Import this before anything of Seedbus that imports Triton: Triton chooses what runs a kernel when it is imported.
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

from seedbus.algorithms.directions import Law
from seedbus.vector import Vector

if sys.platform != "linux":  # on Linux the extra `dev` installs Triton, and an ImportError says if it is missing
    pytest.skip("Triton, and so these kernels, run on Linux only", allow_module_level=True)

HAS_GPU = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = torch.device("cuda", torch.cuda.current_device()) if HAS_GPU else torch.device("cpu")


@contextmanager
def running() -> Iterator[None]:
    """A context in which kernels are imported and run; overflows in the interpreter, which is NumPy, do not warn."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        if not HAS_GPU:
            patch.setenv("TRITON_INTERPRET", "1")
        yield


with running():
    from seedbus.algorithms.directions.triton_backend import IS_INTERPRETED, TritonDirections
    from seedbus.algorithms.directions.triton_exact import TritonExactDirections
    from seedbus.algorithms.directions.triton_fold import TritonReplay

__all__ = [
    "DEVICE",
    "HAS_GPU",
    "OnDevice",
    "TritonExactDirections",
    "TritonReplay",
    "assert_alike",
    "running",
    "to_device",
    "to_host",
]

if IS_INTERPRETED == HAS_GPU:
    # Triton chooses what runs a kernel when the kernel's module is imported, once a process. An error is raised because
    # skipping would silently drop all tests of the kernels.
    raise ImportError("the kernels were imported before their interpreter was requested: import triton_device first")


def to_device(vector: Vector) -> torch.Tensor:
    """Return a copy on the device."""
    return torch.from_numpy(vector.copy()).to(DEVICE)


def to_host(tensor: torch.Tensor) -> Vector:
    """Return a float32 copy as a NumPy vector; float32 holds every bfloat16."""
    copy: Vector = tensor.to(torch.float32).cpu().numpy().copy()
    return copy


@dataclass(frozen=True)
class OnDevice:
    """Triton's directions with the interface of a NumPy backend: vectors are copied to the device and back."""

    law: Law

    def fill(self, out: Vector, **stream: Any) -> None:
        on_device = to_device(out)
        TritonDirections(self.law).fill(on_device, **stream)
        out[:] = to_host(on_device)

    def accumulate(self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **stream: Any) -> None:
        on_device = to_device(out)
        device_divisor = None if divisor is None else to_device(divisor)
        TritonDirections(self.law).accumulate(on_device, coefficients, divisor=device_divisor, **stream)
        out[:] = to_host(on_device)

    def perturb(self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **stream: Any) -> None:
        on_device = to_device(out)
        base = to_device(x)
        device_divisor = None if divisor is None else to_device(divisor)
        TritonDirections(self.law).perturb(on_device, base, scale, divisor=device_divisor, **stream)
        out[:] = to_host(on_device)


def assert_alike(ours: Vector, theirs: Vector) -> None:
    """Assert that two vectors have the same bits; any NaN equals any other, as processors differ in them."""
    assert ours.dtype == theirs.dtype == np.float32
    is_nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), is_nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~is_nan], theirs.view(np.uint32)[~is_nan])
