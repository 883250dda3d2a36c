"""Comparison of runs, finished or not. Runs of one scenario with different seeds form one row."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from seedbus.agents.feature import bases
from seedbus.bus.text import counted
from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.schema.amounts import point_of
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import nearest, quoted
from seedbus.studies.study.comparison import Comparison, Row, Spread
from seedbus.studies.study.runs import ENDING, Run
from seedbus.studies.study.setting_names import names, settings_of

_SAME_RUN = ("seed", "description", "transport", "expect", "verify", "verify_every")


def compare(
    folders: str | Path | Sequence[str | Path],
    metric: str | None = None,
    target: float | None = None,
    at: int | str | Sequence[int | str] = (),
    *,
    smoothed: bool = False,
) -> Comparison:
    """Compare runs.

    Args:
        folders: the runs' folders.
        metric: the metric to compare; default: accuracy, or loss if a run has no accuracy.
        target: value of the metric; rounds and bytes to reach it are reported.
        at: rounds, bytes such as "1MB", a simulated time such as "600s", or a list of them, after which the metric is
            reported.
        smoothed: whether the metric's moving average is to reach the target, as it does for `stop.target`.

    Raises:
        RunFolderError: a folder holds no run, or one without evaluations.
        JournalDamaged, LedgerDamaged: the journal of a run, or its ledger, cannot be read.
        ScenarioError: a run does not measure the metric, there is no run, or a number is not accepted.
    """
    folders = list(folders) if isinstance(folders, Iterable) and not isinstance(folders, str) else [folders]
    if not folders:
        raise ScenarioError("folders", ["none is given; expected the folder of at least one run"])
    given: Any = target
    if given is not None and not (isinstance(given, Real) and math.isfinite(given)):
        raise ScenarioError("target", [f"{target!r} is not accepted; expected a finite number"])
    points = []
    for point in [at] if isinstance(at, str) or not isinstance(at, Iterable) else at:
        try:
            points.append(point_of(point))
        except ValueError as error:
            raise ScenarioError("at", [f"{point!r} is not accepted; {error}"]) from None
    runs, notes = _one_of_each([Run.read(path_of(folder, "folders", "the folder of a run")) for folder in folders])
    notes += _notes(runs)
    if metric is None:
        metric = next((name for name in ("accuracy", "loss") if all(name in run.metrics for run in runs)), "accuracy")
    for run in runs:
        if metric not in run.metrics:
            problem = f"{quoted(metric)} is not measured in this run; {nearest(str(metric), run.metrics)}"
            raise ScenarioError(str(run.folder), [problem])
        notes += [f"{run.folder}: {remark}" for remark in run.remarks(metric)]
    notes += _opposites(runs, metric)
    notes += bases({str(run.folder): run.scenario for run in runs})
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_identity(run)), []).append(run)
    row_names = _names([members[0].scenario for members in groups.values()])
    targets = {} if target is None else {"target": target}
    rows = []
    for name, members in zip(row_names, groups.values(), strict=True):
        each = [run.figures(metric, targets, points, smoothed=smoothed) for run in members]
        rows.append(Row(name, members, {key: Spread.of(figures[key] for figures in each) for key in each[0]}))
    return Comparison(metric, target, smoothed, points, sorted(rows, key=lambda row: _rank(row, metric)), notes)


def _one_of_each(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Of runs with the same scenario and seed, keep the one with the most rounds; return a note for each of the others.

    A finished run is preferred to an unfinished one.
    """
    kept: dict[str, Run] = {}
    notes = []
    for run in sorted(runs, key=lambda run: (run.results is None, -run.rounds[-1])):
        first = kept.setdefault(json.dumps(_identity(run) | {"seed": run.scenario.seed}), run)
        if first is not run:
            notes.append(f"{run.folder} has the scenario and the seed of {first.folder}; only that is counted")
    return [run for run in runs if any(run is each for each in kept.values())], notes


def _notes(runs: Sequence[Run]) -> list[str]:
    notes = [
        f"{run.folder} is not finished; it is counted as it was after {counted(run.rounds[-1], 'round')}"
        for run in runs
        if run.results is None
    ]
    notes += [f"{run.folder}: {run.results.warning}" for run in runs if run.results is not None and run.results.warning]
    tasks = sorted(
        {" ".join(filter(None, (r.scenario.task.name, getattr(r.scenario.task, "model", "")))) for r in runs}
    )
    if len(tasks) > 1:
        notes.append(f"the runs are of different tasks ({', '.join(tasks)}): their figures are not of one kind")
    splits = sorted({run.scenario.evaluation.split for run in runs})
    if len(splits) > 1:
        notes.append(f"the runs are measured on different splits ({' and '.join(splits)})")
    every = sorted({run.scenario.evaluation.every for run in runs})
    if len(every) > 1:
        after = " and every ".join(f"{each:,}" for each in every)
        notes.append(
            f"the runs are evaluated after every {after} rounds: the mean of the last {ENDING} spans other numbers of "
            "rounds, and the best is one of more values or of fewer"
        )
    return notes


def _opposites(runs: Sequence[Run], metric: str) -> list[str]:
    """A note if larger values of a metric are better in some of the runs only."""
    better = {metric in run.scenario.task.rising: run.folder for run in reversed(runs)}
    if len(better) < 2:
        return []
    return [
        f"larger values of {metric} are better in {better[True]} and smaller ones in {better[False]}, as their tasks "
        "say: what is best, the rounds to a target and the order of rows are not of one kind"
    ]


def _identity(run: Run) -> dict[str, Any]:
    """The fields that distinguish scenarios: all but the seed and those that do not change the bits of a run."""
    return {name: value for name, value in run.scenario.resolved().items() if name not in _SAME_RUN}


def _names(scenarios: Sequence[Scenario]) -> list[str]:
    """Return the scenarios' names. Where several have the same name, the settings in which they differ are added."""
    found = [scenario.name for scenario in scenarios]
    fields = [settings_of(scenario) for scenario in scenarios]
    for name in {name for name in found if found.count(name) > 1}:
        indices = [index for index, other in enumerate(found) if other == name]
        for index, settings in zip(indices, names([fields[index] for index in indices], _SAME_RUN), strict=True):
            found[index] = f"{name}, {settings}"
    return found


def _rank(row: Row, metric: str) -> tuple[Any, ...]:
    """Sort key: rows with a run whose training diverged last; before, those that reach the target in all runs first,
    fewest rounds first; then the best last value first."""
    met, last = row.figures.get("rounds_to_target"), row.figures["last"]
    is_met = met is not None and met.runs == len(row.runs)
    value = math.inf if last is None else -last.mean if metric in row.runs[0].scenario.task.rising else last.mean
    return row.diverged > 0, not is_met, met.mean if met is not None and is_met else 0.0, value, row.name
