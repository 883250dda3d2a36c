"""Line and bar plots as SVG text. Every axis has a name, a unit and ticks. No scripts, no external resources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.scenarios.reporting.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Frame, limits

COLOURS = ("#1f5fa8", "#c8641b", "#2f7d4f", "#8c3fa0", "#b02a37", "#117a8b", "#8a6d1b", "#d0478f", "#5b6470", "#6aa121")
DARK = ("#6ea8e8", "#e8955a", "#63b985", "#c585d6", "#ea7480", "#4fb6c6", "#c9aa52", "#ea85b8", "#a3abb8", "#9bcf57")
"""The same colours on a dark page."""
INK, GRID = "#3c4654", "#dfe3e9"
MISSED, WINDOW = COLOURS[4], COLOURS[6]
DASHES = ("", "7 3", "2 3")  # the second is used when all colours have been used once


class Line(NamedTuple):
    """One line of a plot.

    Attributes:
        name: its name in the legend.
        x: [n]; values need not be finite.
        y: [n]; values need not be finite.
        is_dotted: draw only the points.
        low: [n], the lower edge of a band around the line; None: no band.
        high: [n], its upper edge.
        beside: the name of another line with which it is compared: it has that line's colour, and is dashed.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    is_dotted: bool = False
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    beside: str | None = None

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

    def keys(self) -> list[tuple[str, str]]:
        """Return the legend's entries: a name and how it looks."""
        struck = ", ".join(dict.fromkeys(name for _, _, name in self.windows))
        return [
            *([("round without a commit", f'stroke="{MISSED}"')] if np.size(self.missed) else []),
            *([(f"in force: {struck}", f'stroke="{WINDOW}" stroke-opacity="0.3" stroke-width="10"')] if struck else []),
        ]


NO_MARKS = Marks()


def lines(
    title: str,
    x_name: str,
    y_name: str,
    drawn: Sequence[Line],
    *,
    is_log: bool = False,
    marks: Marks = NO_MARKS,
) -> str:
    """Return a plot of one or more lines as an HTML figure. A line has a gap where a value is not finite.

    Args:
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
        marks: what is marked along the x axis.
    """
    parts = _line_parts(x_name, y_name, drawn, is_log=is_log, marks=marks)
    keys = [(line.name, _stroke(*look)) for line, look in zip(drawn, looks(drawn), strict=True)]
    keys = keys if len(drawn) > 1 else []
    return figure(title, parts, legend([*keys, *marks.keys()]))


def lines_file(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> str:
    """Return the plot of `lines` as the text of an SVG file, with the title and a legend."""
    parts = _line_parts(x_name, y_name, drawn, is_log=is_log)
    parts.append(text_at((LEFT + WIDTH - RIGHT) / 2, 16, title, "middle", "name"))
    for number, (line, (colour, dashes)) in enumerate(zip(drawn, looks(drawn), strict=True)):
        y = HEIGHT + 12 + 16 * number
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line stroke="{colour}" stroke-width="1.6"{dashed} x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>'
        )
        parts.append(text_at(LEFT + 30, y + 4, line.name, "start"))
    return _file(HEIGHT + 16 * len(drawn) + 8, parts)


def _line_parts(x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool, marks: Marks = NO_MARKS) -> list[str]:
    """Return the SVG elements of a plot of lines: axes, bands, and lines."""
    columns = [(np.asarray(line.x, float), np.asarray(line.y, float)) for line in drawn]
    if is_log:
        columns = [(np.log10(np.where(x > 0, x, np.nan)), y) for x, y in columns]
    heights = [*(y for _, y in columns), *(edge for line in drawn for edge in line.edges)]
    frame = Frame(limits((x for x, _ in columns), from_0=not is_log), limits(heights), is_log=is_log)
    parts = [text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), y_axis(frame, y_name)]
    for tick in frame.x_ticks:
        value = 10**tick if is_log else tick
        parts.append(text_at(frame.horizontal(tick), HEIGHT - BOTTOM + 18, number_text(value), "middle"))
    parts += mark_parts(marks, *frame.across)
    for line, (x, _), (colour, _) in zip(drawn, columns, looks(drawn), strict=True):
        parts += _band(frame, line, x, colour)
    for line, (x, y), look in zip(drawn, columns, looks(drawn), strict=True):
        parts += _marks(frame, line, x, y, look)
    return parts


