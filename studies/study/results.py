"""What a study found, as data frames: runs, rows, differences between rows, curves, and what was tuned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.server.stopping import averages
from seedbus.scenarios.reporting.axes import is_share
from seedbus.scenarios.reporting.results import strict
from seedbus.studies.analysis.quantities import is_gap, quantity, served_metric
from seedbus.studies.study.cells import Cell, Plan, claims_of, costs, is_rising, values_of_metric
from seedbus.studies.study.circumstances import by_circumstances, circumstances, pairs_of
from seedbus.studies.study.claims import FINAL, Judged, Verdict, judged, verdicts
from seedbus.studies.study.finished_runs import RowRun
from seedbus.studies.study.intervals import AMOUNT, ANY, SHARE, Difference, Mean, Range, smallest_step
from seedbus.studies.study.schema import is_numeric
from seedbus.studies.study.trials import Trial, Tuned, ranked, regret, tie

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Failure:
    """A run that could not be made.

    Attributes:
        row: the row's name.
        seed: the run's seed.
        reason: a sentence.
    """

    row: str
    seed: int
    reason: str

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}: {self.reason}"


@dataclass(frozen=True)
class StudyResults:
    """What a study found.

    Attributes:
        folder: where the report is written; until then there may be none.
        plan: the study and its rows.
        metric: the metric that is reported.
        members: row → its finished runs, by seed.
        tuned: row → how its values were chosen.
        failures: runs that could not be made.
        trial_runs: how many of the trials' runs are finished, and how many there are as far as that is known.
        runs: data frame with a row for every finished run: `row`, `variant`, `condition` if there are such, the
            fields of the grid and of `tune`, `seed`, `run` (its folder), and the figures.
        table: data frame with a row for every row of the study; each figure with its mean, `_sd` (standard deviation),
            `_low` and `_high` (interval of the mean) and `_seeds` (runs that have it).
        differences: data frame with a row for every pair of rows that is compared, and every `figure` by which it is
            (`compared_by`): mean of `row` − `other`, paired over seeds, the interval, the `verdict`, and the `better`
            row if that is "a difference".
        curves: data frame with a row for every evaluation of every run.
        trials: data frame with a row for every value that was tried.
    """

    folder: Path
    plan: Plan = field(repr=False)  # a notebook shows what a cell returns
    metric: str
    members: dict[str, list[RowRun]] = field(repr=False)
    tuned: dict[str, Tuned] = field(default_factory=dict, repr=False)
    failures: list[Failure] = field(default_factory=list)
    trial_runs: tuple[int, int] = (0, 0)

    @property
    def is_complete(self) -> bool:
        return all(len(self.members[cell.name]) == len(self.plan.study.seeds) for cell in self.plan.cells)

    @property
    def untried(self) -> list[str]:
        """The rows of which no trial is finished, while trials are missing."""
        finished, known = self.trial_runs
        tuned = self.tuned if finished < known else {}
        return [row for row, each in tuned.items() if not any(trial.finals for trial in each.trials)]

    @property
    def is_rising(self) -> bool:
        """Whether more of the metric is better."""
        return is_rising(self.plan, self.metric)

    def mean(self, row: str, figure: str) -> Mean | None:
        """Return a figure of a row over its seeds; None if no run has it."""
        if (row, figure) not in self._means:  # tables, figures and sentences ask for the same ones
            values = [member.figures.get(figure) for member in self.members[row]]
            self._means[row, figure] = Mean.of(values, self.plan.study.ask.confidence, self._range(figure))
        return self._means[row, figure]

    @cached_property
    def _means(self) -> dict[tuple[str, str], Mean | None]:
        return {}

    @cached_property
    def figures(self) -> list[str]:
        """The names of all figures, in the order of the runs' own."""
        return list(dict.fromkeys(name for runs in self.members.values() for run in runs for name in run.figures))

    @cached_property
    def with_epsilon(self) -> set[str]:
        """The rows that have a finite ε."""
        return {cell.name for cell in self.plan.cells if "epsilon" in cell.scenario.figures}

    @cached_property
    def circumstances(self) -> dict[str, dict[str, str]]:
        """Circumstances, in words → row → what tells it from the others under them; see `by_circumstances`."""
        return by_circumstances(self.plan.cells)

    @cached_property
    def compared_by(self) -> dict[str, list[tuple[str, str, Difference]]]:
        """Figure → pairs of rows with their difference; without rows that have diverged, or have not the figure.

        The figures are the final moving average, and the value at each amount of bytes and each simulated time that
        `ask.at` names: a moving average there would still hold x₀ where a row has had few rounds. So are the means over
        clients that `ask.analysis` names.
        The pairs are those of `pairs_of`, by their circumstances.
        """
        ask, pairs = self.plan.study.ask, pairs_of(self.plan)
        figures = [FINAL, *(f"at_{point}" for point in ask.at if isinstance(point, str))]
        if self.served == self.metric:
            figures += [name for name in ask.analysis if quantity(name).is_value]
        together = len(pairs) * len(figures) if ask.together else 1
        return {
            figure: [
                (row, other, each)
                for row, other in pairs
                if (each := self._difference(row, other, figure, together)) is not None
            ]
            for figure in figures
        }

    @cached_property
    def diverged(self) -> list[str]:
        """The rows with a run whose training diverged, or whose final moving average is not finite.

        They are neither compared nor on the Pareto front: a mean over the others would flatter them.
        """
        return [row for row, runs in self.members.items() if any(member.has_diverged for member in runs)]

    def better(self, row: str, other: str, difference: Difference) -> str:
        """Return which of two rows is better; "" if no difference is seen."""
        if not difference.is_seen:
            return ""
        return row if (difference.mean > 0) == self.is_rising else other

    @cached_property
    def judged(self) -> list[Judged]:
        """What the runs say of each expectation; a row that has diverged has no figures."""
        study = self.plan.study
        samples: dict[str, dict[str, dict[int, float | None]]] = {
            name: {
                row: {} if row in self.diverged else {member.seed: member.figures.get(name) for member in members}
                for row, members in self.members.items()
            }
            for name in {each.figure for each in study.expect}
        }
        claims = claims_of(self.plan)
        return [
            judged(
                each,
                samples,
                study.seeds,
                study.ask.confidence,
                {row: self._step(row, each.figure) for row in each.rows.values()},
                self._range(each.figure),
                claims.count(claim),
                self.at_edge,
            )
            for each, claim in zip(study.expect, claims, strict=True)
        ]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Claim → the verdict on it."""
        return verdicts(claims_of(self.plan), self.judged, self.plan.study.unpublished)

    @property
    def at_edge(self) -> dict[str, list[str]]:
        """Row → its fields whose chosen value is at the edge of what was tried; without rows that have none."""
        return {row: tuned.at_edge for row, tuned in self.tuned.items() if tuned.at_edge}

    @cached_property
    def steps(self) -> dict[str, float]:
        """Row → the smallest step between two values of the metric in its evaluations, such as 1/n of n samples."""
        return {
            row: smallest_step(value for member in members for value in member.run.values(self.metric))
            for row, members in self.members.items()
        }

    @cached_property
    def served(self) -> str:
        """The metric by which it is told how well clients are served."""
        return served_metric(self.plan.cells[0].scenario.task, self.metric)

    def _metric_of(self, figure: str) -> str:
        """Return the metric that a figure is a value of, or a difference in it; "" if it is none."""
        if figure in self._of_metric:
            return self.metric
        return self.served if figure in self.plan.study.ask.analysis and quantity(figure).is_served else ""

    @cached_property
    def _of_metric(self) -> list[str]:
        return values_of_metric(self.plan)

    @cached_property
    def _costs(self) -> list[str]:
        return costs(self.plan)

    def _range(self, figure: str) -> Range:
        """Return the range of a figure's values, where it is known."""
        if figure in self._costs:
            return AMOUNT
        if not is_share(self._metric_of(figure)):
            return ANY
        return (-1.0, 1.0) if is_gap(figure) else SHARE

    def _step(self, row: str, figure: str) -> float:
        """Return the step in which values of a figure come; 0: they are exact.

        A group of clients has fewer samples than the evaluations of the metric, so a share of these is coarser.
        """
        metric = self._metric_of(figure)
        samples = [count for member in self.members[row] if (count := member.samples.get(figure))]
        of_group = 1 / min(samples) if samples and is_share(metric) else 0.0
        return max(of_group, self.steps[row] if metric == self.metric else 0.0)

    @cached_property
    def fronts(self) -> dict[str, list[str]]:
        """Circumstances → the rows of their Pareto front of the final moving average against bytes, fewest bytes first.

        Rows that are run under different circumstances share no front (`circumstances`), and where there are several, a
        row that is the only one under its own has none.
        """
        by_circumstances: dict[str, list[str]] = {}
        for row, words in circumstances(self.plan.cells).items():
            by_circumstances.setdefault(words, []).append(row)
        several = {words: rows for words, rows in by_circumstances.items() if len(rows) > 1 or not words}
        fronts = {words: self._front(rows) for words, rows in several.items()}
        return {words: front for words, front in fronts.items() if front}

    @property
    def front(self) -> list[str]:
        """The rows of all fronts."""
        return [row for rows in self.fronts.values() for row in rows]

    def _front(self, rows: list[str]) -> list[str]:
        """Return which of some rows are on their Pareto front, fewest bytes first; equal rows too."""
        sign = 1.0 if self.is_rising else -1.0
        points = []
        for row in rows:
            value, sent = self.mean(row, FINAL), self.mean(row, "bytes")
            if value is not None and sent is not None and row not in self.diverged:
                points.append((sent.mean, -sign * value.mean, row))
        front, last = [], (math.inf, math.inf)
        for sent_mean, negated, row in sorted(points):
            if negated < last[1] or (sent_mean, negated) == last:
                front.append(row)
                last = sent_mean, negated
        return front

    @cached_property
    def beside_front(self) -> list[str]:
        """The other rows that are not seen to be worse than a row of the front of their circumstances.

        Such a row sends as many bytes as one of the front or fewer, and no difference from it is seen. No row of the
        front that sends as many as this one, or fewer, is seen to be better. One seed shows no difference of any row.
        """
        costs = {row: sent.mean for row in self.members if (sent := self.mean(row, "bytes")) is not None}
        words, beside = circumstances(self.plan.cells), []
        for row in (each for each in self.members if each not in self.front):
            found = {other: self._difference(row, other) for other in self.fronts.get(words[row], [])}
            is_worse = {o: self.better(row, o, each) == o for o, each in found.items() if each and each.seeds > 1}
            beaten = [other for other, worse in is_worse.items() if worse and costs[other] <= costs[row]]
            equalled = [other for other, worse in is_worse.items() if not worse and costs[row] <= costs[other]]
            if equalled and not beaten:
                beside.append(row)
        return beside

    @cached_property
    def runs(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(
            [
                self._settings(cell)
                | {"seed": member.seed, "run": str(member.run.folder)}
                | {name: _number(value) for name, value in member.figures.items()}
                | self._unbounded(cell)
                for cell in self.plan.cells
                for member in self.members[cell.name]
            ]
        )

    @cached_property
    def table(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for cell in self.plan.cells:
            row: dict[str, Any] = self._settings(cell) | {"seeds": len(self.members[cell.name])}
            for name in self.figures:
                found = self.mean(cell.name, name)
                row[name] = _number(None if found is None else found.mean)
                row[f"{name}_sd"] = _number(None if found is None else found.deviation)
                row[f"{name}_low"] = _number(None if found is None else found.low)
                row[f"{name}_high"] = _number(None if found is None else found.high)
                row[f"{name}_seeds"] = 0 if found is None else found.seeds
            rows.append(row | self._unbounded(cell) | {"is_on_front": cell.name in self.front})
        return pd.DataFrame(rows)

    @cached_property
    def differences(self) -> pd.DataFrame:
        import pandas as pd

        columns = ["row", "other", "figure", "mean", "low", "high", "seeds", "verdict", "better"]
        rows = [
            (row, other, figure, d.mean, *_interval(d), d.seeds, d.verdict, self.better(row, other, d))
            for figure, compared in self.compared_by.items()
            for row, other, d in compared
        ]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def curves(self) -> pd.DataFrame:
        import pandas as pd

        parts = []
        for row, members in self.members.items():
            for member in members:
                run = member.run
                columns = {
                    "rounds": run.rounds,
                    "bytes": run.sent,
                    "bytes_up": [line["bytes_up"] for line in run.lines],
                    "bytes_down": [line["bytes_down"] for line in run.lines],
                    "catchup_bytes": run.caught_up,
                    "simulated_s": run.times,
                    "forward_passes": run.passes_before,
                    self.metric: run.values(self.metric),
                    f"{self.metric}_ema": averages(run.lines, self.metric),
                }
                if self.with_epsilon:
                    columns["epsilon"] = [line.get("epsilon", math.inf) for line in run.lines]
                parts.append(pd.DataFrame({"row": row, "seed": member.seed} | columns))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @cached_property
    def trials(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for row, tuned in self.tuned.items():
            seconds = ranked(tuned.trials, is_rising=self.is_rising)[1:2]
            for trial in tuned.trials:
                found = {"score": trial.score, "seeds": len(trial.finals)}
                found |= {"is_chosen": trial.values == tuned.chosen, "is_second": trial in seconds}
                rows.append({"row": row} | self._columns(trial.values) | found)
        return pd.DataFrame(rows)

    @cached_property
    def tied(self) -> dict[str, tuple[Trial, Trial]]:
        """Row → its best trial and its second best one, where tuning did not tell them apart; see `trials.tie`."""
        ties = {row: tie(tuned, self.metric, is_rising=self.is_rising) for row, tuned in self.tuned.items()}
        return {row: both for row, both in ties.items() if both is not None}

    @cached_property
    def regrets(self) -> dict[str, float]:
        """Tied row → by how much it may be better with another value than the chosen one; see `trials.regret`."""
        confidence, is_rising = self.plan.study.ask.confidence, self.is_rising
        of = {row: self.tuned[row] for row in self.tied}
        return {row: regret(each, self.metric, is_rising=is_rising, confidence=confidence) for row, each in of.items()}

    def json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        rows = [
            self._settings(cell)
            | {"seeds": [member.seed for member in self.members[cell.name]]}
            | {"runs": [str(member.run.folder) for member in self.members[cell.name]]}
            | {"is_on_front": cell.name in self.front}
            | {"figures": {name: _plain(self.mean(cell.name, name)) for name in self.figures}}
            for cell in self.plan.cells
        ]
        differences = [
            {"row": row, "other": other, "figure": figure, **vars(each), "is_seen": each.is_seen}
            | {"verdict": each.verdict, "better": self.better(row, other, each) or None}
            for figure, compared in self.compared_by.items()
            for row, other, each in compared
        ]
        tuned = {
            row: {
                "chosen": each.chosen,
                "at_edge": each.at_edge,
                "trials": [{"values": t.values, "score": t.score, "seeds": len(t.finals)} for t in each.trials],
            }
            for row, each in self.tuned.items()
        }
        study: dict[str, Any] = {"study": self.plan.study.name, "metric": self.metric, "is_complete": self.is_complete}
        if self.plan.study.claim:
            parts = [
                {"expected": str(each.expected), "claim": claim, "found": each.found, "verdict": each.verdict}
                for each, claim in zip(self.judged, claims_of(self.plan), strict=True)
            ]
            study["claim"] = {"claim": self.plan.study.claim, "verdicts": self.verdicts, "expect": parts}
        failures = [vars(each) for each in self.failures]
        study |= {"rows": rows, "differences": differences, "tuned": tuned, "failures": failures}
        return {name: strict(part) for name, part in study.items()}

    def _settings(self, cell: Cell) -> dict[str, Any]:
        chosen = self._chosen(cell.name)
        axes = {path: list(values) for path, values in self.plan.study.grid.items()}  # of names, where it gives names
        point = {path: cell.labels.get(path, value) for path, value in cell.point.items()}
        point = {path: value if _is_column(axes[path]) else str(value) for path, value in point.items()}
        condition = {"condition": cell.condition} if self.plan.study.conditions else {}
        return {"row": cell.name, "variant": cell.variant} | condition | point | self._columns(chosen)

    def _unbounded(self, cell: Cell) -> dict[str, float]:
        """Return the ε of a row that has none, if others have one."""
        return {"epsilon": math.inf} if "epsilon" in self.figures and cell.name not in self.with_epsilon else {}

    def _columns(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return tuned values as cells of data frames: a column is of numbers, or of text. A row may lack a field."""
        found: dict[str, Any] = {}
        for path, axes in self.plan.study.tuned_fields.items():
            if all(map(is_numeric, axes)):
                found[path] = values.get(path, math.nan)
            else:
                found[path] = str(values[path]) if path in values else None
        return found

    def _difference(self, row: str, other: str, figure: str = FINAL, pairs: int = 1) -> Difference | None:
        return self.contrast([row], [other], figure, pairs)

    def contrast(
        self, plus: Sequence[str], minus: Sequence[str], figure: str = FINAL, pairs: int = 1
    ) -> Difference | None:
        """Return a figure's sum over some rows minus that over as many others, paired over seeds.

        It is None if a run has diverged or lacks the figure, or no seed is shared. Unless all have the same tuned
        values, the interval is wider by what each may gain with a tied value.

        Args:
            plus: the rows that are added: one for a difference, two for a difference of two differences.
            minus: the rows that are subtracted.
            figure: the figure.
            pairs: see `Difference.of`.
        """
        rows = [*plus, *minus]
        values = [{member.seed: member.figures.get(figure) for member in self.members[each]} for each in rows]
        paired = [[each[seed] for each in values] for seed in values[0] if all(seed in each for each in values)]
        known = [[each for each in seed if each is not None] for seed in paired]
        if not known or any(len(each) < len(rows) for each in known) or {*rows} & {*self.diverged}:
            return None
        count = len(plus)
        step = max(self._step(each, figure) for each in rows) * math.sqrt(count)  # the errors of rounding add up
        low, high = self._range(figure)
        reach = count * (high - low)
        contrasts = [sum(each[:count]) - sum(each[count:]) for each in known]
        found = Difference.of(contrasts, self.plan.study.ask.confidence, pairs, step, (-reach, reach))
        if all(self._chosen(each) == self._chosen(rows[0]) for each in rows):
            return found
        gains = [sum(self.regrets.get(each, 0.0) for each in side) for side in (minus, plus)]
        below, above = gains if self.is_rising else gains[::-1]
        return replace(found, low=found.low - below, high=found.high + above)

    def _chosen(self, row: str) -> dict[str, Any]:
        return self.tuned[row].chosen if row in self.tuned else {}


def _is_column(values: list[Any]) -> bool:
    """Whether values are all numbers, all text, or all true or false; a column of a Parquet file has one kind."""
    kinds = {float if type(value) is int else type(value) for value in values}
    return len(kinds) == 1 and kinds <= {float, str, bool}


def _interval(found: Difference) -> tuple[float, float]:
    """Return the ends of an interval; NaN, as in the table of rows, where one seed has none."""
    return (found.low, found.high) if found.seeds > 1 else (math.nan, math.nan)


def _number(value: float | None) -> float:
    """Return NaN for None: a column without any value is one of numbers too."""
    return math.nan if value is None else value


def _plain(mean: Mean | None) -> dict[str, Any] | None:
    return None if mean is None else vars(mean)
