"""Choosing values for every row by short runs that are measured on the validation split.

Every row tries all combinations of the values that the study names. After that, while the best value of any row is the
lowest or the highest that it tried, every row tries one more value: one whose best lies at an edge goes on beyond it,
by the ratio of the best value to its neighbour; one whose best lies inside looks between the best value and a
neighbour, at their geometric mean. So rows that tune the same fields spend the same number of trials, and none of them
wins by a finer grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from seedbus.scenarios.errors import ScenarioError
from seedbus.studies.study.cells import Cell, Plan
from seedbus.studies.study.schema import is_numeric
from seedbus.studies.study.trials import Trial, Tuned, ranked

WIDE = 9.99
"""Ratio of two values, ten but for rounding, between which a better one may be missed."""
Values = dict[str, Any]
"""Field → value."""
Batch = Callable[[list[tuple[Cell, Values]]], list[Trial]]
"""Makes the trials of (row, values) and returns what they found.

It returns [] if nothing is to be made, and no trial of the batch was made earlier."""


def tuned(plan: Plan, is_rising: bool, make: Batch) -> dict[str, Tuned]:
    """Choose the values of every row.

    Args:
        plan: the study.
        is_rising: whether a higher score is better.
        make: makes trials.

    Raises:
        ScenarioError: a row does not accept one of the study's values.
    """
    cells = [cell for cell in plan.cells if cell.tune]
    batch = [(cell, values) for cell in cells for values in _first(cell)]
    for cell, values in batch:
        cell.with_settings(values)
    trials: dict[str, list[Trial]] = {cell.name: [] for cell in cells}
    further = plan.study.tuning.further
    while batch and (made := make(batch)):
        for (cell, _), trial in zip(batch, made, strict=True):
            trials[cell.name].append(trial)
        batch = []
        if further:
            further -= 1
            steps = {cell.name: next_values(cell, trials[cell.name], is_rising) for cell in cells}
            if any(is_beyond for _, is_beyond in steps.values()):
                batch = [(cell, step) for cell in cells if (step := steps[cell.name][0]) is not None]
    return {row: _chosen(found, is_rising) for row, found in trials.items()}


def _first(cell: Cell) -> list[Values]:
    """Return all combinations of the first values of a row's fields."""
    lists = [values for values in cell.tune.values() if isinstance(values, list)]
    return [dict(zip(cell.tune, values, strict=True)) for values in itertools.product(*lists)]


def next_values(cell: Cell, trials: Sequence[Trial], is_rising: bool) -> tuple[Values | None, bool]:
    """Return what a row tries next, None if there is nothing, and whether that lies beyond an edge of its grid."""
    best = best_of(trials, is_rising)
    if best is None:
        return None, False
    tried = [trial.values for trial in trials]
    beyond = [values for values in _beyond(best, trials) if values not in tried and is_accepted(cell, values)]
    if beyond:
        return beyond[0], True
    between = [values for values in _between(best, trials) if values not in tried and is_accepted(cell, values)]
    return (between[0] if between else None), False


def _chosen(trials: list[Trial], is_rising: bool) -> Tuned:
    best = best_of(trials, is_rising)
    if best is None:
        return Tuned(trials, {}, [])
    axes = [
        path for path in best.values if (axis := _axis(best, trials, path)) and best.values[path] in (axis[0], axis[-1])
    ]
    far = {
        path: [each for each in _neighbours(best, trials, path) if max(each / value, value / each) >= WIDE]
        for path, value in best.values.items()
    }
    return Tuned(trials, best.values, axes, {path: values for path, values in far.items() if values})


def best_of(trials: Sequence[Trial], is_rising: bool) -> Trial | None:
    """Return the trial with the best score, the first of equals; None if no score is finite."""
    return next(iter(ranked(trials, is_rising=is_rising)), None)


def _axis(best: Trial, trials: Sequence[Trial], path: str) -> list[float]:
    """Return the tried values of a field, sorted, with the best values of the others; [] if it has no edges."""
    others = {name: value for name, value in best.values.items() if name != path}
    values = [trial.values[path] for trial in trials if {n: v for n, v in trial.values.items() if n != path} == others]
    return sorted(set(values)) if is_numeric(values) and len(set(values)) > 1 else []


def _ratios(best: Trial, trials: Sequence[Trial], path: str) -> list[float]:
    """Return the same if each value has a ratio to its neighbour: [] with a value that is not positive."""
    axis = _axis(best, trials, path)
    return axis if axis and axis[0] > 0 else []


def _beyond(best: Trial, trials: Sequence[Trial]) -> Iterator[Values]:
    for path, value in best.values.items():
        axis = _ratios(best, trials, path)
        for edge, neighbour in ((axis[0], axis[1]), (axis[-1], axis[-2])) if axis else ():
            if value == edge:
                yield best.values | {path: rounded(edge * edge / neighbour, edge)}


def _between(best: Trial, trials: Sequence[Trial]) -> Iterator[Values]:
    """Yield the geometric means of the best value and its neighbours, those of the widest gap first."""
    found = []
    for path, value in best.values.items():
        for neighbour in _neighbours(best, trials, path):
            middle = best.values | {path: rounded(math.sqrt(value * neighbour), value)}
            found.append((-round(abs(math.log(neighbour / value)), 6), middle))
    yield from (values for _, values in sorted(found, key=lambda each: each[0]))


def _neighbours(best: Trial, trials: Sequence[Trial], path: str) -> list[float]:
    """Return the positive values of a field that were tried next to the best one, the lower first."""
    axis = _ratios(best, trials, path)
    index = axis.index(best.values[path]) if axis else 0
    return [*axis[max(index - 1, 0) : index], *axis[index + 1 : index + 2]]


def rounded(value: float, like: Any) -> Any:
    """Return a value with four digits, or a whole number if `like` is one."""
    return max(1, round(value)) if isinstance(like, int) else float(f"{value:.4g}")


def is_accepted(cell: Cell, values: Values) -> bool:
    try:
        cell.with_settings(values)
    except ScenarioError:
        return False
    return True
