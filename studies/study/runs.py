"""A run as studies and comparisons read it: its evaluations, what they cost, and its figures.

A target is met by the first evaluation that reaches it. This is how most papers count, beginning with FedAvg's
(arXiv:1602.05629, Table 2, which takes the best value so far). Smoothed, it is met by the exponential moving average of
the metric, as `stop.target` is: FedACG's tables count so (arXiv:2201.03172). That average still holds x₀ in the first
rounds (0.9^r of it after r), which favours methods with many cheap rounds; so it is not the default. The run's own stop
condition does not matter. The bytes to the target are all bytes sent in both directions up to the evaluation that met
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.metrics import WHEN
from seedbus.agents.server.stopping import all_rounds_done, averages, meets
from seedbus.scenarios.reporting.axes import sample_indices
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.shortcomings import shortcomings
from seedbus.scenarios.reporting.statistics import ArrivedReports
from seedbus.scenarios.run_folder import RESULTS, scenario_of
from seedbus.scenarios.schema.amounts import cost_of
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.study.figures_file import RunFigures

ENDING = 10
"""Number of last evaluations whose plain mean is reported, however many rounds they span; all have to be finite.

Of a run that has no more they are all of them, and x₀ is one.
"""

Figures = dict[str, float | None]
Column = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        folder: the run's folder.
        scenario: the scenario in its journal.
        lines: its evaluations, oldest first; at least one.
        results: None if the run is not finished.
        kept: what is kept of a run that was made elsewhere, in the place of its journal and its messages.
    """

    folder: Path
    scenario: Scenario
    lines: list[dict[str, Any]]
    results: Results | None
    kept: RunFigures | None = None

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read a run from its folder.

        Raises:
            RunFolderError: there is no run in the folder, or it has no evaluations yet.
            JournalDamaged: the journal cannot be read, or its evaluations are invalid.
        """
        if (kept := RunFigures.read(folder)) is not None:
            return cls(folder, kept.scenario(folder), kept.lines, Results.read(folder), kept)
        with closing(Journal.open(folder, for_writing=False)) as journal:
            lines = journal.metrics()
        if not lines:
            raise RunFolderError(folder, "this run has no evaluations yet, so there is nothing to compare")
        return cls(folder, scenario_of(folder), lines, Results.read(folder) if (folder / RESULTS).exists() else None)

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.lines[-1] if name not in WHEN and not name.endswith("_ema")]

    @property
    def divergence(self) -> str:
        """How training diverged, if that ended the run; else ""."""
        if self.results is None or not self.results.training_diverged:
            return ""
        return str(self.results.summary["reason"])

    def remarks(self, metric: str) -> list[str]:
        """Return how training diverged, if it did, and what the run did not achieve; in sentences."""
        return [*([self.divergence] if self.divergence else []), *self.shortcomings(metric)]

    def shortcomings(self, metric: str) -> list[str]:
        """Return what the run did not achieve by a metric, in sentences."""
        return shortcomings(self.lines, self.lines[-1]["version"], self.scenario.task.rising, metric)

    @cached_property
    def rounds(self) -> list[int]:
        """Number of rounds before each evaluation."""
        return all_rounds_done(self.lines)

    @cached_property
    def sent(self) -> list[int]:
        """Bytes of plans and reports sent before each evaluation, in both directions, all clients together."""
        return [line["bytes_up"] + line["bytes_down"] for line in self.lines]

    @cached_property
    def caught_up(self) -> list[float]:
        """Bytes of `sent` that brought clients what they had missed, of the rounds before each evaluation.

        They are NaN for a run that is not finished.

        Raises:
            LedgerDamaged: the ledger cannot be read, or is incomplete.
        """
        if self.kept is not None:
            return self.kept.caught_up
        if self.results is None:
            return [math.nan] * len(self.lines)
        columns = self.results.columns
        rows = np.flatnonzero(columns["catchup_bytes"])
        # no array has an entry for every round: somebody else's file may name one that is far ahead
        rounds, index = np.unique(columns["round"][rows], return_inverse=True)
        so_far = np.concatenate([[0.0], np.cumsum(np.bincount(index, columns["catchup_bytes"][rows]))])
        return [float(each) for each in so_far[np.searchsorted(rounds, self.rounds)]]

    @cached_property
    def times(self) -> list[float]:
        """Simulated seconds before each evaluation."""
        return [float(line["time_s"]) for line in self.lines]

    def values(self, metric: str) -> list[float]:
        """Return a metric's value in each evaluation; NaN where it was not finite."""
        return [math.nan if line.get(metric) is None else float(line[metric]) for line in self.lines]

    @cached_property
    def costs(self) -> Figures:
        """The figures that do not depend on a metric. For an unfinished run, they are those of its last evaluation.

        `epsilon` is among them if the run measured it.
        """
        last, clients = self.lines[-1], self.scenario.participation.clients
        up, down = last["bytes_up"], last["bytes_down"]
        rounds, simulated_s, wall_s = self.rounds[-1], last["time_s"], None
        if self.results is not None:
            summary = self.results.summary
            up, down = (summary["traffic"][direction]["bytes"] for direction in ("up", "down"))
            rounds, simulated_s = summary["rounds"], summary["simulated_s"]
            # after a resumption, the summary has only the time since then
            wall_s = None if summary.get("was_resumed") else summary["wall_s"]
        spent = {"epsilon": last["epsilon"]} if "epsilon" in last else {}
        return spent | {
            "rounds": rounds,
            "bytes_up": up,
            "bytes_up_per_client": up / clients,
            "bytes_down": down,
            "bytes_down_per_client": down / clients,
            "simulated_s": simulated_s,
            "wall_s": wall_s,
            "evaluations": None if self.passes is None else self.passes[-1],
        }

    @cached_property
    def passes(self) -> list[float] | None:
        """Forward passes behind the reports that arrived, of the rounds before each evaluation, and of all rounds.

        A backward pass counts as two. Without a server, those behind the commits. None if they are not known.

        Raises:
            LedgerDamaged: the ledger cannot be read, or is incomplete.
        """
        if self.kept is not None:
            return self.kept.passes
        algorithm = self.scenario.algorithm
        if self.results is None or not algorithm.facts.knows_evaluations:
            return None
        if not self.scenario.has_server:  # nodes send no reports
            history = self.results.history
            made, begun = history.reported.round, history.begun
        else:
            arrived = ArrivedReports(self.results.columns, self.results.history)
            made = begun = arrived.keys // self.scenario.participation.clients
        rounds, index = np.unique(begun, return_inverse=True)
        costs = np.array([algorithm.work(round).evaluations for round in rounds.tolist()], np.float64)[index]
        so_far = np.concatenate([[0.0], np.cumsum(costs)])
        before = so_far[np.searchsorted(made, self.rounds)]
        return [*before.tolist(), float(so_far[-1])]

    @property
    def passes_before(self) -> list[float]:
        """Forward passes before each evaluation; NaN where they are not known."""
        return [math.nan] * len(self.lines) if self.passes is None else self.passes[:-1]

    def first_met(self, metric: str, target: float, *, smoothed: bool = False) -> int | None:
        """Return the index of the first evaluation that meets the target; None if none does.

        Args:
            metric: the metric.
            target: its value.
            smoothed: whether the moving average is to meet it, and not the metric itself.
        """
        is_rising = metric in self.scenario.task.rising
        values = averages(self.lines, metric) if smoothed else self.values(metric)
        return next((index for index, value in enumerate(values) if meets(value, target, is_rising=is_rising)), None)

    def newest(self, point: int | str) -> int | None:
        """Return the index of the newest evaluation after a number of rounds, or within bytes or a simulated time.

        It is None if the run has fewer, or if nothing had been measured: the evaluator's answers may be refused, that
        for x₀ too. With bytes or a time x₀ does not count, for it says nothing of what they were good for.

        Args:
            point: rounds, or bytes of plans and reports, both ways, all clients, or a time (`amounts.point_of`).
        """
        if isinstance(point, int):
            found = [index for index, done in enumerate(self.rounds) if done <= point]
            return None if self.rounds[-1] < point or not found else found[-1]
        cost, most = cost_of(point)
        spent: Sequence[float] = self.sent if cost == "bytes" else self.times
        costs = self.costs | {"bytes": (self.costs["bytes_up"] or 0) + (self.costs["bytes_down"] or 0)}
        found = [index for index, each in enumerate(spent) if each <= most and self.rounds[index] > 0]
        return None if (costs[cost] or 0) < most or not found else found[-1]

    def at(self, metric: str, point: int | str, *, is_average: bool = False) -> float | None:
        """Return the metric, or its moving average, at the newest evaluation (`newest`); None if it is not finite."""
        index = self.newest(point)
        values = averages(self.lines, metric) if is_average else self.values(metric)
        return None if index is None else _finite(values[index])

    def figures(
        self, metric: str, targets: Mapping[str, float], at: Sequence[int | str], *, smoothed: bool = False
    ) -> Figures:
        """Return all figures of the run.

        Args:
            metric: the metric.
            targets: name → value of the metric to reach; figures are called `rounds_to_NAME`, and so on.
            at: rounds, bytes or simulated times after which the metric is reported.
            smoothed: whether the moving average is to reach the targets.
        """
        values = [value for value in self.values(metric) if math.isfinite(value)]
        figures: Figures = {f"at_{point}": self.at(metric, point) for point in at}
        figures |= {f"at_{point}_ema": self.at(metric, point, is_average=True) for point in at}
        for point in at:
            if isinstance(point, str):
                index, cost = self.newest(point), cost_of(point)[0]
                spent: Sequence[float] = self.sent if cost == "bytes" else self.times
                figures[f"at_{point}_{cost}"] = None if index is None else spent[index]
        figures["last"] = _finite(self.values(metric)[-1])
        figures["best"] = None if not values else max(values) if metric in self.scenario.task.rising else min(values)
        figures["end"] = _finite(float(np.mean(self.values(metric)[-ENDING:])))
        figures["ema"] = _finite(averages(self.lines, metric)[-1])
        for target, value in targets.items():
            index = self.first_met(metric, value, smoothed=smoothed)
            figures[f"rounds_to_{target}"] = None if index is None else self.rounds[index]
            figures[f"bytes_to_{target}"] = None if index is None else self.sent[index]
            for direction in ("up", "down"):
                name = f"bytes_{direction}"
                figures[f"{name}_to_{target}"] = None if index is None else self.lines[index][name]
            figures[f"catchup_bytes_to_{target}"] = None if index is None else _finite(self.caught_up[index])
            figures[f"simulated_s_to_{target}"] = None if index is None else self.times[index]
        return figures | self.costs


