"""Hyperparameters that may change by round: one value, or a mapping from the first round of each value to the value.

perturbations: 10
perturbations: {0: 25, 500: 50, 1000: 100, 2000: 200}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator

T = TypeVar("T")


def _from_round_zero(value: T | dict[int, T]) -> T | dict[int, T]:
    if isinstance(value, dict) and (0 not in value or min(value) < 0):
        raise ValueError("a schedule maps rounds to values and begins at round 0, for example {0: 25, 500: 50}")
    return value


Scheduled = Annotated[T | dict[int, T], AfterValidator(_from_round_zero)]


def at(value: T | Mapping[int, T], round: int) -> T:
    """Return the value at `round`."""
    if not isinstance(value, Mapping):
        return value
    return value[max(start for start in value if start <= round)]


def values(value: T | Mapping[int, T]) -> list[T]:
    """Return the values of all rounds."""
    return list(value.values()) if isinstance(value, Mapping) else [value]
