"""What an instrument has found in a finished run: a table, sentences, plots and figures; how it is kept and shown.

`RUN/analysis.json` holds the findings as data, and `report.html`, whenever it is written, shows them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from seedbus.scenarios.reporting import text_tables
from seedbus.scenarios.reporting.figures import bars, lines
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.results import stored_json, write
from seedbus.scenarios.reporting.terminal import in_markdown, say, shown
from seedbus.scenarios.reporting.text_tables import table_of

ANALYSIS = "analysis.json"

Values = list[float | None]
"""Numbers of a plot; None: not finite."""


@dataclass(frozen=True)
class Plot:
    """A plot as data.

    Attributes:
        title: what it shows.
        x_name: the x axis, with its unit.
        y_name: the y axis, with its unit.
        lines: name, x [n] and y [n] of each line.
        bars: name and height of each bar, where there are no lines.
        is_log: whether x is on a logarithmic axis.

    Raises:
        ValueError: a line has more values of x than of y, or fewer.
    """

    title: str
    x_name: str
    y_name: str
    lines: list[tuple[str, Values, Values]] = field(default_factory=list)
    bars: dict[str, float | None] = field(default_factory=dict)
    is_log: bool = False

    def __post_init__(self) -> None:
        for name, x, y in self.lines:
            if len(x) != len(y):
                raise ValueError(f"line {name!r} has {len(x):,} values of x and {len(y):,} of y; expected as many")

    @staticmethod
    def of_lines(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> Plot:
        """Return a plot of lines, without their looks."""
        found = [(each.name, _values(each.x), _values(each.y)) for each in drawn]
        return Plot(title, x_name, y_name, found, is_log=is_log)

    @property
    def figure(self) -> str:
        """The plot as an HTML figure."""
        if self.bars:
            return bars(self.title, self.x_name, self.y_name, {name: _float(each) for name, each in self.bars.items()})
        drawn = [Line(name, list(map(_float, x)), list(map(_float, y))) for name, x, y in self.lines]
        return lines(self.title, self.x_name, self.y_name, drawn, is_log=self.is_log)


@dataclass(frozen=True)
class Finding:
    """The result of one instrument.

    Attributes:
        name: the instrument's, as `--only` takes it.
        title: what the table shows.
        heads: names of the columns.
        rows: cells, as many as columns each.
        notes: sentences on what the figures mean, or why there are none.
        plots: its plots.
        facts: the same in numbers, for JSON.
    """

    name: str
    title: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def show(findings: Sequence[Finding]) -> None:
    """Print all tables, each with its notes, to stdout."""
    for number, finding in enumerate(findings):
        if number:
            say("")
        if not finding.rows:
            say(finding.title)
        else:
            rows = [[*map(shown, row)] for row in finding.rows]
            text_tables.show(table_of([*map(shown, finding.heads)], rows), shown(finding.title))
        for note in finding.notes:
            say(note)


def markdown(findings: Sequence[Finding]) -> str:
    """Return all tables in Markdown."""
    parts = []
    for finding in findings:
        heads, *rows = ([*map(shown, row)] for row in (finding.heads, *finding.rows))
        title, *notes = (in_markdown(shown(text)) for text in (finding.title, *finding.notes))
        parts.append("\n\n".join([f"### {title}", *([text_tables.markdown(heads, rows)] if rows else []), *notes]))
    return "\n\n".join(parts)


def keep(folder: Path, findings: Sequence[Finding]) -> None:
    """Write findings to a run's folder, in the place of those that are there.

    Raises:
        OSError: the file cannot be written.
    """
    write(folder / ANALYSIS, _FINDINGS.dump_json(list(findings), indent=1).decode())


def kept(folder: Path) -> list[Finding]:
    """Return the findings in a run's folder; none if it was not analysed.

    Raises:
        RunFolderError: the file cannot be read, or is damaged.
    """
    repair = f"delete it, and `seedbus analyse {shlex.quote(str(folder))}` measures again"
    try:
        return stored_json(folder / ANALYSIS, _FINDINGS, repair)
    except FileNotFoundError:
        return []


_FINDINGS = TypeAdapter(list[Finding])


def _values(numbers: Any) -> Values:
    return [float(each) if np.isfinite(each) else None for each in np.asarray(numbers, float)]


def _float(value: float | None) -> float:
    return float("nan") if value is None else value
