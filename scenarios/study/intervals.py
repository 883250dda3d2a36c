"""Intervals over seeds, and when one row is better than another.

A mean over seeds has a percentile bootstrap interval (Efron 1979), which assumes nothing about the distribution. With n
values it never leaves their range, so with 3 seeds it covers the true mean in about 3 of 4 cases only: it shows how
far the seeds lie apart, and decides nothing by itself.

Two rows are compared by the differences of runs with the same seed. Both have the same clients, data and faults then,
so most of what a seed changes cancels out. One row is better if two intervals of the mean difference exclude 0: the
bootstrap's, and Student's, which is right for few seeds. Where the intervals of many pairs are to hold together,
Student's is the wider, the more pairs there are (Bonferroni).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 9999
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """A figure of a row over its seeds.

    Attributes:
        mean: mean over the seeds that have it.
        deviation: sample standard deviation; None for one seed.
        low: lower end of the 95% bootstrap interval of the mean; None for one seed.
        high: upper end.
        seeds: number of seeds that have it.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    seeds: int

    @staticmethod
    def of(values: Sequence[float | None]) -> Mean | None:
        """Return the mean of the values that are known and finite; None if there is none."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        if len(known) == 1:
            return Mean(known[0], None, None, None, 1)
        low, high = bootstrap(known, CONFIDENCE)
        return Mean(*_moments(known), low, high, len(known))


@dataclass(frozen=True)
class Difference:
    """One row's figure minus another's, over the seeds that both have.

    Attributes:
        mean: mean of the differences.
        low: lower end of Student's interval; −∞ for less than two seeds.
        high: upper end.
        seeds: number of seeds that both have.
        is_seen: whether this interval and the bootstrap's exclude 0.
    """

    mean: float
    low: float
    high: float
    seeds: int
    is_seen: bool

    @staticmethod
    def of(differences: Sequence[float], confidence: float = CONFIDENCE, pairs: int = 1) -> Difference:
        """Return what a sample of differences says; at least one.

        Args:
            differences: a difference for each seed.
            confidence: probability with which the interval holds.
            pairs: number of pairs whose intervals hold together with that probability.
        """
        seeds = len(differences)
        if seeds < 2:
            return Difference(float(differences[0]), -math.inf, math.inf, seeds, False)
        mean, deviation = _moments(differences)
        reach = float(stats.t.ppf(1 - (1 - confidence) / pairs / 2, seeds - 1))
        half = reach * deviation / math.sqrt(seeds)
        low, high = bootstrap(differences, confidence)
        is_seen = min(mean - half, low) > 0 or max(mean + half, high) < 0
        return Difference(mean, mean - half, mean + half, seeds, is_seen)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation of two or more values, from exact sums: equal values have none.

    In float64 the mean of three equal numbers may be another number.
    """
    return float(statistics.mean(values)), float(statistics.stdev(values))


def covering(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Return the mean of a sample, and an interval that has Student's and the bootstrap's; at least one value."""
    found = Difference.of(values, confidence)
    if found.seeds < 2:
        return found.mean, found.low, found.high
    low, high = bootstrap(values, confidence)
    return found.mean, min(found.low, low), max(found.high, high)


def bootstrap(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of two or more values."""
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    found = stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, confidence_level=confidence, method="percentile", rng=0
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