class Curve(NamedTuple):
    """The mean of a metric over runs, at the rounds after which all of them were evaluated, [n] each.

    Attributes:
        rounds: before each evaluation.
        bytes: of plans and reports, mean over the runs.
        simulated_s: seconds, mean over the runs.
        passes: forward passes, mean over the runs; NaN where they are not known.
        mean: of the metric.
        deviation: its sample standard deviation; 0 for a single run.
    """

    rounds: Column
    bytes: Column
    simulated_s: Column
    passes: Column
    mean: Column
    deviation: Column

    @staticmethod
    def of(runs: Sequence[Run], metric: str) -> Curve:
        """Return it; with at most `MAX_POINTS` evaluations."""
        common = sorted(set.intersection(*(set(run.rounds) for run in runs)))
        at = [common[index] for index in sample_indices(len(common)).tolist()] if common else []
        tables = []
        for run in runs:
            columns: Any = zip(run.sent, run.times, run.passes_before, run.values(metric), strict=True)
            table = dict(zip(run.rounds, columns, strict=True))
            tables.append([table[round] for round in at])
        values = np.array(tables, float).reshape(len(runs), len(at), 4)
        deviation = values[:, :, 3].std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(at))
        sent, times, passes, mean = values.mean(axis=0).T
        return Curve(np.array(at, float), sent, times, passes, mean, deviation)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
