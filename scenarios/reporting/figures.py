"""Plots of a page: HTML figures that hold their data as JSON, in the words of plotly.js, which draws them.

Python writes the data, and `plots.js` draws all figures of a page in its looks, light or dark. Names are data, not
markup: the JSON is escaped for HTML, and names within it for plotly.js, which knows some tags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.scenarios.reporting.axes import limits, segments
from seedbus.scenarios.reporting.looks import (
    COLOURS,
    MISSED,
    NO_MARKS,
    WINDOW,
    Line,
    Look,
    Marks,
    is_points,
    looks,
    panels_of,
)

Trace = dict[str, Any]
CLASS = "plot"
"""The class of the element in which a plot is drawn."""
_STEPS = 1000  # of an axis, as fine as marks are drawn
_DIGITS = 8  # significant ones of a number
_FEW = 3  # decades
_BESIDE = 0.02  # of an axis, so that points at its ends are whole
_TOLD = 8  # lines whose values are told together, at the mouse's x


def lines(
    title: str,
    x_name: str,
    y_name: str,
    drawn: Sequence[Line],
    *,
    is_log: bool = False,
    marks: Marks = NO_MARKS,
    note: str = "",
) -> str:
    """Return a plot of one or more lines as an HTML figure. A line has a gap where a value is not finite.

    Panels have the same axes, and one legend: `plots.js` places them as the width of the page allows.

    Args:
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
        marks: what is marked along the x axis.
        note: a sentence below the plot.
    """
    columns = [(np.asarray(line.x, float), np.asarray(line.y, float)) for line in drawn]
    if is_log:
        columns = [(np.where(x > 0, x, np.nan), y) for x, y in columns]
    low, high = limits((np.log10(x) if is_log else x for x, _ in columns), from_0=not is_log)
    heights = [*(y for _, y in columns), *(edge for line in drawn for edge in line.edges)]
    x_axis: dict[str, Any] = {**_named(x_name), **(_log(high - low) if is_log else {"type": "linear"})}
    if any(is_points(line, *each) for line, each in zip(drawn, columns, strict=True)):
        low, high = low - _BESIDE * (high - low), high + _BESIDE * (high - low)
    if high > low:
        x_axis["range"] = _plain(np.array([low, high]))
    bottom, top = limits(heights)
    y_axis: dict[str, Any] = {**_named(y_name), "rangemode": "tozero" if bottom == 0 else "normal"}
    styles = looks(drawn)
    panels = panels_of(drawn)
    if panels != [""] and top > bottom:  # plotly.js finds no range for several axes that are to have one
        y_axis["range"] = _plain(
            np.array([bottom - (_BESIDE * (top - bottom) if bottom else 0), top + _BESIDE * (top - bottom)])
        )
    places = [_place(line, panels) for line in drawn]
    traces = [_band(line, x, look.colour) for line, (x, _), look in zip(drawn, columns, styles, strict=True)]
    traces += [_curve(line, x, y, look) for line, (x, y), look in zip(drawn, columns, styles, strict=True)]
    placed = [trace | place for trace, place in zip(traces, places * 2, strict=True) if trace is not None]
    shown = [*placed, *mark_traces(marks, low, high)]
    most = max(sum(line.panel == panel for line in drawn) for panel in panels)
    hovers = "x unified" if most <= _TOLD else "closest"
    return figure(title, shown, x_axis, y_axis, note, hovers, panels=[_text(panel) for panel in panels if panel])


def _place(line: Line, panels: Sequence[str]) -> Trace:
    """Return the axes on which a line is drawn, in the words of plotly.js; the marks of a plot are on the second y."""
    number = panels.index(line.panel)
    place = {"xaxis": f"x{number + 2}", "yaxis": f"y{number + 2}"} if number else {}
    return place | ({"meta": _text(line.panel)} if line.panel else {})


def bars(title: str, x_name: str, y_name: str, heights: Mapping[str, float]) -> str:
    """Return a plot with one bar for every name, in the given order, as an HTML figure."""
    trace = {
        "type": "bar",
        "x": [_text(name) for name in heights],
        "y": _plain(list(heights.values())),
        "marker": {"color": COLOURS[0]},
        "hovertemplate": "%{x}: %{y}<extra></extra>",
    }
    x_axis = {"type": "category", "autotickangles": [0, 90], **_named(x_name)}
    return figure(title, [trace], x_axis, _named(y_name))


def layers(
    title: str,
    x_name: str,
    y_name: str,
    x: ArrayLike,
    heights: Mapping[str, ArrayLike],
    marks: Marks = NO_MARKS,
    note: str = "",
) -> str:
    """Return a plot of bars as an HTML figure; each bar has layers, one on the other.

    Args:
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        x: the middles of the bars, evenly spaced, ascending, [n].
        heights: name → its layers' heights, [n]; the lowest layer first.
        marks: what is marked along the x axis.
        note: a sentence below the plot.
    """
    at = np.asarray(x, float)
    half = (at[1] - at[0]) / 2 if at.size > 1 else 0.5
    low, high = (float(at[0] - half), float(at[-1] + half)) if at.size else (0.0, 1.0)
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": _text(name),
            "x": _plain(at),
            "y": _plain(each),
            "width": 2 * half,
            "marker": {"color": COLOURS[number % len(COLOURS)], "line": {"width": 0}},
            "hovertemplate": "%{x}: %{y} %{fullData.name}<extra></extra>",
        }
        for number, (name, each) in enumerate(heights.items())
    ]
    x_axis = {**_named(x_name), "range": _plain([low, high]), "showgrid": False}
    return figure(title, [*traces, *mark_traces(marks, low, high)], x_axis, _named(y_name), note)


def figure(
    title: str,
    traces: Sequence[Trace],
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    note: str = "",
    hovers: str = "closest",
    panels: Sequence[str] = (),
) -> str:
    """Return an HTML figure.

    Args:
        title: its title, plain text.
        traces: what is drawn, as plotly.js takes it.
        x_axis: the x axis, too.
        y_axis: the y axis, too.
        note: a sentence below the plot, plain text.
        hovers: which values the mouse tells, as plotly.js calls it.
        panels: the names of several panels, of which each has these axes.
    """
    layout = {"xaxis": x_axis, "yaxis": y_axis, "hovermode": hovers} | ({"panels": panels} if panels else {})
    spec = {"data": traces, "layout": layout}
    name, told = escape(title, quote=True), f'<p class="note">{escape(note)}</p>' if note else ""
    wide = ' class="wide"' if panels else ""
    return (
        f'<figure{wide}><figcaption>{name}</figcaption>\n<div class="{CLASS}" aria-label="{name}"></div>'
        f"{told}{data(spec)}</figure>\n"
    )


def data(value: Any) -> str:
    """Return plain data as an HTML element that scripts read and that nobody sees."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # an end tag or a comment within the element would end it, or not end it
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'


