"""Seeded random directions with the same bits on every machine and in every backend (Salmon et al. 2011).

Doors: `selftest`, `triton_fold`, `warm`.
"""

from __future__ import annotations

from seedbus.algorithms.directions.blocks import for_blocks, set_threads
from seedbus.algorithms.directions.contract import ALIGNMENT, Directions, Folding, Kind, check_stream
from seedbus.algorithms.directions.folding import STEP, Hessian, Momentum, ReplaySteps, UpdateRule
from seedbus.algorithms.directions.selection import compiled, directions, directions_for, reference
from seedbus.algorithms.directions.selftest import selftest

__all__ = [
    "ALIGNMENT",
    "STEP",
    "Directions",
    "Folding",
    "Hessian",
    "Kind",
    "Momentum",
    "ReplaySteps",
    "UpdateRule",
    "check_stream",
    "compiled",
    "directions",
    "directions_for",
    "for_blocks",
    "reference",
    "selftest",
    "set_threads",
]
