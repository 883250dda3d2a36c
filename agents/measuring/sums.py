"""What a client has measured as whole numbers, which add up exactly, and what their sums tell.

A client's numbers are 1, how many samples it has measured on, and of each metric the sum over them as fixed point in
units of 2⁻⁶⁴. One that tells nothing has zeros. They fit into 128 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seedbus.agents.messages import Measured

UNIT_BITS = 64
LARGEST = float(np.finfo(np.float32).max)
"""A mean is no larger."""
LARGEST_SUM = 2.0**62
"""Of one client, so that its number has less than 127 bits."""


def rides(round: int, every: int) -> bool:
    """Whether clients that report in a round tell beside it what they have measured at its start."""
    return round % every == 0


def width(names: Sequence[str]) -> int:
    """Return how many numbers a client tells of these metrics."""
    return 2 + len(names)


def numbers(measured: Measured) -> list[int] | None:
    """Return the numbers of what a client has measured; None: they cannot be told, or a mean is no float32."""
    most = min(LARGEST * measured.samples, LARGEST_SUM)
    if not all(abs(total) <= most for total in measured.sums):
        return None
    return [1, measured.samples, *(round(math.ldexp(total, UNIT_BITS)) for total in measured.sums)]


def means(sums: Sequence[int]) -> tuple[int, int, list[float]] | None:
    """Return how many clients have told, of how many samples, and the means over these.

    None: they have told of no samples, as far as their sums are of clients that keep to the rules.

    Args:
        sums: of clients' numbers, one after the other.
    """
    told, samples, *totals = sums
    if told < 1 or samples < 1:
        return None
    return told, samples, [total / 2**UNIT_BITS / samples for total in totals]