def mark_traces(marks: Marks, low: float, high: float) -> list[Trace]:
    """Return what is drawn of marks on an x axis from `low` to `high`.

    There are at most 1,000 of each kind, however many rounds there are.
    """
    step = max((high - low) / _STEPS, 1e-9)
    traces = []
    for name in dict.fromkeys(name for _, _, name in marks.windows):
        struck = np.array([(start, end) for start, end, each in marks.windows if each == name])
        traces.append(_windows(name, struck, low, high, step))
    missed = np.asarray(marks.missed, float)
    missed = missed[(missed >= low) & (missed <= high)]
    if missed.size:
        _, first = np.unique(np.floor((missed - low) / step), return_index=True)
        at = missed[first]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "round without a commit",
                "x": _plain(at),
                "y": [0.02] * at.size,
                "yaxis": "y2",
                "marker": {"symbol": "line-ns-open", "size": 9, "color": MISSED},
                "hovertemplate": "no commit<extra></extra>",
            }
        )
    return traces


def _windows(name: str, struck: NDArray[np.float64], low: float, high: float, step: float) -> Trace:
    """Return the spans [n, 2] in which a fault was in force, as boxes behind the lines."""
    count = _STEPS + 1
    edges = np.clip(np.stack([np.floor((struck[:, 0] - low) / step), np.ceil((struck[:, 1] - low) / step)]), 0, count)
    starts, ends = edges.astype(np.int64)
    depth = np.bincount(starts, minlength=count + 1) - np.bincount(ends, minlength=count + 1)
    x: list[float | None] = []
    y: list[float | None] = []
    for start, end in segments(np.cumsum(depth)[:-1] > 0):
        left, right = low + start * step, min(low + end * step, high)
        x += [left, left, right, right, None]
        y += [0, 1, 1, 0, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _text(f"in force: {name}"),
        "x": [None if each is None else float(f"{each:.{_DIGITS}g}") for each in x],
        "y": y,
        "yaxis": "y2",
        "line": {"width": 0, "color": WINDOW},
        "fill": "toself",
        "fillcolor": WINDOW,
        "opacity": 0.22,
        "hoverinfo": "skip",
    }


