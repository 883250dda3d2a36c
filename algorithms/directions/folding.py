"""A replay in numbers: what a compiled backend needs to fold many commits in one call.

A log becomes `ReplaySteps`, one entry for each local step of a term, and what the algorithm does with each step is an
`UpdateRule`. Numba and Triton fold the same two. They say again, as data, what an algorithm's `divisor`, `step` and
`learn` define in NumPy; the tests compare both bit for bit.

    Δ ← (Σ_p coefficients[p] · z(p)) / √H
    x ← x − rate·Δ,  or with momentum, in an own step:  m ← keep·m + add·Δ,  x ← x − rate·m
    H ← keep·H + add·(Δ² + ε), held between two bounds, in an own step

Every operation is rounded by itself, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

STEP: Final = np.dtype(
    [
        ("low", np.uint32),  # the seed's two words
        ("high", np.uint32),
        ("step", np.uint32),  # k
        ("first", np.int64),  # its coefficients are coefficients[first : first + count]
        ("count", np.int64),
        ("rate", np.float32),
        ("is_own", np.bool_),  # of the commit's own round: momentum and H learn from no other
        ("is_first", np.bool_),  # of its term: √H is taken here and kept to the term's end
        ("is_last", np.bool_),
    ],
    align=True,
)


class ReplaySteps(NamedTuple):
    """Steps in the order in which they are folded (dtype STEP), and what all their directions weigh (float32)."""

    steps: NDArray[Any]
    coefficients: NDArray[np.float32]


class Momentum(NamedTuple):
    """m ← keep·m + add·Δ, in the field `momentum`."""

    keep: float
    add: float


class Hessian(NamedTuple):
    """H ← keep·H + add·(Δ² + epsilon), between lowest and highest, in the field `hessian`; after the last step only?"""

    keep: float
    add: float
    epsilon: float
    lowest: float
    highest: float
    is_last_only: bool


@dataclass(frozen=True)
class UpdateRule:
    """How Δ moves a replica. None: it has no such field."""

    momentum: Momentum | None = None
    hessian: Hessian | None = None
