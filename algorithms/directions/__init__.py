"""Seeded random directions with the same bits on every machine and in every backend (Salmon et al. 2011).

Doors: `bfloat16`, `laws`, `look_ups`, `low_rank`, `warm`.
"""

from __future__ import annotations

from seedbus.algorithms.directions.blocks import for_blocks, set_threads, use_all_cores
from seedbus.algorithms.directions.contract import ALIGNMENT, Directions, Folding, Place, Step, stream_key
from seedbus.algorithms.directions.exact import (
    FRACTION,
    MOST_Q,
    TERM,
    ExactDirections,
    Sums,
    Terms,
    merged,
    most_q,
    without_zeros,
)
from seedbus.algorithms.directions.folding import STEP, Hessian, Momentum, ReplaySteps, UpdateRule
from seedbus.algorithms.directions.laws.law import Kind, Law, law_of
from seedbus.algorithms.directions.philox import philox4x32
from seedbus.algorithms.directions.selection import (
    directions,
    directions_for,
    exact_directions,
    exact_directions_for,
    exact_reference,
    reference,
)
from seedbus.algorithms.directions.selftest import selftest, selftest_once

__all__ = [
    "ALIGNMENT",
    "FRACTION",
    "MOST_Q",
    "STEP",
    "TERM",
    "Directions",
    "ExactDirections",
    "Folding",
    "Hessian",
    "Kind",
    "Law",
    "Momentum",
    "Place",
    "ReplaySteps",
    "Step",
    "Sums",
    "Terms",
    "UpdateRule",
    "directions",
    "directions_for",
    "exact_directions",
    "exact_directions_for",
    "exact_reference",
    "for_blocks",
    "law_of",
    "merged",
    "most_q",
    "philox4x32",
    "reference",
    "selftest",
    "selftest_once",
    "set_threads",
    "stream_key",
    "use_all_cores",
    "without_zeros",
]
