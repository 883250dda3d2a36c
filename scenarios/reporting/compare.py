"""Runs side by side: finished ones, and others as far as they came; seeds of one scenario are one row."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbus.bus.text import printable
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.compare_page import markdown
from seedbus.scenarios.reporting.compared import RISING, Compared, Row, Run, Spread
from seedbus.scenarios.sentences import nearest, quoted

_SAME_RUN = ("seed", "description", "transport", "expect", "verify", "verify_every")
_MOST_SETTINGS = 3
_LONGEST = 30  # characters of a setting


@dataclass(frozen=True)
class Comparison(Compared):
    """Runs side by side, as `compare` returns them; printed, they are a table in Markdown."""

    def __str__(self) -> str:
        return "\n".join([markdown(self), *self.notes])


def compare(
    folders: Sequence[str | Path], metric: str | None = None, target: float | None = None, at: Sequence[int] = ()
) -> Comparison:
    """Runs side by side. metric: by default accuracy, or loss where there is none; at: rounds to look at.

    Raises `RunFolderError`, `JournalDamaged`, and `ScenarioError` for a metric that a run does not measure.
    """
    runs, notes = _one_of_each([Run.read(Path(folder)) for folder in folders])
    notes += _notes(runs)
    if metric is None:
        metric = next((name for name in ("accuracy", "loss") if all(name in run.metrics for run in runs)), "accuracy")
    for run in runs:
        if metric not in run.metrics:
            what = f"{quoted(metric)} is not measured in this run; {nearest(metric, run.metrics)}"
            raise ScenarioError(str(run.folder), [what])
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_kept(run)), []).append(run)
    names = _names([_kept(members[0]) for members in groups.values()])
    rows = []
    for name, members in zip(names, groups.values(), strict=True):
        each = [run.figures(metric, target, at) for run in members]
        rows.append(Row(name, members, {key: Spread.of(figures[key] for figures in each) for key in each[0]}))
    return Comparison(metric, target, list(at), sorted(rows, key=lambda row: _rank(row, metric)), notes)


def _one_of_each(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Of runs of one scenario with one seed, the one that came furthest; and what was left out."""
    kept: dict[str, Run] = {}
    notes = []
    for run in sorted(runs, key=lambda run: (run.results is None, -run.rounds[-1])):
        first = kept.setdefault(json.dumps(_kept(run) | {"seed": run.scenario.seed}), run)
        if first is not run:
            notes.append(f"{run.folder} has the scenario and the seed of {first.folder}; only that is counted")
    return [run for run in runs if any(run is each for each in kept.values())], notes


def _notes(runs: Sequence[Run]) -> list[str]:
    found = [
        f"{run.folder} is not finished; it is counted as it was after {run.rounds[-1]:,} rounds"
        for run in runs
        if run.results is None
    ]
    tasks = sorted(
        {" ".join(filter(None, (r.scenario.task.name, getattr(r.scenario.task, "model", "")))) for r in runs}
    )
    if len(tasks) > 1:
        found.append(f"the runs are of different tasks ({', '.join(tasks)}): their figures are not of one kind")
    if len({run.scenario.evaluation.split for run in runs}) > 1:
        found.append("the runs are measured on different splits (test and validation)")
    return found


def _kept(run: Run) -> dict[str, Any]:
    """What makes a scenario another one: all but its seed, and what changes no bit of a run."""
    return {name: value for name, value in run.scenario.resolved().items() if name not in _SAME_RUN}


def _names(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """The scenarios' names, and where several have one, the settings in which these differ."""
    found = []
    flat = [dict(_flat(scenario)) for scenario in scenarios]
    for scenario, fields in zip(scenarios, flat, strict=True):
        alike = [other for other in flat if other["name"] == fields["name"]]
        differing = [path for path in fields if any(other.get(path) != fields[path] for other in alike)]
        settings = [f"{path}={_cut(fields[path])}" for path in differing[:_MOST_SETTINGS]]
        more = ["…"] if len(differing) > _MOST_SETTINGS else []
        found.append(" ".join([scenario["name"], *settings, *more]))
    return found


def _cut(text: str) -> str:
    return printable(text, _LONGEST + 1)


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """The fields with their paths, as `--set` has them."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else key)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _rank(row: Row, metric: str) -> tuple[Any, ...]:
    """Those that reach the target in all runs first, the fewest rounds first; then the best last value first."""
    met, last = row.figures.get("rounds_to_target"), row.figures["last"]
    is_met = met is not None and met.runs == len(row.runs)
    value = math.inf if last is None else -last.mean if metric in RISING else last.mean
    return not is_met, met.mean if met is not None and is_met else 0.0, value, row.name
