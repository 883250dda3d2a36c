"""The choice of backend: Numba for float32 and bfloat16, torch on a device, else the NumPy reference.

The bits are the same. Numba and torch are imported when they are first needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from seedbus.algorithms.directions.bfloat16 import BITS
from seedbus.algorithms.directions.contract import Directions, Folding
from seedbus.algorithms.directions.exact import ExactDirections, Sums
from seedbus.algorithms.directions.laws.law import Kind, law_of
from seedbus.algorithms.directions.numpy_backend import NumpyDirections, NumpyExactDirections
from seedbus.vector import Vector, is_on_host


def reference(kind: Kind) -> Directions:
    """Return directions in plain NumPy, for float32 and float64."""
    return NumpyDirections(law_of(kind))


@lru_cache(maxsize=16)
def directions(kind: Kind) -> Folding:
    """Return directions compiled by Numba, for float32."""
    from seedbus.algorithms.directions.numba_backend import NumbaDirections

    return NumbaDirections(law_of(kind))


def directions_for(kind: Kind, x: Vector) -> Directions:
    """Return the fastest directions for vectors of a type, in a processor's memory or on a device."""
    if not is_on_host(x):
        from seedbus.algorithms.directions.tensor_directions import on_device

        return on_device(law_of(kind), _device_of(x))
    return directions(kind) if x.dtype in (np.float32, BITS) else reference(kind)


def exact_reference(kind: Kind) -> ExactDirections:
    """Return exact directions in plain NumPy."""
    return NumpyExactDirections(law_of(kind))


@lru_cache(maxsize=16)
def exact_directions(kind: Kind) -> ExactDirections:
    """Return exact directions compiled by Numba."""
    from seedbus.algorithms.directions.numba_backend import NumbaExactDirections

    return NumbaExactDirections(law_of(kind))


def exact_directions_for(kind: Kind, sums: Sums) -> ExactDirections:
    """Return the fastest exact directions for sums in a processor's memory or on a device."""
    if not is_on_host(sums):
        from seedbus.algorithms.directions.tensor_directions import exact_on_device

        return exact_on_device(law_of(kind), _device_of(sums))
    return exact_directions(kind)


def _device_of(vector: Any) -> str:
    """Return the kind of device that a `TensorVector` lies on."""
    kind: str = vector.tensor.device.type
    return kind
