"""Which backend serves: compiled where Numba is installed, the NumPy reference elsewhere. The bits are the same."""

from __future__ import annotations

from functools import lru_cache

from seedbus.algorithms.directions.contract import Directions, Folding, Kind
from seedbus.algorithms.directions.numpy_backend import NumpyDirections


def reference(kind: Kind) -> Directions:
    """Directions in plain NumPy, in float32 or float64."""
    return NumpyDirections(kind)


def compiled(kind: Kind) -> Folding:
    """Directions compiled by Numba, in float32. Numba is imported here and not before; ImportError if it is missing."""
    from seedbus.algorithms.directions.numba_backend import NumbaDirections

    return NumbaDirections(kind)


@lru_cache(maxsize=2)
def directions(kind: Kind) -> Directions:
    """The fastest directions that this machine has."""
    try:
        return compiled(kind)
    except ImportError:
        return reference(kind)
