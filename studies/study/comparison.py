"""A comparison of runs: as data, as a table on a terminal, as Markdown, and as an HTML page with plots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from seedbus.scenarios.reporting import text_tables
from seedbus.scenarios.reporting.document import document, table, with_plots
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.reporting.text_tables import table_of
from seedbus.scenarios.schema.amounts import words_of
from seedbus.studies.study.plots import over_costs
from seedbus.studies.study.runs import ENDING, Curve, Run
from seedbus.studies.study.tables import Column, count, number, seconds, size, stacked, unit_of


@dataclass(frozen=True)
class Spread:
    """A figure over the runs that have it.

    Attributes:
        mean: mean over the runs.
        deviation: sample standard deviation; None for a single run.
        runs: number of runs that have the figure.
    """

    mean: float
    deviation: float | None
    runs: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values that are not None; None if all are."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return Spread(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Row:
    """Runs that differ only in the seed.

    Attributes:
        name: the scenario's name, with the settings that distinguish it from other scenarios of that name.
        runs: at least one.
        figures: name → spread over the runs; None if no run has the figure.
    """

    name: str
    runs: list[Run] = field(repr=False)  # a notebook shows what a cell returns
    figures: dict[str, Spread | None] = field(repr=False)

    @property
    def algorithm(self) -> str:
        return self.runs[0].scenario.algorithm.facts.label

    @property
    def unfinished(self) -> int:
        return sum(run.results is None for run in self.runs)

    @property
    def diverged(self) -> int:
        return sum(bool(run.divergence) for run in self.runs)

    def json(self) -> dict[str, Any]:
        figures = {name: None if each is None else vars(each) for name, each in self.figures.items()}
        runs = [
            {
                "run": str(r.folder),
                "seed": r.scenario.seed,
                "is_finished": r.results is not None,
                "training_diverged": bool(r.divergence),
            }
            for r in self.runs
        ]
        return {"name": self.name, "algorithm": self.algorithm, "runs": runs, "figures": figures}


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. Its `str` is a Markdown table.

    Attributes:
        metric: the metric that is compared.
        target: value of the metric to reach, if any.
        smoothed: whether its moving average is to reach it.
        at: rounds, bytes or simulated times after which the metric is reported.
        rows: best first.
        notes: caveats for the reader, a sentence each.
    """

    metric: str
    target: float | None
    smoothed: bool
    at: list[int | str]
    rows: list[Row]
    notes: list[str]

    def json(self) -> dict[str, Any]:
        request = {"metric": self.metric, "target": self.target, "smoothed": self.smoothed, "at": self.at}
        return request | {"rows": [row.json() for row in self.rows], "notes": self.notes}

    def __str__(self) -> str:
        return "\n".join([markdown(self), *map(shown, self.notes)])


def show(comparison: Comparison) -> None:
    """Print the table to stdout. If stdout is not a terminal, the table is as wide as its content needs."""
    text_tables.show(table_of(*cells(comparison), has_lines=True), _title(comparison))


def markdown(comparison: Comparison) -> str:
    """Return the table in Markdown. The lines of a cell are joined by commas."""
    heads, rows = cells(comparison)
    heads, *rows = ([", ".join(text.splitlines()) for text in row] for row in (heads, *rows))
    return text_tables.markdown(heads, rows)


def page(comparison: Comparison) -> bytes:
    """Return a self-contained HTML page, in UTF-8, with the table and the plots."""
    heads, rows = cells(comparison)
    notes = "".join(f"<p>{escape(shown(note))}</p>\n" for note in comparison.notes)
    return document(_title(comparison), with_plots(table(heads, rows) + notes, _plots(comparison)))


def cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the column headings and the rows of the table.

    Texts may have two lines. They are safe to print: without control characters, and of bounded length.
    """
    metric, unit = shown(comparison.metric), unit_of(comparison.metric)
    columns = [Column("rounds", "rounds", count, "rounds")]
    for point in comparison.at:
        columns.append(Column(f"{metric} at {words_of(point)}", f"at_{point}", unit, f"at {point}"))
        columns.append(Column("its average", f"at_{point}_ema", unit, f"at {point}"))
    columns += [Column(f"{metric}: last", "last", unit, "values"), Column("best", "best", unit, "values")]
    columns += [Column("average at the end", "ema", unit, "end"), Column(f"mean of last {ENDING}", "end", unit, "end")]
    if comparison.target is not None:
        reached = f"rounds to {comparison.target:g}{' on average' if comparison.smoothed else ''}"
        columns.append(Column(reached, "rounds_to_target", count, "target"))
        columns.append(Column("bytes to it", "bytes_to_target", size, "target"))
    for name in ("bytes_up", "bytes_down"):
        columns.append(Column(name.replace("_", " "), name, size, name))
        columns.append(Column("per client", f"{name}_per_client", size, name))
    if any("epsilon" in row.figures for row in comparison.rows):
        columns.append(Column("ε", "epsilon", number, "epsilon"))
    columns += [Column("simulated", "simulated_s", seconds, "time"), Column("real time", "wall_s", seconds, "time")]
    columns.append(Column("forward\npasses", "evaluations", count, "passes"))
    stacks = ["row", *(each.stack for each in columns)]
    heads = stacked(["run\nalgorithm", *(each.head for each in columns)], stacks)
    return heads, [stacked([_label(row), *(_cell(row, each) for each in columns)], stacks) for row in comparison.rows]


def _title(comparison: Comparison) -> str:
    runs = sum(len(row.runs) for row in comparison.rows)
    has_seeds = any(len(row.runs) > 1 for row in comparison.rows)
    statistic = ", mean ± standard deviation of seeds" if has_seeds else ""
    return f"{runs:,} {'run' if runs == 1 else 'runs'}{statistic}"


def _label(row: Row) -> str:
    seeds = f", {len(row.runs)} seeds" if len(row.runs) > 1 else ""
    ends = ((row.unfinished, "unfinished"), (row.diverged, "training diverged"))
    told = [f", {count} {how}" if len(row.runs) > 1 else f", {how}" for count, how in ends if count]
    return f"{shown(row.name)}\n{row.algorithm}{seeds}{''.join(told)}"


def _cell(row: Row, column: Column) -> str:
    spread = row.figures.get(column.figure)
    if spread is None:
        return "∞" if column.figure == "epsilon" else "–"
    if spread.runs < len(row.runs):  # a mean over only some of the runs would mislead
        return f"{spread.runs} of {len(row.runs)} runs"
    return column.written(spread.mean, spread.deviation)


def _plots(comparison: Comparison) -> list[str]:
    """Plot the metric over rounds, bytes, simulated time and forward passes, with one line for each row."""
    curves = {row.name: Curve.of(row.runs, comparison.metric) for row in comparison.rows}
    drawn_as = {row.name: Line(shown(row.name), [], []) for row in comparison.rows}
    return [plot.figure for plot in over_costs(curves, drawn_as, comparison.metric)]
