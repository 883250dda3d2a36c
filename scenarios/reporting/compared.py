"""What a comparison is made of: single runs with their figures, and rows of runs that differ in the seed alone.

A target is met by the exponential moving average of the metric, parameter 0.9 per round, whether or not the run
itself was to stop there; the bytes to it are all that was sent, both ways, by the evaluation that met it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.server.stopping import averages, rounds_done
from seedbus.bus.errors import LedgerDamaged
from seedbus.scenarios.reporting.results import RESULTS, Results
from seedbus.scenarios.reporting.statistics import Heard
from seedbus.scenarios.reporting.summary import WHEN, wrong_in_lines
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.schema.scenario import Scenario

RISING = ("accuracy", "success", "f1")
"""Metrics of which more is better; of any other, less is."""
ENDING = 10
"""Evaluations whose mean says where a run ended, when single ones jump about."""

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Run:
    """One run. lines: its evaluations, oldest first, at least one; results: None if it is not finished."""

    folder: Path
    scenario: Scenario
    lines: list[dict[str, Any]]
    results: Results | None

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Raises `RunFolderError` if there is no run, or nothing was measured; `JournalDamaged`."""
        with closing(Journal.open(folder, for_writing=False)) as journal:
            lines = journal.metrics()
        if not lines:
            raise RunFolderError(folder, "this run has no evaluations yet, so there is nothing to compare")
        if (wrong := wrong_in_lines(lines)) is not None:
            raise JournalDamaged(folder / FILE, 0, f"its evaluations are not what they should be ({wrong})")
        return cls(folder, scenario_of(folder), lines, Results.read(folder) if (folder / RESULTS).exists() else None)

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.lines[-1] if name not in WHEN and not name.endswith("_ema")]

    @cached_property
    def rounds(self) -> list[int]:
        """After how many rounds each line was measured."""
        return [rounds_done(line) for line in self.lines]

    @cached_property
    def sent(self) -> list[int]:
        """Bytes of plans and reports by each line, both ways, all clients."""
        return [line["bytes_up"] + line["bytes_down"] for line in self.lines]

    def values(self, metric: str) -> list[float]:
        """NaN where it was not finite."""
        return [math.nan if line.get(metric) is None else float(line[metric]) for line in self.lines]

    @cached_property
    def costs(self) -> Figures:
        """What does not depend on a metric; of a run that is not finished, by its last evaluation."""
        last, clients = self.lines[-1], self.scenario.participation.clients
        up, down, simulated, rounds = last["bytes_up"], last["bytes_down"], last["time_s"], self.rounds[-1]
        wall = None
        if self.results is not None:
            summary = self.results.summary
            up, down = (summary["traffic"][direction]["bytes"] for direction in ("up", "down"))
            rounds, simulated = summary["rounds"], summary["simulated_s"]
            wall = None if summary.get("was_resumed") else summary["wall_s"]  # that is of its end alone
        return {
            "rounds": rounds,
            "bytes_up": up,
            "bytes_up_per_client": up / clients,
            "bytes_down": down,
            "bytes_down_per_client": down / clients,
            "simulated_s": simulated,
            "wall_s": wall,
            "evaluations": self._evaluations,
        }

    @property
    def _evaluations(self) -> float | None:
        """Forward passes behind the reports that arrived; a backward pass is two. None where nobody knows."""
        algorithm = self.scenario.algorithm
        if self.results is None or not algorithm.knows_evaluations:  # how long one is, clients know
            return None
        try:
            heard = Heard(self.results.columns, self.results.history)
        except LedgerDamaged:
            return None
        rounds, reports = np.unique(heard.keys // self.scenario.participation.clients, return_counts=True)
        pairs = zip(rounds.tolist(), reports.tolist(), strict=True)
        return float(sum(count * algorithm.evaluations(round) for round, count in pairs))

    def reached(self, metric: str, target: float) -> int | None:
        """The place of the first line whose moving average meets the target."""
        for place, average in enumerate(averages(self.lines, metric)):
            if average >= target if metric in RISING else average <= target:
                return place
        return None

    def at(self, metric: str, round: int) -> float | None:
        """The newest value after so many rounds; None if the run did not come so far, or it is not finite."""
        known = [value for done, value in zip(self.rounds, self.values(metric), strict=True) if done <= round]
        return None if self.rounds[-1] < round else _finite(known[-1])

    def figures(self, metric: str, target: float | None, at: Sequence[int]) -> Figures:
        values = [value for value in self.values(metric) if math.isfinite(value)]
        found: Figures = {f"at_{round}": self.at(metric, round) for round in at}
        found["last"] = _finite(self.values(metric)[-1])
        found["best"] = None if not values else max(values) if metric in RISING else min(values)
        found["end"] = float(np.mean(values[-ENDING:])) if values else None
        if target is not None:
            place = self.reached(metric, target)
            found["rounds_to_target"] = None if place is None else self.rounds[place]
            found["bytes_to_target"] = None if place is None else self.sent[place]
        return found | self.costs


@dataclass(frozen=True)
class Spread:
    """A figure over the runs that have it: their mean, their sample standard deviation (None of one), how many."""

    mean: float
    deviation: float | None
    runs: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        known = [value for value in values if value is not None]
        if not known:
            return None
        return Spread(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but the seed. name: the scenario's, with what tells it from others of that name."""

    name: str
    runs: list[Run]
    figures: dict[str, Spread | None]

    @property
    def algorithm(self) -> str:
        return self.runs[0].scenario.algorithm.label

    @property
    def unfinished(self) -> int:
        return sum(run.results is None for run in self.runs)

    def json(self) -> dict[str, Any]:
        figures = {name: None if each is None else vars(each) for name, each in self.figures.items()}
        runs = [
            {"run": str(r.folder), "seed": r.scenario.seed, "is_finished": r.results is not None} for r in self.runs
        ]
        return {"name": self.name, "algorithm": self.algorithm, "runs": runs, "figures": figures}


@dataclass(frozen=True)
class Compared:
    """Rows, best first. notes: what a reader should know, a sentence each."""

    metric: str
    target: float | None
    at: list[int]
    rows: list[Row]
    notes: list[str]

    def json(self) -> dict[str, Any]:
        asked = {"metric": self.metric, "target": self.target, "at": self.at}
        return asked | {"rows": [row.json() for row in self.rows], "notes": self.notes}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
