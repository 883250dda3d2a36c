"""Figures for papers and documents as SVG and PDF files, drawn by matplotlib. The same data give the same bytes.

A plot is as wide as a column of a paper, and one of several panels as both columns.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.scenarios.reporting.looks import COLOURS, Line, in_legend, is_points, looks, panels_of, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 3.25, 2.3
"""A column of a two-column paper (ICML, ACM); the height is without the legend."""
BOTH_IN, PANEL_IN = 6.75, 1.75
"""Both columns, and the height of a row of panels."""
KEY_IN = 0.14
"""Height of a line of the legend."""
SHORT = 24  # characters of a name; with such names the legend has two columns
_CHARACTER_IN = 0.07  # width of a character of the legend
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v"}
_STYLE: Any = {
    "font.size": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "seedbus",  # else the names of parts are drawn
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style in this context."""
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
        yield


def file_of(figure: Figure, form: Literal["pdf", "svg"], title: str = "") -> bytes:
    """Return a figure as a file; the title is in its metadata, for a paper has it in the caption."""
    content = io.BytesIO()
    with styled():
        date = {"CreationDate": None} if form == "pdf" else {"Date": None}
        figure.savefig(content, format=form, metadata={"Title": title, **date})
    return content.getvalue()


def lines_figure(x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> Figure:
    """Return a plot of lines with the legend below it. Panels have the same axes.

    Args:
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
    """
    from matplotlib.figure import Figure

    with styled():
        panels = panels_of(drawn)
        is_one = len(panels) == 1
        columns = (1 if is_one else 2) * (2 if all(len(line.name) <= SHORT for line in drawn) else 1)
        keys = math.ceil(sum(in_legend(drawn)) / columns) if len(drawn) > 1 else 0
        rows, across = rows_of(len(panels))
        size = (WIDTH_IN, HEIGHT_IN) if is_one else (BOTH_IN, PANEL_IN * rows + KEY_IN)
        figure = Figure(figsize=(size[0], size[1] + KEY_IN * keys), layout="constrained")
        grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        draw(dict(zip(panels, grid, strict=False)), drawn, is_log=is_log)
        for number, axes in enumerate(grid[: len(panels)]):
            axes.tick_params(labelbottom=number + across >= len(panels))
        if is_one:
            grid[0].set(xlabel=plain(x_name), ylabel=plain(y_name))
        else:
            figure.supylabel(plain(y_name), fontsize=_STYLE["font.size"])
        if keys:
            # below panels the name of their x axis is the legend's title, for matplotlib has no room for both
            look = {"title": None if is_one else plain(x_name), "title_fontsize": _STYLE["font.size"]}
            figure.legend(loc="outside lower center", frameon=False, ncols=columns, **look)
    return figure


def draw(panels: Mapping[str, Axes], drawn: Sequence[Line], *, is_log: bool = False) -> None:
    """Draw lines with their bands on the axes of each panel, which get the panel's name, a scale and a grid."""
    for line, (colour, dashes, marker), is_key in zip(drawn, looks(drawn), in_legend(drawn), strict=True):
        axes = panels[line.panel]
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        x = np.where(x > 0, x, np.nan) if is_log else x
        look: dict[str, Any] = {"linestyle": (0, [float(each) for each in dashes.split()]) if dashes else "-"}
        if is_points(line, x, y):
            look = {"linestyle": "none", "marker": _MARKERS[marker], "markersize": 3}
        name = plain(line.name).lstrip("_") if is_key else "_"  # a legend leaves out what begins with one
        axes.plot(x, y, color=colour, label=name, **look)
        if len(line.edges) == 2:
            low, high = line.edges
            axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
    for panel, axes in panels.items():
        axes.set(xscale="log" if is_log else "linear", title=plain(panel))
        axes.grid(alpha=0.3, linewidth=0.4)


def bars_figure(title: str, x_name: str, y_name: str, heights: NDArray[np.integer], names: Sequence[str]) -> Figure:
    """Return a plot with a bar for each row of heights [bars, parts], with the title and a legend of the parts.

    Args:
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        heights: of the parts of each bar, the lowest first.
        names: the parts' names, [parts].
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    count = len(names)
    colours = COLOURS if count <= len(COLOURS) else [colormaps["hsv"](number / count) for number in range(count)]
    columns = max(1, min(count, int(BOTH_IN / (_CHARACTER_IN * (7 + max(map(len, names), default=0))))))
    with styled():
        figure = Figure(figsize=(BOTH_IN, 2 * PANEL_IN + KEY_IN * math.ceil(count / columns)), layout="constrained")
        axes = figure.subplots()
        bottom = np.zeros(len(heights))
        for colour, part in zip(colours, heights.T, strict=False):
            axes.bar(np.arange(len(heights)), part, bottom=bottom, color=colour)
            bottom += part
        axes.set(xlabel=x_name, ylabel=y_name, title=plain(title))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        bars: list[Any] = list(axes.containers)
        keys = [plain(name) for name in names]
        figure.legend(bars, keys, loc="outside lower center", frameon=False, ncols=columns)
    return figure


def plain(text: str) -> str:
    """Return a text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")