def _band(line: Line, x: NDArray[np.float64], colour: str) -> Trace | None:
    """Return the band around a line; it is shown and hidden with the line."""
    if len(line.edges) < 2:
        return None
    low, high = line.edges
    across: list[float | None] = []
    along: list[float | None] = []
    for start, end in segments(np.isfinite(x) & np.isfinite(low) & np.isfinite(high)):
        across += [*_plain(x[start:end]), *_plain(x[start:end][::-1]), None]
        along += [*_plain(low[start:end]), *_plain(high[start:end][::-1]), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _text(line.name),
        "legendgroup": _text(line.name),
        "showlegend": False,
        "x": across,
        "y": along,
        "line": {"width": 0, "color": colour},
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.16,
        "hoverinfo": "skip",
    }


def _curve(line: Line, x: NDArray[np.float64], y: NDArray[np.float64], look: Look) -> Trace:
    """Return one line. A value between two gaps is a point."""
    colour, dashes, marker = look
    alone = [start for start, end in segments(np.isfinite(x) & np.isfinite(y)) if end - start == 1]
    trace: Trace = {
        "type": "scatter",
        "mode": "markers" if is_points(line, x, y) else "lines+markers" if alone else "lines",
        "name": _text(line.name),
        "legendgroup": _text(line.name),
        "x": _plain(x),
        "y": _plain(y),
        "line": {"color": colour, "width": 1.8, "dash": ",".join(f"{each}px" for each in dashes.split()) or "solid"},
    }
    if line.is_dotted:
        trace["marker"] = {"color": colour, "symbol": marker, "size": 5}
    elif alone:
        sizes = [8 * (index in alone) for index in range(x.size)]
        trace["marker"] = {"color": colour, "symbol": marker, "opacity": 1, "size": sizes}
        trace["zorder"] = 1  # above the lines
    return trace


def _log(decades: float) -> dict[str, Any]:
    """Return a logarithmic axis over some decades; of few, 2 and 5 are named, too."""
    return {"type": "log", "tickformat": "~g"} | ({"dtick": "D2"} if decades < _FEW else {})


def _named(name: str) -> dict[str, Any]:
    return {"title": {"text": _text(name)}}


def _text(name: str) -> str:
    """Return a name so that plotly.js shows it as it is: it has tags and entities of its own."""
    return escape(name, quote=False)


def _plain(values: ArrayLike) -> list[float | None]:
    """Return numbers as JSON has them; None for those that are not finite."""
    found = np.asarray(values, float)
    return [
        int(each) if each == int(each) and abs(each) < 1e15 else float(f"{each:.{_DIGITS}g}") if known else None
        for each, known in zip(
            np.where(np.isfinite(found), found, 0.5).tolist(), np.isfinite(found).tolist(), strict=True
        )
    ]
