"""Intervals over seeds, and when one row is better than another.

The mean of a figure, and of what is computed of several figures, has one kind of interval: at each end the wider of
Student's and the percentile bootstrap's (Efron 1979). The bootstrap assumes nothing about the distribution, but with n
values it never leaves their range, so with 3 seeds it covers the true mean in about 3 of 4 cases only. Student's is
right for few seeds of normal values.

A ratio of two figures, seed by seed, has that of the mean of its logarithms, where all are positive. So has an amount
of rounds, bytes or seconds: such figures are skewed, and of lognormal ones the interval of the plain mean holds it in
some 82 of 100 cases, with 3 to 10 seeds.

Two rows are compared by the differences of runs with the same seed. Both have the same clients, data and faults then,
so most of what a seed changes cancels out. One row is better if the interval of the mean difference excludes 0. Where
the intervals of many pairs are to hold together, Student's is the wider, the more pairs there are (Bonferroni).

A metric that is a mean over n samples comes in steps of 1/n, so differences may be equal with a few seeds by chance. An
interval without width would claim a certainty that is not there. The error of a value that is rounded to a step is
uniform, with a deviation of step/√12, and that of a difference of two step/√6. Student's interval takes at least that.

Student's interval of few values may leave the range that a metric has, such as 0 to 1. The mean lies within it, so the
interval ends there, and covers the mean as often.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

RESAMPLES = 9999
CONFIDENCE = 0.95
Range = tuple[float, float]
"""The lowest and the highest value that a figure can have."""
ANY: Range = (-math.inf, math.inf)
SHARE: Range = (0.0, 1.0)
AMOUNT: Range = (0.0, math.inf)
"""Values of this range may be a few times as large with one seed as with another."""
LEAST_STEP = 1e-9
"""Values of a metric that differ by less may be one value, of which sums were rounded."""


@dataclass(frozen=True)
class Mean:
    """A figure of a row over its seeds.

    Attributes:
        mean: mean over the seeds that have it.
        deviation: sample standard deviation; None for one seed.
        low: lower end of the interval of the mean (`covering`), of amounts of the geometric one; None for one seed.
        high: upper end.
        seeds: number of seeds that have it.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    seeds: int

    @staticmethod
    def of(values: Sequence[float | None], confidence: float = CONFIDENCE, within: Range = ANY) -> Mean | None:
        """Return the mean of the values that are known and finite; None if there is none. within: see `covering`."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        if len(known) == 1:
            return Mean(known[0], None, None, None, 1)
        _, low, high = covering(known, confidence, within=within)
        return Mean(float(statistics.mean(known)), float(statistics.stdev(known)), low, high, len(known))


Verdict = Literal["a difference", "the same values", "not settled", "one seed cannot tell"]


@dataclass(frozen=True)
class Difference:
    """One row's figure minus another's, over the seeds that both have.

    Attributes:
        mean: mean of the differences.
        low: lower end of the interval of the mean (`covering`); −∞ for less than two seeds.
        high: upper end.
        seeds: number of seeds that both have.
        is_zero: whether both rows have the same value with every seed.
    """

    mean: float
    low: float
    high: float
    seeds: int
    is_zero: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> Verdict:
        """What the seeds say of a difference.

        An interval with 0 in it does not say that there is none: what it could not have seen depends on its width.
        """
        if self.is_seen:
            return "a difference"
        if self.is_zero:
            return "the same values"
        return "not settled" if self.seeds > 1 else "one seed cannot tell"

    @staticmethod
    def of(
        differences: Sequence[float],
        confidence: float = CONFIDENCE,
        pairs: int = 1,
        step: float = 0.0,
        within: Range = ANY,
    ) -> Difference:
        """Return what a sample of differences says; at least one.

        Where all are 0, both rows may be one computation, so these are exact, whatever the step.

        Args:
            differences: a difference for each seed.
            confidence: probability with which the interval holds.
            pairs: number of pairs whose intervals hold together with that probability.
            step: see `covering`.
            within: see `covering`.
        """
        ends = covering(differences, confidence, pairs, step if any(differences) else 0.0, within)
        return Difference(*ends, len(differences), not any(differences))


def covering(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    pairs: int = 1,
    step: float = 0.0,
    within: Range = ANY,
) -> tuple[float, float, float]:
    """Return the mean of a sample, and the ends of its interval; these are infinite for one value.

    Mean and deviation are made of exact sums: in float64 the mean of three equal numbers may be another number. Of
    amounts, and of ratios, that are all positive it is the geometric mean, and its interval that of their logarithms:
    so they are as far from it as their reciprocals, and no end of the interval is below 0.

    Args:
        values: at least one.
        confidence: probability with which the interval holds.
        pairs: number of such samples whose intervals hold together with that probability.
        step: of differences, the step in which the values come that were subtracted; 0: they are exact.
        within: the range of such values, where the interval ends; one that a value leaves ends with this value.
    """
    if within == AMOUNT and min(values) > 0 and min(values) < max(values):  # logarithms of equal ones are rounded
        with np.errstate(over="ignore"):
            mean, low, high = np.exp(covering([math.log(value) for value in values], confidence, pairs))
        return float(mean), float(low), float(high)
    mean = float(statistics.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    reach = float(stats.t.ppf(1 - (1 - confidence) / pairs / 2, len(values) - 1))
    half = reach * max(float(statistics.stdev(values)), step / math.sqrt(6)) / math.sqrt(len(values))
    low, high = bootstrap(values, confidence)
    lowest, highest = min(within[0], *values), max(within[1], *values)
    return mean, max(min(mean - half, low), lowest), min(max(mean + half, high), highest)


def by_chance(count: int, confidence: float) -> str:
    """Return in words how sure each of some intervals is, and how many are expected to miss the mean: less than one is
    told as the most that the probability of one that misses it can be."""
    wrong = (1 - confidence) * count
    who = f"{wrong:,.0f} of them" if wrong >= 1 else f"one of them, with a probability of up to {100 * wrong:.2g}%,"
    if count == 1:
        return f"{100 * confidence:.6g}%, so that it, with a probability of up to {100 * wrong:.2g}%,"
    return f"{100 * confidence:.6g}% each, so that {who}"


def bootstrap(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of two or more values."""
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    found = stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, confidence_level=confidence, method="percentile", rng=0
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def smallest_step(values: Iterable[float]) -> float:
    """Return the smallest step between two of the values that are finite; 0.0 for fewer than two different ones.

    It is a hundredth of their range at most: of few evaluations, such as 0.1 and 1.0, none may be a step apart.
    """
    different = sorted({each for each in values if math.isfinite(each)})
    gaps = [more - less for less, more in itertools.pairwise(different) if more - less > LEAST_STEP]
    return min(*gaps, (different[-1] - different[0]) / 100) if gaps else 0.0
