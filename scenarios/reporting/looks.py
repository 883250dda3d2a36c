"""What plots show and how it looks: lines, marks along the x axis, and their colours on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

COLOURS = ("#1f5fa8", "#c8641b", "#2f7d4f", "#8c3fa0", "#b02a37", "#117a8b", "#8a6d1b", "#d0478f", "#5b6470", "#6aa121")
DARK = ("#6ea8e8", "#e8955a", "#63b985", "#c585d6", "#ea7480", "#4fb6c6", "#c9aa52", "#ea85b8", "#a3abb8", "#9bcf57")
"""The same colours on a dark page."""
MISSED, WINDOW = COLOURS[4], COLOURS[6]
MOST_COLUMNS = 3  # of panels beside each other
DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 3")  # beside colours, so that lines are told apart in grey
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down")
"""Shapes of points, in the words of plotly.js."""


class Line(NamedTuple):
    """One line of a plot.

    Attributes:
        name: its name in the legend.
        x: [n]; values need not be finite.
        y: [n]; values need not be finite.
        is_dotted: draw only the points.
        low: [n], the lower edge of a band around the line; None: no band.
        high: [n], its upper edge.
        beside: the name of another line with which it is compared: it has that line's colour, and another dash.
        place: its place among the lines of all plots of a page, from 0, which gives its look; None: that in its plot.
        panel: the name of the panel in which it is drawn; lines of one name look alike in all panels of a plot.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    is_dotted: bool = False
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    beside: str | None = None
    place: int | None = None
    panel: str = ""

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """The edges of the band, [n] each; none without a band."""
        return [np.asarray(edge, float) for edge in (self.low, self.high) if edge is not None]


class Marks(NamedTuple):
    """What is marked along the x axis of a plot over rounds.

    Attributes:
        missed: positions of rounds without a commit, [n].
        windows: (start, end, name) of each span of rounds in which a fault was in force.
    """

    missed: ArrayLike = ()
    windows: Sequence[tuple[float, float, str]] = ()

    def moved(self, by: float) -> Marks:
        """Return the same marks elsewhere on the axis."""
        return Marks(np.asarray(self.missed, float) + by, [(a + by, b + by, name) for a, b, name in self.windows])


NO_MARKS = Marks()


class Look(NamedTuple):
    """How a line looks.

    Attributes:
        colour: of the line and its points.
        dashes: its dash pattern; "" for none.
        marker: the shape of its points, one of `MARKERS`.
    """

    colour: str
    dashes: str
    marker: str


def looks(drawn: Sequence[Line]) -> list[Look]:
    """Return the look of each line."""
    count = len(COLOURS)
    places = [number if line.place is None else line.place for number, line in enumerate(drawn)]
    own = [
        Look(
            COLOURS[place % count],
            DASHES[(place + place // count) % len(DASHES)],  # lines of one colour have others
            MARKERS[(place + place // count) % len(MARKERS)],
        )
        for place in places
    ]
    named = {line.name: look for line, look in zip(drawn, own, strict=True)}
    beside = [
        look if line.beside is None else named.get(line.beside, look) for line, look in zip(drawn, own, strict=True)
    ]
    return [
        look if line.beside is None else other._replace(dashes=DASHES[1 + (other.dashes == DASHES[1])])
        for line, look, other in zip(drawn, own, beside, strict=True)
    ]


def panels_of(drawn: Sequence[Line]) -> list[str]:
    """Return the names of a plot's panels, which have the same axes; most plots have one panel, without a name."""
    return list(dict.fromkeys(line.panel for line in drawn)) or [""]


def in_legend(drawn: Sequence[Line]) -> list[bool]:
    """Return for each line whether the legend has it: a name stands there for the lines of all panels."""
    first: dict[str, str] = {}
    return [bool(line.name) and first.setdefault(line.name, line.panel) == line.panel for line in drawn]


def rows_of(panels: int) -> tuple[int, int]:
    """Return in how many rows and columns panels stand."""
    rows = math.ceil(panels / MOST_COLUMNS)
    return rows, math.ceil(panels / rows)


def is_points(line: Line, x: ArrayLike, y: ArrayLike) -> bool:
    """Whether a line is drawn as points: if it is dotted, or has but one; x and y are those that are drawn, [n]."""
    return line.is_dotted or np.count_nonzero(np.isfinite(x) & np.isfinite(y)) == 1


def number_text(value: float) -> str:
    """Return a number as text, with separators of thousands; a float beyond ten digits with an exponent."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:.3g}"
