"""What an instrument has found: a table, sentences, plots and figures; and how all of it is shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rich.table import Table

from seedbus.scenarios.reporting.page import document, with_plots
from seedbus.scenarios.reporting.terminal import console, say, shown

_WIDTH = 10_000


@dataclass(frozen=True)
class Finding:
    """The result of one instrument.

    Attributes:
        name: the instrument's, as `--only` takes it.
        title: what the table shows.
        heads: names of the columns.
        rows: cells, as many as columns each.
        notes: sentences on what the figures mean, or why there are none.
        plots: figures in HTML.
        facts: the same in numbers, for JSON.
    """

    name: str
    title: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    plots: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def show(findings: Sequence[Finding]) -> None:
    """Print all tables, each with its notes, to stdout."""
    for number, finding in enumerate(findings):
        if number:
            say("")
        if not finding.rows:
            say(finding.title)
        else:
            table = Table(title=shown(finding.title), title_justify="left")
            for column, head in enumerate(finding.heads):
                table.add_column(shown(head), justify="right" if column else "left", overflow="fold")
            for row in finding.rows:
                table.add_row(*map(shown, row))
            needed = console(width=_WIDTH).measure(table).maximum
            console(width=None if sys.stdout.isatty() else needed).print(table)
        for note in finding.notes:
            say(note)


def markdown(findings: Sequence[Finding]) -> str:
    """Return all tables in Markdown."""
    parts = []
    for finding in findings:
        table = [finding.heads, ["---", *["---:"] * (len(finding.heads) - 1)], *finding.rows] if finding.rows else []
        lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in table]
        parts.append("\n\n".join([f"### {finding.title}", *(["\n".join(lines)] if lines else []), *finding.notes]))
    return "\n\n".join(parts)


def page(title: str, findings: Sequence[Finding]) -> str:
    """Return a self-contained page with all tables and plots."""
    return document(title, "".join(map(_section, findings)))


def _section(finding: Finding) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in finding.heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>\n" for row in finding.rows)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n" if finding.rows else ""
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in finding.notes)
    return f"<h2>{escape(finding.title)}</h2>\n{with_plots(table + notes, finding.plots)}"


def _cell(text: str) -> str:
    return shown(text).replace("|", "\\|")
