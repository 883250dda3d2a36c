"""Plots of lines as PDF files that fit a column of a paper, drawn by matplotlib. The same data give the same bytes.

A plot of several panels is as wide as both columns.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from seedbus.scenarios.reporting.looks import Line, in_legend, is_points, looks, panels_of, rows_of

WIDTH_IN, HEIGHT_IN = 3.25, 2.3
"""A column of a two-column paper (ICML, ACM); the height is without the legend."""
BOTH_IN, PANEL_IN = 6.75, 1.75
"""Both columns, and the height of a row of panels."""
KEY_IN = 0.14
"""Height of a line of the legend."""
SHORT = 24  # characters of a name; with such names the legend has two columns
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v"}
_STYLE: Any = {
    "font.size": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def lines_pdf(x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> bytes:
    """Return a plot of lines as a PDF file with the legend below it, and without a title: the caption has that.

    Panels have the same axes.

    Args:
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it; the SVG has it
        panels, is_named = panels_of(drawn), in_legend(drawn)
        is_one = len(panels) == 1
        columns = (1 if is_one else 2) * (2 if all(len(line.name) <= SHORT for line in drawn) else 1)
        keys = math.ceil(sum(is_named) / columns) if len(drawn) > 1 else 0
        rows, across = rows_of(len(panels))
        size = (WIDTH_IN, HEIGHT_IN) if is_one else (BOTH_IN, PANEL_IN * rows + KEY_IN)
        figure = Figure(figsize=(size[0], size[1] + KEY_IN * keys), layout="constrained")
        grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for line, (colour, dashes, marker), is_key in zip(drawn, looks(drawn), is_named, strict=True):
            axes = grid[panels.index(line.panel)]
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
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            axes.set(xscale="log" if is_log else "linear", title=plain(panel))
            axes.tick_params(labelbottom=number + across >= len(panels))
            axes.grid(alpha=0.3, linewidth=0.4)
        if is_one:
            grid[0].set(xlabel=plain(x_name), ylabel=plain(y_name))
        else:
            figure.supylabel(plain(y_name), fontsize=_STYLE["font.size"])
        if keys:
            # below panels the name of their x axis is the legend's title, for matplotlib has no room for both
            look = {"title": None if is_one else plain(x_name), "title_fontsize": _STYLE["font.size"]}
            figure.legend(loc="outside lower center", frameon=False, ncols=columns, **look)
        content = io.BytesIO()
        figure.savefig(content, format="pdf", metadata={"CreationDate": None})
    return content.getvalue()


def plain(text: str) -> str:
    """Return a text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")
