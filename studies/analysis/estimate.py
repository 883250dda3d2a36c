"""Numbers that are measured by random probes, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata


class Estimate(NamedTuple):
    """A number.

    Attributes:
        value: the number; the mean over probes.
        error: its standard error; 0: it is exact; None: one probe does not tell.
    """

    value: float
    error: float | None = 0.0

    @staticmethod
    def of(samples: Sequence[float] | NDArray[Any], *, is_exact: bool) -> Estimate:
        """Return the mean of what each probe found."""
        values = np.asarray(samples, np.float64)
        if is_exact:
            return Estimate(float(values.mean()))
        error = float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else None
        return Estimate(float(values.mean()), error)

    def __str__(self) -> str:
        return number(self.value) + (f" ± {self.error:.2g}" if self.error else "")


class Null(NamedTuple):
    """What a number is without a signal, in several draws.

    Attributes:
        mean: over the draws.
        low: the least.
        high: the most.
    """

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Null:
        return Null(float(np.mean(values)), float(np.min(values)), float(np.max(values)))

    def __str__(self) -> str:
        return f"{number(self.mean)} [{number(self.low)}, {number(self.high)}]"


def number(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def rank_correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return Spearman's rank correlation of two vectors [d]; 0 if one is constant."""
    first, second = (rankdata(each) - (each.size + 1) / 2 for each in (one, other))
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else 0.0