def _band(frame: Frame, line: Line, x: NDArray[np.float64], colour: str) -> list[str]:
    """Return the SVG elements of the band around a line."""
    if len(line.edges) < 2:
        return []
    low, high = line.edges
    parts = []
    for start, end in _segments(np.isfinite(x) & np.isfinite(low) & np.isfinite(high)):
        across = np.concatenate([x[start:end], x[start:end][::-1]])
        along = np.concatenate([low[start:end], high[start:end][::-1]])
        pairs = zip(frame.horizontal(across), frame.vertical(along), strict=True)
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in pairs)
        parts.append(f'<polygon fill="{colour}" fill-opacity="0.14" points="{points}"/>')
    return parts


def _marks(
    frame: Frame, line: Line, x: NDArray[np.float64], y: NDArray[np.float64], look: tuple[str, str]
) -> list[str]:
    """Return the SVG elements of one line; `look` is its colour and its dash pattern."""
    colour, dashes = look
    parts = []
    for start, end in _segments(np.isfinite(x) & np.isfinite(y)):
        points = list(zip(frame.horizontal(x[start:end]), frame.vertical(y[start:end]), strict=True))
        if line.is_dotted or len(points) == 1:
            parts += [
                f'<circle fill="{colour}" cx="{px:.1f}" cy="{py:.1f}" r="{2 if line.is_dotted else 3}"/>'
                for px, py in points
            ]
        else:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6"{dashed} points="{path}"/>')
    return parts


def mark_parts(marks: Marks, first: float, last: float) -> list[str]:
    """Return the SVG elements of marks on an x axis from `first` to `last`.

    There is at most one mark a pixel, however many rounds there are.
    """
    parts = []
    scale = (WIDTH - LEFT - RIGHT) / max(last - first, 1e-9)
    for start, end, name in marks.windows:
        left, right = (LEFT + scale * (min(max(each, first), last) - first) for each in (start, end))
        size = f'x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        parts.append(f'<rect fill="{WINDOW}" fill-opacity="0.15" {size}><title>{escape(name)}</title></rect>')
    missed = np.asarray(marks.missed, float)
    at = np.unique(np.round(LEFT + scale * (missed[(missed >= first) & (missed <= last)] - first)).astype(int))
    if at.size:
        path = "".join(f"M{x} {HEIGHT - BOTTOM}v-7" for x in at.tolist())
        parts.append(f'<path fill="none" stroke="{MISSED}" d="{path}"/>')
    return parts


