"""Searching ranges: Optuna proposes the values of every row, and is told what their trials found.

Optuna (Akiba et al. 2019, arXiv:1907.10902) is asked for a batch of a fixed size and told its scores in the order in
which it proposed them. So what it proposes depends on the study and on the scores of earlier trials alone: neither the
number of processes nor an interruption changes it, for finished trials are kept and told again. All rows spend the same
number of trials, and those of the first batches, which are random, try the same values.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

from seedbus.keyed import keyed_bits
from seedbus.scenarios.extras import require
from seedbus.studies.study.cells import Cell, Plan
from seedbus.studies.study.schema import Choices, Range, Study
from seedbus.studies.study.trials import Trial, Tuned
from seedbus.studies.study.tuning import Batch, Values, best_of, is_accepted, rounded

BATCH = 4
"""Values of a row that are tried at once; more would know less of each other."""
EDGE = 0.05
"""Share of a range that counts as its edge."""


def searched(plan: Plan, is_rising: bool, make: Batch) -> dict[str, Tuned]:
    """Choose the values of every row.

    Args:
        plan: the study; its `tune` has ranges and choices.
        is_rising: whether a higher score is better.
        make: makes trials.

    Raises:
        ScenarioError: Optuna is not installed, or a row does not accept the ends of a range or a choice.
    """
    optuna = _optuna(plan.source)
    rows = [_Row(optuna, plan.study, cell, is_rising) for cell in plan.cells if cell.tune]
    left = plan.study.tuning.trials
    while left:
        asked = [(row, *row.ask()) for row in rows for _ in range(min(BATCH, left))]
        makeable = [number for number, (row, _, values) in enumerate(asked) if is_accepted(row.cell, values)]
        made = make([(asked[number][0].cell, asked[number][2]) for number in makeable]) if makeable else []
        if len(made) < len(makeable):
            break
        found = dict(zip(makeable, made, strict=True))
        for number, (row, proposal, values) in enumerate(asked):
            row.tell(proposal, found.get(number, Trial(values, math.nan)))
        left -= min(BATCH, left)
    return {row.cell.name: row.tuned() for row in rows}


class _Row:
    """The search of one row.

    Attributes:
        cell: the row.
    """

    def __init__(self, optuna: Any, study: Study, cell: Cell, is_rising: bool) -> None:
        for values in _corners(cell):
            cell.with_settings(values)
        self.cell = cell
        self._optuna, self._is_rising, self._trials = optuna, is_rising, list[Trial]()
        self._axes = {path: axis for path, axis in cell.tune.items() if not isinstance(axis, list)}
        lowest = next(_corners(cell))
        self._whole = {path for path in self._axes if _is_whole(cell, lowest, path, self._axes[path])}
        self._distributions = {path: self._distribution(path) for path in self._axes}
        tuning = study.tuning
        seed = keyed_bits("search", study.seeds[0] if tuning.seed is None else tuning.seed) % 2**32
        samplers, verbosity = optuna.samplers, optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would tell of every study
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = (
                    samplers.TPESampler(seed=seed, constant_liar=True)  # the trials of a batch keep apart
                    if tuning.search == "tpe"
                    else samplers.RandomSampler(seed=seed)
                )
            direction = "maximize" if is_rising else "minimize"
            self._study = optuna.create_study(
                storage=optuna.storages.InMemoryStorage(), sampler=sampler, direction=direction
            )
        finally:
            optuna.logging.set_verbosity(verbosity)

    def ask(self) -> tuple[Any, Values]:
        """Return a trial of Optuna's, and its values."""
        trial = self._study.ask(self._distributions)
        return trial, {path: self._value(path, trial.params[path]) for path in self._axes}

    def tell(self, proposal: Any, trial: Trial) -> None:
        """Tell what the trial of a proposal found; one without a finite score has failed."""
        self._trials.append(trial)
        if math.isfinite(trial.score):
            self._study.tell(proposal, trial.score)
        else:
            self._study.tell(proposal, state=self._optuna.trial.TrialState.FAIL)

    def tuned(self) -> Tuned:
        """Return how the values were chosen."""
        best = best_of(self._trials, self._is_rising)
        if best is None:
            return Tuned(self._trials, {}, [])
        edges = [
            path for path, axis in self._axes.items() if isinstance(axis, Range) and _at_edge(best.values[path], axis)
        ]
        return Tuned(self._trials, best.values, edges)

    def _distribution(self, path: str) -> Any:
        axis, kinds = self._axes[path], self._optuna.distributions
        if isinstance(axis, Choices):
            return kinds.CategoricalDistribution(tuple(range(len(axis.choices))))
        if path in self._whole:
            return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.log)

    def _value(self, path: str, proposed: Any) -> Any:
        """Return a proposal as the scenario has it: with four digits, so that no last bit of a logarithm decides."""
        axis = self._axes[path]
        if isinstance(axis, Choices):
            return axis.choices[proposed]
        return proposed if path in self._whole else min(max(rounded(proposed, proposed), axis.low), axis.high)


def _optuna(source: str) -> Any:
    require(f"{source}, tune: ranges", "optuna")
    import optuna

    return optuna


def _corners(cell: Cell) -> Iterator[Values]:
    """Yield every combination of choices, once with the lowest and once with the highest values of all ranges."""
    for end in ("low", "high"):
        axes = [
            axis.choices if isinstance(axis, Choices) else [_number(getattr(axis, end))] for axis in cell.tune.values()
        ]
        yield from (dict(zip(cell.tune, values, strict=True)) for values in itertools.product(*axes))


def _is_whole(cell: Cell, values: Values, path: str, axis: Range | Choices) -> bool:
    """Whether a field accepts whole numbers only."""
    if isinstance(axis, Choices) or not (axis.low.is_integer() and axis.high.is_integer()):
        return False
    return not is_accepted(cell, values | {path: axis.low + 0.5})


def _number(value: float) -> float:
    """Return a number as fields of whole numbers accept it."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _at_edge(value: float, axis: Range) -> bool:
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.log else (axis.low, axis.high)
    share = ((math.log(value) if axis.log else value) - low) / (high - low)
    return min(share, 1 - share) < EDGE
