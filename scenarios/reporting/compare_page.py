"""A comparison as a table on a terminal, as Markdown, and as an HTML page with plots."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape

import numpy as np
from rich.table import Table

from seedbus.scenarios.reporting.axes import byte_unit, is_share, metric_axis, sample_indices, with_unit
from seedbus.scenarios.reporting.compared import ENDING, Compared, Row, Run, Spread
from seedbus.scenarios.reporting.document import document, table, with_plots
from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.terminal import console, in_markdown, shown, titled
from seedbus.scenarios.schema.amounts import words_of

Cells = list[list[str]]
Formatter = Callable[[Spread], str]
MAX_WIDTH = 10_000
_PLUS = " ± "


def show(comparison: Compared) -> None:
    """Print the table to stdout. If stdout is not a terminal, the table is as wide as its content needs."""
    heads, rows = cells(comparison)
    printed = Table(show_lines=True)
    for number, head in enumerate(heads):
        printed.add_column(head, justify="right" if number else "left", overflow="fold")  # no digit is cut off
    for row in rows:
        printed.add_row(*row)
    needed = console(width=MAX_WIDTH).measure(printed).maximum
    console(width=None if sys.stdout.isatty() else needed).print(titled(_title(comparison), printed))


def markdown(comparison: Compared) -> str:
    """Return the table in Markdown. The lines of a cell are joined by commas."""
    heads, rows = cells(comparison)
    written = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(in_markdown(', '.join(text.splitlines())) for text in row)} |" for row in written)


def page(comparison: Compared) -> bytes:
    """Return a self-contained HTML page, in UTF-8, with the table and the plots."""
    heads, rows = cells(comparison)
    notes = "".join(f"<p>{escape(shown(note))}</p>\n" for note in comparison.notes)
    return document(_title(comparison), with_plots(table(heads, rows) + notes, _plots(comparison)))


def cells(comparison: Compared) -> tuple[list[str], Cells]:
    """Return the column headings and the rows of the table.

    Texts may have two lines. They are safe to print: without control characters, and of bounded length.
    """
    metric = shown(comparison.metric)
    columns: list[tuple[str, list[tuple[str, Formatter]]]] = [("rounds", [("rounds", _count)])]
    formatter = _share if is_share(metric) else _number
    for point in comparison.at:
        columns.append(
            (f"{metric} at {words_of(point)}\nits average", [(f"at_{point}{end}", formatter) for end in ("", "_ema")])
        )
    columns.append((f"{metric}: last\nbest", [("last", formatter), ("best", formatter)]))
    columns.append((f"average at the end\nmean of last {ENDING}", [("ema", formatter), ("end", formatter)]))
    if comparison.target is not None:
        to_target: list[tuple[str, Formatter]] = [("rounds_to_target", _count), ("bytes_to_target", _size)]
        reached = f"rounds to {comparison.target:g}{' on average' if comparison.smoothed else ''}"
        columns.append((f"{reached}\nbytes to it", to_target))
    for direction in ("up", "down"):
        names = (f"bytes_{direction}", f"bytes_{direction}_per_client")
        columns.append((f"bytes {direction}\nper client", [(name, _size) for name in names]))
    if any("epsilon" in row.figures for row in comparison.rows):
        columns.append(("ε", [("epsilon", _number)]))
    columns.append(("simulated\nreal time", [("simulated_s", _seconds), ("wall_s", _seconds)]))
    columns.append(("forward\npasses", [("evaluations", _count)]))
    rows = [
        [_label(row), *("\n".join(_cell(row, *figure) for figure in figures) for _, figures in columns)]
        for row in comparison.rows
    ]
    return ["run\nalgorithm", *(head for head, _ in columns)], rows


def _title(comparison: Compared) -> str:
    runs = sum(len(row.runs) for row in comparison.rows)
    has_seeds = any(len(row.runs) > 1 for row in comparison.rows)
    statistic = f", mean{_PLUS}standard deviation of seeds" if has_seeds else ""
    return f"{runs:,} {'run' if runs == 1 else 'runs'}{statistic}"


def _label(row: Row) -> str:
    seeds = f", {len(row.runs)} seeds" if len(row.runs) > 1 else ""
    ends = ((row.unfinished, "unfinished"), (row.diverged, "training diverged"))
    told = [f", {count} {how}" if len(row.runs) > 1 else f", {how}" for count, how in ends if count]
    return f"{shown(row.name)}\n{row.algorithm}{seeds}{''.join(told)}"


def _cell(row: Row, key: str, formatter: Formatter) -> str:
    spread = row.figures.get(key)
    if spread is None and key == "epsilon":
        return "∞"
    if spread is None:
        return "–"
    if spread.runs < len(row.runs):  # a mean over only some of the runs would mislead
        return f"{spread.runs} of {len(row.runs)} runs"
    return formatter(spread)


def _with_deviation(mean: str, deviation: str | None) -> str:
    return mean if deviation is None else f"{mean}{_PLUS}{deviation}"


def _share(spread: Spread) -> str:
    deviation = None if spread.deviation is None else f"{100 * spread.deviation:.2f}"
    return with_unit(_with_deviation(f"{100 * spread.mean:.2f}", deviation), "%")


def _number(spread: Spread) -> str:
    return _with_deviation(f"{spread.mean:.4g}", None if spread.deviation is None else f"{spread.deviation:.2g}")


def _count(spread: Spread) -> str:
    places = 0 if spread.mean == round(spread.mean) or spread.mean >= 1000 else 1
    return _with_deviation(
        f"{spread.mean:,.{places}f}", None if not spread.deviation else f"{spread.deviation:,.{max(places, 1)}f}"
    )


def _size(spread: Spread) -> str:
    unit, name = byte_unit(spread.mean)
    places = 0 if name == "B" else 2
    deviation = None if not spread.deviation else f"{spread.deviation / unit:,.{places}f}"
    return f"{_with_deviation(f'{spread.mean / unit:,.{places}f}', deviation)} {name}"


def _seconds(spread: Spread) -> str:
    deviation = f"{spread.deviation:,.1f}" if spread.deviation else None
    return with_unit(_with_deviation(f"{spread.mean:,.1f}", deviation), "s")


def _plots(comparison: Compared) -> list[str]:
    """Plot the metric over rounds and over bytes, with one line for each row.

    A line shows the mean over the row's runs, at the rounds after which all of them were evaluated.
    """
    metric = shown(comparison.metric)
    curves = [(shown(row.name), *_curve(row.runs, comparison.metric)) for row in comparison.rows]
    unit, unit_name = byte_unit(max(float(np.max(sent, initial=0)) for _, _, sent, _ in curves))
    y_name, scale = metric_axis(metric)
    over_rounds = [Line(name, rounds, scale * values) for name, rounds, _, values in curves]
    # The initial model costs no bytes. The few that were sent when it was evaluated would stretch the axis by decades.
    over_bytes = [
        Line(name, np.where(rounds > 0, sent / unit, np.nan), scale * values) for name, rounds, sent, values in curves
    ]
    x_name = f"plans and reports sent, all clients ({unit_name}, log scale)"
    return [
        lines(f"{metric.capitalize()} over rounds", "rounds", y_name, over_rounds),
        lines(f"{metric.capitalize()} over bytes", x_name, y_name, over_bytes, is_log=True),
    ]


def _curve(runs: list[Run], metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rounds, bytes and values, [n] each, with n limited to `MAX_POINTS`."""
    common = sorted(set.intersection(*(set(run.rounds) for run in runs)))
    at = [common[index] for index in sample_indices(len(common)).tolist()] if common else []
    tables = [dict(zip(run.rounds, zip(run.sent, run.values(metric), strict=True), strict=True)) for run in runs]
    means = np.array([np.mean([table[round] for table in tables], axis=0) for round in at]).reshape(-1, 2)
    return np.array(at, float), means[:, 0], means[:, 1]
