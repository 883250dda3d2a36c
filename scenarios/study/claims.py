"""What a study is expected to show, in numbers, and the verdict that its runs give.

An expectation names a row, a figure of the study's table, and bounds; with `minus` or `over` the bounds are on the
difference from another row, or on the ratio to it, paired over seeds. It *holds* if the whole interval of the mean over
seeds lies within the bounds, it *does not hold* if the whole interval lies outside, and otherwise it is *not settled*.
The interval is that of `intervals.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus.text import counted
from seedbus.scenarios.analysis.quantities import is_gap
from seedbus.scenarios.schema.expectations import Bounds
from seedbus.scenarios.study.intervals import ANY, Range, covering, covering_ratio

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
)
"""What else every run has, by the names that the `expect` of a scenario has for it."""

Verdict = Literal["holds", "does not hold", "not settled"]
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
    """

    expected: Expected
    verdict: Verdict
    found: str

    def __str__(self) -> str:
        return f"{self.expected}; found {self.found}: {self.verdict}"


def judged(
    expected: Expected,
    samples: Samples,
    seeds: Sequence[int],
    confidence: float,
    steps: Mapping[str, float],
    within: Range = ANY,
) -> Judged:
    """Judge an expectation.

    Args:
        expected: the expectation.
        samples: values of figures; a run that was not made has none.
        seeds: the study's seeds.
        confidence: probability with which the interval holds.
        steps: row → the step in which values of the figure come; none: they are exact (`intervals`).
        within: the range of the figure's values.
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
    if expected.over is None:
        ends = within if expected.minus is None else (within[0] - within[1], within[1] - within[0])
        mean, low, high = covering(values, confidence, step=step, within=ends)
    else:
        mean, low, high = covering_ratio(values, confidence)
    interval = f"[{_written(low)}, {_written(high)}]" if len(values) > 1 else "at one seed, which cannot tell"
    words = f"{_written(mean)} {interval}"
    is_above = expected.at_least is None or low >= expected.at_least
    is_below = expected.at_most is None or high <= expected.at_most
    is_outside = (expected.at_least is not None and high < expected.at_least) or (
        expected.at_most is not None and low > expected.at_most
    )
    verdict: Verdict = "holds" if is_above and is_below else "does not hold" if is_outside else "not settled"
    return Judged(expected, verdict, words)


def verdict(parts: Sequence[Judged]) -> Verdict:
    """Return the verdict on a claim, whose expectations are all to hold."""
    verdicts = {part.verdict for part in parts}
    if "does not hold" in verdicts:
        return "does not hold"
    return "not settled" if "not settled" in verdicts else "holds"


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
