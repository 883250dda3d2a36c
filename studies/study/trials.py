"""What was tried for a row, how its values were chosen, and whether the best value was told from the second best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy import stats

from seedbus.scenarios.reporting.axes import is_share
from seedbus.studies.study.intervals import LEAST_STEP, covering


@dataclass(frozen=True)
class Trial:
    """A value that was tried for a row.

    Attributes:
        values: field → value.
        score: the metric's moving average on the validation split, mean over the trials' seeds; NaN if a run failed.
        finals: that of each run that is finished; NaN if it has none.
        step: the smallest step between two values of the metric in its evaluations, such as 1/n of n samples.
    """

    values: dict[str, Any]
    score: float
    finals: tuple[float, ...] = ()
    step: float = 0.0


@dataclass(frozen=True)
class Tuned:
    """How a row's values were chosen.

    Attributes:
        trials: in the order in which they were run.
        chosen: field → value; empty if no trial has a finite score.
        at_edge: fields whose chosen value is the lowest or the highest that was tried.
        gaps: field → the values tried next to the chosen one that are ten times as large or small, or more.
    """

    trials: list[Trial]
    chosen: dict[str, Any]
    at_edge: list[str]
    gaps: dict[str, list[float]] = field(default_factory=dict)


def ranked(trials: Sequence[Trial], *, is_rising: bool) -> list[Trial]:
    """Return the trials with a finite score, the best first; of equal ones the earlier first."""
    finite = [trial for trial in trials if math.isfinite(trial.score)]
    return sorted(finite, key=lambda trial: -trial.score if is_rising else trial.score)


def tie(tuned: Tuned, metric: str, *, is_rising: bool) -> tuple[Trial, Trial] | None:
    """Return the best trial and the second best one, where these differ by one standard error or less; else None.

    The standard error is that of the mean of the differences with the same seed, where trials have several, and at
    least that of the share p of right answers among n validation samples, √(p(1−p)/n), where the metric is one.
    With one seed and another metric it is not known, and only equal scores are a tie.
    """
    if len(finite := ranked(tuned.trials, is_rising=is_rising)) < 2:
        return None
    best, second = finite[:2]
    is_tied = abs(best.score - second.score) <= _standard_error(best, second, metric) + LEAST_STEP
    return (best, second) if is_tied else None


def regret(tuned: Tuned, metric: str, *, is_rising: bool, confidence: float) -> float:
    """Return by how much a row may be better with a value that ties with the chosen one; 0.0 without such.

    It is the upper end of an interval of the difference in score: that of the differences with the same seed, where
    trials have several, and else that of a share of right answers, from its standard error (`tie`).
    """
    if not (finite := ranked(tuned.trials, is_rising=is_rising)):
        return 0.0
    best, *others = finite
    found, sign = 0.0, 1 if is_rising else -1
    for other in others:
        error = _standard_error(best, other, metric)
        if abs(best.score - other.score) > error + LEAST_STEP:
            continue
        gains = [sign * (one - less) for one, less in zip(other.finals, best.finals, strict=True)]
        if len(gains) > 1:
            _, _, high = covering(gains, confidence, step=max(best.step, other.step))
        else:
            high = float(stats.norm.ppf((1 + confidence) / 2)) * error - abs(best.score - other.score)
        found = max(found, high)
    return found


def _standard_error(trial: Trial, other: Trial, metric: str) -> float:
    """Return that of the difference of two trials' scores, as far as it is known; see `tie`."""
    error = 0.0
    if len(trial.finals) > 1:
        differences = [one - less for one, less in zip(trial.finals, other.finals, strict=True)]
        error = statistics.stdev(differences) / math.sqrt(len(differences))
    if is_share(metric):
        share, step = trial.score, min(filter(None, (trial.step, other.step)), default=0.0)
        error = max(error, math.sqrt(max(0.0, share * (1 - share)) * step))
    return error


def in_words(values: Mapping[str, Any]) -> str:
    """Return tuned values in words, such as learning_rate 0.1, momentum 0.9."""
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in values.items())
