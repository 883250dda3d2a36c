"""Plots of lines as PDF files that fit a column of a paper, drawn by matplotlib. The same data give the same bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from seedbus.scenarios.reporting.looks import Line, is_points, looks

WIDTH_IN, HEIGHT_IN = 3.25, 2.3
"""A column of a two-column paper (ICML, ACM); the height is without the legend."""
KEY_IN = 0.14
"""Height of a line of the legend."""
SHORT = 24  # characters of a name; with such names the legend has two columns
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v"}
_STYLE: Any = {
    "font.size": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
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
        columns = 2 if all(len(line.name) <= SHORT for line in drawn) else 1
        keys = math.ceil(len(drawn) / columns) if len(drawn) > 1 else 0
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN + KEY_IN * keys), layout="constrained")
        axes = figure.subplots()
        for line, (colour, dashes, marker) in zip(drawn, looks(drawn), strict=True):
            x, y = np.asarray(line.x, float), np.asarray(line.y, float)
            x = np.where(x > 0, x, np.nan) if is_log else x
            look: dict[str, Any] = {"linestyle": (0, [float(each) for each in dashes.split()]) if dashes else "-"}
            if is_points(line, x, y):
                look = {"linestyle": "none", "marker": _MARKERS[marker], "markersize": 3}
            name = plain(line.name).lstrip("_")  # a legend leaves out what begins with one
            axes.plot(x, y, color=colour, label=name, **look)
            if len(line.edges) == 2:
                low, high = line.edges
                axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        axes.set(xlabel=plain(x_name), ylabel=plain(y_name), xscale="log" if is_log else "linear")
        axes.grid(alpha=0.3, linewidth=0.4)
        if keys:
            figure.legend(loc="outside lower center", frameon=False, ncols=columns)
        content = io.BytesIO()
        figure.savefig(content, format="pdf", metadata={"CreationDate": None})
    return content.getvalue()


def plain(text: str) -> str:
    """Return a text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")
