"""Plots as SVG files, for papers and documents. Every axis has a name, a unit and ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from seedbus.scenarios.reporting.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Frame, limits, segments
from seedbus.scenarios.reporting.looks import (
    COLOURS,
    GRID,
    INK,
    Line,
    Look,
    in_legend,
    is_points,
    looks,
    number_text,
    panels_of,
    rows_of,
)

_CORNERS = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "triangle-up": ((0, -1.3), (1.2, 0.8), (-1.2, 0.8)),
    "triangle-down": ((0, 1.3), (1.2, -0.8), (-1.2, -0.8)),
}
"""Corners of the shapes of points, in radii."""
_ABOVE = 24  # pixels of the title above panels
_Styled = tuple[Line, tuple[NDArray[np.float64], NDArray[np.float64]], Look]
"""A line, the x and y of what is drawn of it, and its look."""


def lines_file(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> str:
    """Return a plot of one or more lines as the text of an SVG file, with the title and a legend.

    Panels have the same axes. A line has a gap where a value is not finite.

    Args:
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
    """
    columns = [(np.asarray(line.x, float), np.asarray(line.y, float)) for line in drawn]
    if is_log:
        columns = [(np.log10(np.where(x > 0, x, np.nan)), y) for x, y in columns]
    heights = [*(y for _, y in columns), *(edge for line in drawn for edge in line.edges)]
    frame = Frame(limits((x for x, _ in columns), from_0=not is_log), limits(heights), is_log=is_log)
    styled = list(zip(drawn, columns, looks(drawn), strict=True))
    panels = panels_of(drawn)
    rows, across = rows_of(len(panels))
    if panels == [""]:
        parts = _line_parts(frame, x_name, y_name, styled)
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, 16, title, "middle", "name"))
    else:
        parts = [_text(WIDTH * across / 2, 16, title, "middle", "name")]
        for number, panel in enumerate(panels):
            inner = _line_parts(frame, x_name, y_name, [each for each in styled if each[0].panel == panel])
            inner.append(_text((LEFT + WIDTH - RIGHT) / 2, 16, panel, "middle", "name"))
            place = f"{WIDTH * (number % across)} {_ABOVE + HEIGHT * (number // across)}"
            parts += [f'<g transform="translate({place})">', *inner, "</g>"]
    end = HEIGHT * rows + (0 if panels == [""] else _ABOVE)
    named = [each for each, is_named in zip(styled, in_legend(drawn), strict=True) if is_named]
    for number, (line, (xs, ys), look) in enumerate(named):
        y = end + 12 + 16 * number
        sample = f'<line {_stroke(look)} x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>'
        parts.append(_point(look, LEFT + 12, y, 3) if is_points(line, xs, ys) else sample)
        parts.append(_text(LEFT + 30, y + 4, line.name, "start"))
    return _file(WIDTH * across, end + 16 * len(named) + 8, parts)


def _line_parts(frame: Frame, x_name: str, y_name: str, styled: Sequence[_Styled]) -> list[str]:
    """Return the SVG elements of a panel of lines: axes, bands, and lines."""
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), _y_axis(frame, y_name)]
    for tick in frame.x_ticks:
        value = 10**tick if frame.is_log else tick
        parts.append(_text(frame.horizontal(tick), HEIGHT - BOTTOM + 18, number_text(value), "middle"))
    for line, (x, _), look in styled:
        parts += _band(frame, line, x, look.colour)
    for line, (x, y), look in styled:
        parts += _marks(frame, line, x, y, look)
    return parts


def _band(frame: Frame, line: Line, x: NDArray[np.float64], colour: str) -> list[str]:
    """Return the SVG elements of the band around a line."""
    if len(line.edges) < 2:
        return []
    low, high = line.edges
    parts = []
    for start, end in segments(np.isfinite(x) & np.isfinite(low) & np.isfinite(high)):
        across = np.concatenate([x[start:end], x[start:end][::-1]])
        along = np.concatenate([low[start:end], high[start:end][::-1]])
        pairs = zip(frame.horizontal(across), frame.vertical(along), strict=True)
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in pairs)
        parts.append(f'<polygon fill="{colour}" fill-opacity="0.14" points="{points}"/>')
    return parts


def _marks(frame: Frame, line: Line, x: NDArray[np.float64], y: NDArray[np.float64], look: Look) -> list[str]:
    """Return the SVG elements of one line."""
    parts = []
    for start, end in segments(np.isfinite(x) & np.isfinite(y)):
        points = list(zip(frame.horizontal(x[start:end]), frame.vertical(y[start:end]), strict=True))
        if line.is_dotted or len(points) == 1:
            parts += [_point(look, px, py, 2 if line.is_dotted else 3) for px, py in points]
        else:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            parts.append(f'<polyline fill="none" {_stroke(look)} points="{path}"/>')
    return parts


def _stroke(look: Look) -> str:
    """Return the attributes of a line in SVG."""
    return f'stroke="{look.colour}" stroke-width="1.6"' + (f' stroke-dasharray="{look.dashes}"' if look.dashes else "")


def _point(look: Look, x: float, y: float, radius: float) -> str:
    """Return a point as an SVG element."""
    if look.marker == "circle":
        return f'<circle fill="{look.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
    corners = " ".join(f"{x + radius * dx:.1f},{y + radius * dy:.1f}" for dx, dy in _CORNERS[look.marker])
    return f'<path fill="{look.colour}" d="M{corners}Z"/>'


def stacked(title: str, x_name: str, y_name: str, heights: NDArray[np.integer], names: Sequence[str]) -> str:
    """Return a plot with a bar for each row of heights [bars, parts], as the text of an SVG file with a legend.

    Args:
        names: the parts' names, [parts].
    """
    count = len(heights)
    frame = Frame((0, count), (0, int(heights.sum(axis=1).max())))
    colours = [_colour(number, len(names)) for number in range(len(names))]
    parts = [_text(LEFT, 14, title, "start", "name"), _y_axis(frame, y_name)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"))
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
            parts.append(_text(left + width / 2, HEIGHT - BOTTOM + 18, str(bar), "middle"))
    wide = max(30, 17 + math.ceil(6.5 * max(map(len, names), default=0)))  # of a legend's entry, in pixels
    in_row = max((WIDTH - LEFT) // wide, 1)
    for number, name in enumerate(names):
        x, y = LEFT + wide * (number % in_row), HEIGHT + 12 + 16 * (number // in_row)
        parts.append(f'<rect fill="{colours[number]}" x="{x}" y="{y - 9}" width="10" height="10"/>')
        parts.append(_text(x + 13, y, name, "start"))
    return _file(WIDTH, HEIGHT + 16 * math.ceil(len(names) / in_row) + 8, parts)


def _file(width: int, height: int, parts: Sequence[str]) -> str:
    """Return the text of an SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f"<style>text {{ font-size: 11px; fill: {INK}; }}</style>\n"
        f'<rect fill="#fff" width="{width}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _colour(number: int, of: int) -> str:
    return COLOURS[number] if of <= len(COLOURS) else f"hsl({360 * number // of}, 60%, 50%)"


def _y_axis(frame: Frame, name: str) -> str:
    parts = [_text(16, (TOP + HEIGHT - BOTTOM) / 2, name, "middle", "name turned")]
    for tick in frame.y_ticks:
        y = frame.vertical(tick)
        parts.append(f'<line class="grid" stroke="{GRID}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, number_text(tick), "end"))
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str, kind: str = "tick") -> str:
    """Return a text in SVG; `kind`: tick or name, "name turned" from below."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if kind.endswith("turned") else ""
    where = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}{turn}>{escape(words)}</text>"
