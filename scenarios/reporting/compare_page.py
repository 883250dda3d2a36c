"""A comparison as a table on a terminal, and as a page with its curves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape

import numpy as np
from rich.table import Table

from seedbus.scenarios.reporting.compared import ENDING, Compared, Row, Run, Spread
from seedbus.scenarios.reporting.figures import Line, in_bytes, lines, picked
from seedbus.scenarios.reporting.page import document
from seedbus.scenarios.reporting.terminal import console, shown

Cells = list[list[str]]
Written = Callable[[Spread], str]
WIDEST = 10_000
_PLUS = " ± "


def show(comparison: Compared) -> None:
    """The table on stdout; where that is no terminal, as wide as it must be."""
    heads, rows = cells(comparison)
    table = Table(title=_title(comparison), title_justify="left", show_lines=True)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")  # no digit is cut off
    for row in rows:
        table.add_row(*row)
    needed = console(width=WIDEST).measure(table).maximum
    console(width=None if sys.stdout.isatty() else needed).print(table)


def markdown(comparison: Compared) -> str:
    """The table for a text in Markdown; what is below each other on a terminal is beside each other here."""
    heads, rows = cells(comparison)
    table = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_markdown, row))} |" for row in table)


def page(comparison: Compared) -> str:
    """One page that needs nothing but itself."""
    heads, rows = cells(comparison)
    head = "".join(f"<th>{_html(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_html(each)}</td>' for each in row)}</tr>\n" for row in rows)
    notes = "".join(f"<p>{escape(shown(note))}</p>\n" for note in comparison.notes)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{notes}"
    return document(_title(comparison), table, _plots(comparison))


def cells(comparison: Compared) -> tuple[list[str], Cells]:
    """The heads, and a row of texts for each row; a text may have two lines. All are fit to be shown."""
    metric = shown(comparison.metric)
    columns: list[tuple[str, list[tuple[str, Written]]]] = [("rounds", [("rounds", _count)])]
    written = _share if metric.startswith("accuracy") else _number
    columns += [(f"{metric}\nat {round:,}", [(f"at_{round}", written)]) for round in comparison.at]
    columns.append((f"{metric}: last\nbest", [("last", written), ("best", written)]))
    columns.append((f"mean of\nlast {ENDING}", [("end", written)]))
    if comparison.target is not None:
        ways: list[tuple[str, Written]] = [("rounds_to_target", _count), ("bytes_to_target", _size)]
        columns.append((f"rounds to {comparison.target:g}\nbytes to it", ways))
    for way in ("up", "down"):
        columns.append((f"bytes {way}\nper client", [(f"bytes_{way}", _size), (f"bytes_{way}_per_client", _size)]))
    columns.append(("simulated\nreal time", [("simulated_s", _seconds), ("wall_s", _seconds)]))
    columns.append(("forward\npasses", [("evaluations", _count)]))
    rows = [
        [_who(row), *("\n".join(_cell(row, *figure) for figure in figures) for _, figures in columns)]
        for row in comparison.rows
    ]
    return ["run\nalgorithm", *(head for head, _ in columns)], rows


def _title(comparison: Compared) -> str:
    runs = sum(len(row.runs) for row in comparison.rows)
    several = f", mean{_PLUS}standard deviation of seeds" if any(len(row.runs) > 1 for row in comparison.rows) else ""
    return f"{runs:,} {'run' if runs == 1 else 'runs'}{several}"


def _who(row: Row) -> str:
    seeds = f", {len(row.runs)} seeds" if len(row.runs) > 1 else ""
    unfinished = f", {row.unfinished} unfinished" if len(row.runs) > 1 else ", unfinished"
    return f"{shown(row.name)}\n{row.algorithm}{seeds}{unfinished if row.unfinished else ''}"


def _cell(row: Row, key: str, written: Written) -> str:
    spread = row.figures[key]
    if spread is None:
        return "–"
    if spread.runs < len(row.runs):  # the mean of those that happen to have it would say something else
        return f"{spread.runs} of {len(row.runs)} runs"
    return written(spread)


def _both(mean: str, deviation: str | None) -> str:
    return mean if deviation is None else f"{mean}{_PLUS}{deviation}"


def _share(spread: Spread) -> str:
    deviation = None if spread.deviation is None else f"{100 * spread.deviation:.2f}"
    return f"{_both(f'{100 * spread.mean:.2f}', deviation)} %"


def _number(spread: Spread) -> str:
    return _both(f"{spread.mean:.4g}", None if spread.deviation is None else f"{spread.deviation:.2g}")


def _count(spread: Spread) -> str:
    places = 0 if spread.mean == round(spread.mean) or spread.mean >= 1000 else 1
    return _both(
        f"{spread.mean:,.{places}f}", None if not spread.deviation else f"{spread.deviation:,.{max(places, 1)}f}"
    )


def _size(spread: Spread) -> str:
    unit, name = in_bytes(spread.mean)
    places = 0 if name == "B" else 2
    deviation = None if not spread.deviation else f"{spread.deviation / unit:,.{places}f}"
    return f"{_both(f'{spread.mean / unit:,.{places}f}', deviation)} {name}"


def _seconds(spread: Spread) -> str:
    return f"{_both(f'{spread.mean:,.1f}', None if not spread.deviation else f'{spread.deviation:,.1f}')} s"


def _html(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))


def _markdown(text: str) -> str:
    for sign, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("[", "\\[")):
        text = text.replace(sign, written)
    return ", ".join(text.split("\n"))


def _plots(comparison: Compared) -> list[str]:
    """The metric over rounds and over bytes, a line for each row: the mean over its seeds where all were measured."""
    metric = shown(comparison.metric)
    curves = [(shown(row.name), *_curve(row.runs, comparison.metric)) for row in comparison.rows]
    unit, unit_name = in_bytes(max(float(np.max(sent, initial=0)) for _, _, sent, _ in curves))
    y_name = "accuracy (share of samples)" if metric == "accuracy" else metric
    over_rounds = [Line(name, rounds, values) for name, rounds, _, values in curves]
    # x₀ cost nobody anything; what was under way when it was measured would stretch the axis by decades
    over_bytes = [
        Line(name, np.where(rounds > 0, sent / unit, np.nan), values) for name, rounds, sent, values in curves
    ]
    x_name = f"plans and reports sent, all clients ({unit_name}, log scale)"
    return [
        lines(f"{metric.capitalize()} over rounds", "rounds", y_name, over_rounds),
        lines(f"{metric.capitalize()} over bytes", x_name, y_name, over_bytes, is_log=True),
    ]


def _curve(runs: list[Run], metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounds, bytes and values, [n] each, thinned to what can be seen."""
    common = sorted(set.intersection(*(set(run.rounds) for run in runs)))
    at = [common[place] for place in picked(len(common)).tolist()] if common else []
    tables = [dict(zip(run.rounds, zip(run.sent, run.values(metric), strict=True), strict=True)) for run in runs]
    means = np.array([np.mean([table[round] for table in tables], axis=0) for round in at]).reshape(-1, 2)
    return np.array(at, float), means[:, 0], means[:, 1]
