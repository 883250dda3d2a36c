"""Tables of texts that are safe to print: on a terminal, and in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seedbus.scenarios.reporting.terminal import console, in_markdown, titled

if TYPE_CHECKING:
    from rich.table import Table

MAX_WIDTH = 10_000


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]], *, has_lines: bool = False) -> Table:
    """Return a table whose first column is of names, and the others of figures, of which no digit is cut off.

    Args:
        heads: the headings.
        rows: a text for each column, which may have several lines; one of a single text is a heading.
        has_lines: whether there are lines between rows.
    """
    from rich.table import Table

    table = Table(show_lines=has_lines)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row, style="bold" if len(row) == 1 < len(heads) else None)
    return table


def show(table: Table, title: str = "") -> None:
    """Print a table to stdout below its title. If stdout is not a terminal, it is as wide as its content needs."""
    needed = console(width=MAX_WIDTH).measure(table).maximum
    console(width=None if sys.stdout.isatty() else needed).print(titled(title, table) if title else table)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown. A row of one text is a heading above those that follow."""
    found = [[_in_a_line(each) for each in heads], ["---", *["---:"] * (len(heads) - 1)]]
    for row in rows:
        texts = [_in_a_line(each) for each in row]
        found.append([f"**{texts[0]}**", *[""] * (len(heads) - 1)] if len(row) == 1 < len(heads) else texts)
    return "\n".join(f"| {' | '.join(row)} |" for row in found)


def _in_a_line(text: str) -> str:
    return in_markdown(" ".join(text.splitlines()))
