"""Directions that look quantiles up in one way, whichever is faster on this machine."""

from __future__ import annotations

from seedbus.algorithms.directions import Kind
from seedbus.algorithms.directions.laws.law import law_of
from seedbus.algorithms.directions.numba_backend import NumbaDirections


def gathering(kind: Kind) -> NumbaDirections:
    return NumbaDirections(law_of(kind), "gather")


def fetching(kind: Kind) -> NumbaDirections:
    return NumbaDirections(law_of(kind), "scalar")