def looks(drawn: Sequence[Line]) -> list[tuple[str, str]]:
    """Return the colour and the dash pattern of each line."""
    count = len(COLOURS)
    own = [(COLOURS[number % count], DASHES[number // count % len(DASHES)]) for number in range(len(drawn))]
    named = {line.name: colour for line, (colour, _) in zip(drawn, own, strict=True)}
    return [
        look if line.beside is None else (named.get(line.beside, look[0]), DASHES[1])
        for line, look in zip(drawn, own, strict=True)
    ]


def _stroke(colour: str, dashes: str) -> str:
    """Return the attributes of a line with this colour and dash pattern."""
    return f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def legend(keys: Sequence[tuple[str, str]]) -> str:
    """Return the names of what is drawn, each with a piece of it, as HTML; "" without any."""
    line = '<svg class="key" width="24" height="10"><line x1="0" x2="24" y1="5" y2="5" {look}/></svg>'
    entries = [f"<span>{line.format(look=look)} {escape(name)}</span> " for name, look in keys]
    return f'<p class="legend">{"".join(entries)}</p>' if keys else ""


def bars(title: str, x_name: str, y_name: str, heights: Mapping[str, float]) -> str:
    """Return a plot with one bar for every name, in the given order, as an HTML figure."""
    frame = Frame((0, len(heights)), (0, max(heights.values(), default=0)))
    parts = [text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), y_axis(frame, y_name)]
    width = (WIDTH - LEFT - RIGHT) / max(len(heights), 1)
    every = math.ceil(max((8 * len(name) for name in heights), default=0) / width)  # so that names do not overlap
    for number, (name, height) in enumerate(heights.items()):
        left, top, bottom = LEFT + number * width, frame.vertical(height), frame.vertical(0)
        size = f'x="{left + 0.1 * width:.1f}" y="{top:.1f}" width="{0.8 * width:.1f}" height="{bottom - top:.1f}"'
        parts.append(f'<rect fill="{COLOURS[0]}" {size}><title>{escape(name)}: {number_text(height)}</title></rect>')
        if number % every == 0:
            parts.append(text_at(left + width / 2, HEIGHT - BOTTOM + 18, name, "middle"))
    return figure(title, parts, kind="bars")


def stacked(title: str, x_name: str, y_name: str, heights: NDArray[np.integer], names: Sequence[str]) -> str:
    """Return a plot with a bar for each row of heights [bars, parts], as the text of an SVG file with a legend.

    Args:
        names: the parts' names, [parts].
    """
    count = len(heights)
    frame = Frame((0, count), (0, int(heights.sum(axis=1).max())))
    colours = [_colour(number, len(names)) for number in range(len(names))]
    parts = [text_at(LEFT, 14, title, "start", "name"), y_axis(frame, y_name)]
    parts.append(text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"))
    width = (WIDTH - LEFT - RIGHT) / count
    every = math.ceil(8 * len(str(count)) / width)  # so that numbers do not overlap
    for bar, row in enumerate(heights):
        left = LEFT + bar * width
        for part in np.flatnonzero(row).tolist():
            bottom, top = (float(frame.vertical(row[:end].sum())) for end in (part, part + 1))
            size = f'x="{left + 0.05 * width:.2f}" y="{top:.2f}" width="{0.9 * width:.2f}" height="{bottom - top:.2f}"'
            what = escape(f"{x_name} {bar}, {names[part]}: {row[part]:,}")
            parts.append(f'<rect class="bar" fill="{colours[part]}" {size}><title>{what}</title></rect>')
        if bar % every == 0:
            parts.append(text_at(left + width / 2, HEIGHT - BOTTOM + 18, str(bar), "middle"))
    for number, name in enumerate(names):
        x, y = LEFT + 30 * (number % 16), HEIGHT + 12 + 16 * (number // 16)
        parts.append(f'<rect fill="{colours[number]}" x="{x}" y="{y - 9}" width="10" height="10"/>')
        parts.append(text_at(x + 13, y, name, "start"))
    return _file(HEIGHT + 16 * math.ceil(len(names) / 16) + 8, parts)


def _file(height: int, parts: Sequence[str]) -> str:
    """Return the text of an SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        f"<style>text {{ font-size: 11px; fill: {INK}; }}</style>\n"
        f'<rect fill="#fff" width="{WIDTH}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _colour(number: int, of: int) -> str:
    return COLOURS[number] if of <= len(COLOURS) else f"hsl({360 * number // of}, 60%, 50%)"


def _segments(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def y_axis(frame: Frame, name: str) -> str:
    parts = [text_at(16, (TOP + HEIGHT - BOTTOM) / 2, name, "middle", "name turned")]
    for tick in frame.y_ticks:
        y = frame.vertical(tick)
        parts.append(f'<line class="grid" stroke="{GRID}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text_at(LEFT - 6, y + 4, number_text(tick), "end"))
    return "".join(parts)


def figure(title: str, parts: Sequence[str], below: str = "", kind: str = "plot") -> str:
    """Return an HTML figure of SVG elements, whose drawing keeps its looks when it is taken out of the page."""
    drawn = "\n".join(parts)
    name = escape(title, quote=True)
    return (
        f"<figure><figcaption>{name}</figcaption>\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{name}" font-family="sans-serif" font-size="12" fill="{INK}">\n{drawn}\n</svg>{below}</figure>\n'
    )


def text_at(x: float, y: float, words: str, anchor: str, kind: str = "tick") -> str:
    """Return a text in SVG; `kind`: tick or name, "name turned" from below."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if kind.endswith("turned") else ""
    where = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}{turn}>{escape(words)}</text>"


def number_text(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:.3g}"
