"""Seeded random directions, the same bits on every machine and in every backend (Salmon et al. 2011)."""

from __future__ import annotations

from seedbus.algorithms.directions.blocks import for_blocks, set_threads
from seedbus.algorithms.directions.contract import ALIGNMENT, Directions, Kind
from seedbus.algorithms.directions.selection import compiled, directions, reference
from seedbus.algorithms.directions.selftest import selftest

__all__ = [
    "ALIGNMENT",
    "Directions",
    "Kind",
    "compiled",
    "directions",
    "for_blocks",
    "reference",
    "selftest",
    "set_threads",
]
