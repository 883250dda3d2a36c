"""What a study is expected to show, in numbers, and the verdict that its runs give.

An expectation names a row, a figure of the study's table, and bounds; with `minus` or `over` the bounds are on the
difference from another row, or on the ratio to it, paired over seeds. It *holds* if the whole interval of the mean over
seeds lies within the bounds, it *does not hold* if the whole interval lies outside, and otherwise it is *not settled*.
The interval is that of `intervals.py`.

A claim is what expectations of one kind say together, and a study may make several. All expectations of a claim are to
hold, so each may be judged by itself. But one that fails is enough for "does not hold", and among many one fails by
chance: so this takes intervals that hold together (Bonferroni). Nor does it follow from a row whose tuned values are at
the edge of what was tried, for beyond it the row may be better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus.text import counted
from seedbus.scenarios.schema.expectations import Bounds
from seedbus.studies.analysis.quantities import is_gap
from seedbus.studies.study.intervals import AMOUNT, ANY, Range, by_chance, covering

FINAL = "final"
"""The figure by which rows are compared: the moving average of the metric, 0.9 per round, at the end of a run."""
COSTS = ("rounds", "bytes", "bytes_up", "bytes_down", "simulated_s", "forward_passes")
"""What every run costs, whatever is asked of it."""
SUMMED_UP = (
    "clients_without_report",
    "stragglers_share",
    "in_vain_share",
    "commits_with_false_reports",
    "commits_beyond_rule",
    "rounds_without_commit",
    "lag_mean",
    "bytes_per_client",
)
"""What else every run has, by the names that the `expect` of a scenario has for it."""
OF_REPORTS = ("reports_per_round", "late_reports")
"""Reports that count, mean over rounds; and those that came too late for their round, whether they count or not."""

Verdict = Literal["does not hold", "not settled", "holds", "not reproducible from what is published"]
RANK: tuple[Verdict, ...] = ("does not hold", "not settled", "holds")
"""Of the verdicts on expectations the first is that on their claim."""
Samples = Mapping[str, Mapping[str, Mapping[int, float | None]]]
"""Figure → row → seed → value; None for a run that does not have the figure."""


class Expected(Bounds):
    """Bounds on a figure of a row, or on its difference from another row or its ratio to one."""

    row: str = Field(description="the row, as the table names it")
    figure: str = Field(default=FINAL, description="the figure; default: the moving average of the metric at the end")
    minus: str | None = Field(default=None, description="a row that is subtracted, seed by seed")
    over: str | None = Field(default=None, description="a row by which it is divided, seed by seed")

    @model_validator(mode="after")
    def _one_other(self) -> Expected:
        if self.minus is not None and self.over is not None:
            raise ValueError("it has both minus and over; expected one of them at most")
        return self

    @property
    def kind(self) -> str:
        """What it says: the level of a row, that a row is within a margin of another, or that and how they differ."""
        if len(self.rows) == 1:
            return "the level of"
        if self.holds(self._equal) and not self.counts_any_effect:
            return "a margin in"
        return "a difference in" if None in (self.at_least, self.at_most) else "the size of a difference in"

    @property
    def counts_any_effect(self) -> bool:
        """Whether a bound on a comparison is where rows are equal: then an effect of any size is enough."""
        is_exact = self.at_least == self.at_most
        return len(self.rows) > 1 and not is_exact and self._equal in (self.at_least, self.at_most)

    @property
    def _equal(self) -> float:
        """The comparison of two rows that are equal."""
        return 0.0 if self.over is None else 1.0

    @property
    def rows(self) -> dict[str, str]:
        """The rows that it names, by field."""
        named = {"row": self.row, "minus": self.minus, "over": self.over}
        return {field: row for field, row in named.items() if row is not None}

    def __str__(self) -> str:
        what = self.row if self.figure == FINAL else f"{self.figure} of {self.row}"
        if self.minus is not None:
            what += f" − {self.minus}"
        if self.over is not None:
            what += f" ÷ {self.over}"
        bounds = [
            f"{words} {_written(value)}"
            for words, value in (("at least", self.at_least), ("at most", self.at_most))
            if value is not None
        ]
        return f"{what}: {' and '.join(bounds)}"


@dataclass(frozen=True)
class Judged:
    """An expectation and what the runs say of it.

    Attributes:
        expected: the expectation.
        verdict: what follows from the interval.
        found: the interval and the mean, or why there is none; in words.
        may_miss: whether the interval may miss the mean: it has one, of values that are not the same with every seed.
    """

    expected: Expected
    verdict: Verdict
    found: str
    may_miss: bool = False

    def __str__(self) -> str:
        return f"{self.expected}; found {self.found}: {self.verdict}"


def judged(
    expected: Expected,
    samples: Samples,
    seeds: Sequence[int],
    confidence: float,
    steps: Mapping[str, float],
    within: Range = ANY,
    together: int = 1,
    at_edge: Collection[str] = (),
) -> Judged:
    """Judge an expectation.

    Args:
        expected: the expectation.
        samples: values of figures; a run that was not made has none.
        seeds: the study's seeds.
        confidence: probability with which the interval holds.
        steps: row → the step in which values of the figure come; none: they are exact (`intervals`).
        within: the range of the figure's values.
        together: number of expectations of the claim: "does not hold" takes intervals that hold together.
        at_edge: rows with a tuned value at the edge of what was tried.
    """
    by_row = samples.get(expected.figure, {})
    for row in expected.rows.values():
        found = sum(_is_known(by_row.get(row, {}).get(seed)) for seed in seeds)
        if found < len(seeds):
            what = f"{found} of {counted(len(seeds), 'run')}"
            return Judged(expected, "not settled", f"no figure for all seeds ({row}: {what})")
    values = [_value(expected, by_row, seed) for seed in seeds]
    if not all(map(math.isfinite, values)):
        return Judged(expected, "not settled", "a ratio to 0")
    # rows that are equal with every seed may be one computation, and are exact; two groups of clients never are
    is_rounded = is_gap(expected.figure) if expected.minus is None else any(values)
    step = max(steps.get(row, 0.0) for row in expected.rows.values()) if is_rounded else 0.0

    def interval(pairs: int) -> tuple[float, float, float]:
        if expected.over is not None:
            return covering(values, confidence, pairs, within=AMOUNT)
        ends = within if expected.minus is None else (within[0] - within[1], within[1] - within[0])
        return covering(values, confidence, pairs, step, ends)

    mean, low, high = interval(1)
    words = f"[{_written(low)}, {_written(high)}]" if len(values) > 1 else "at one seed, which cannot tell"
    words = f"{_written(mean)} {words}"
    verdict: Verdict = "not settled"
    if _is_within(expected, low, high):
        verdict = "holds"
    elif _is_outside(expected, low, high):
        _, lowest, highest = interval(together)
        edges = [row for row in expected.rows.values() if row in at_edge]
        if not _is_outside(expected, lowest, highest):
            words += f", and [{_written(lowest)}, {_written(highest)}] of {together} that hold together"
        elif edges:
            words += f", with {' and '.join(edges)} at the edge of what was tried"
        else:
            verdict = "does not hold"
    return Judged(expected, verdict, words, low < high < math.inf)


def claims(expected: Sequence[Expected], of_metric: Collection[str], metric: str) -> list[str]:
    """Return for each expectation the claim that it is a part of, in words: its kind and its figure.

    Args:
        expected: the expectations.
        of_metric: the figures that are values of the metric, and so of one claim.
        metric: its name.
    """
    return [f"{each.kind} {metric if each.figure in of_metric else each.figure}" for each in expected]


def verdicts(claims: Sequence[str], parts: Sequence[Judged], unpublished: str = "") -> dict[str, Verdict]:
    """Return claim → the verdict on it; all its expectations are to hold.

    Args:
        claims: the claim of each expectation.
        parts: what was found of each.
        unpublished: what is missing from what is published, so that no run speaks for or against the claims.
    """
    if unpublished:
        return dict.fromkeys(claims, "not reproducible from what is published")
    found: dict[str, Verdict] = {}
    for claim, part in zip(claims, parts, strict=True):
        found[claim] = min(found.get(claim, part.verdict), part.verdict, key=RANK.index)
    return found


def in_words(found: Mapping[str, Verdict]) -> str:
    """Return the verdicts on the claims of a study: one word where all are the same."""
    alike = set(found.values())
    return alike.pop() if len(alike) == 1 else "; ".join(f"{claim}: {each}" for claim, each in found.items())


def chance(parts: Sequence[Judged], confidence: float) -> str:
    """Return how many of the intervals may miss the mean; "" if none may."""
    count = sum(part.may_miss for part in parts)
    return f"{counted(count, 'interval')} at {by_chance(count, confidence)} may be wrong by chance" if count else ""


def _is_within(expected: Expected, low: float, high: float) -> bool:
    return expected.holds(low) and expected.holds(high)


def _is_outside(expected: Expected, low: float, high: float) -> bool:
    return (expected.at_least is not None and high < expected.at_least) or (
        expected.at_most is not None and low > expected.at_most
    )


def _value(expected: Expected, by_row: Mapping[str, Mapping[int, float | None]], seed: int) -> float:
    """Return the quantity that is bounded, of one seed; NaN for a ratio to 0."""

    def of(row: str) -> float:
        value = by_row[row][seed]
        return math.nan if value is None else value

    if expected.minus is not None:
        return of(expected.row) - of(expected.minus)
    if expected.over is not None:
        return of(expected.row) / of(expected.over) if of(expected.over) else math.nan
    return of(expected.row)


def _written(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
