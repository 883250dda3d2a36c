"""Line and bar plots as SVG text. Every axis has a name, a unit and ticks. No scripts, no external resources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 28, 48
COLOURS = ("#1f5fa8", "#c8641b", "#2f7d4f", "#8c3fa0", "#b02a37", "#117a8b", "#8a6d1b", "#d0478f", "#5b6470", "#6aa121")
DASHES = ("", "7 3", "2 3")  # the second is used when all colours have been used once
NAMED_INSIDE = 3  # with more lines than this, the legend is below the plot
MAX_NAME = 22  # characters; with a longer name too
MAX_POINTS = 400
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Line(NamedTuple):
    """One line of a plot.

    Attributes:
        name: its name in the legend.
        x: [n]; values need not be finite.
        y: [n]; values need not be finite.
        is_dotted: draw only the points.
        low: [n], the lower edge of a band around the line; None: no band.
        high: [n], its upper edge.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    is_dotted: bool = False
    low: ArrayLike | None = None
    high: ArrayLike | None = None

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """The edges of the band, [n] each; none without a band."""
        return [np.asarray(edge, float) for edge in (self.low, self.high) if edge is not None]


class _Frame:
    """Maps data to positions in the drawing. The axes begin and end at ticks that enclose all values."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, is_log: bool = False) -> None:
        self.x_ticks = decades(*x) if is_log else ticks(*x)
        self.y_ticks = ticks(*y)
        self._x0 = self.x_ticks[0]
        self._x1 = self.x_ticks[-1]
        self._y0 = self.y_ticks[0]
        self._y1 = self.y_ticks[-1]

    def horizontal(self, x: Any) -> Any:
        return LEFT + (x - self._x0) / (self._x1 - self._x0) * (WIDTH - LEFT - RIGHT)

    def vertical(self, y: Any) -> Any:
        return HEIGHT - BOTTOM - (y - self._y0) / (self._y1 - self._y0) * (HEIGHT - TOP - BOTTOM)


def lines(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> str:
    """Return a plot of one or more lines as an HTML figure. A line has a gap where a value is not finite.

    Args:
        drawn: the lines.
        is_log: draw x on a logarithmic axis; points with x ≤ 0 are left out.
    """
    parts = _line_parts(x_name, y_name, drawn, is_log=is_log)
    is_inside = len(drawn) <= NAMED_INSIDE and all(len(line.name) <= MAX_NAME for line in drawn)
    if is_inside and len(drawn) > 1:
        for number, line in enumerate(drawn):
            parts.append(_text(LEFT + 8 + 160 * number, TOP - 10, line.name, "start", "name", COLOURS[number]))
    return _figure(title, parts, "" if is_inside else _legend([line.name for line in drawn]))


def lines_file(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> str:
    """Return the plot of `lines` as the text of an SVG file, with the title and a legend."""
    parts = _line_parts(x_name, y_name, drawn, is_log=is_log)
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, 16, title, "middle", "name"))
    for number, line in enumerate(drawn):
        (colour, dashes), y = _look(number), HEIGHT + 12 + 16 * number
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line stroke="{colour}" stroke-width="1.6"{dashed} x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>'
        )
        parts.append(_text(LEFT + 30, y + 4, line.name, "start"))
    return _file(HEIGHT + 16 * len(drawn) + 8, parts)


def _line_parts(x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool) -> list[str]:
    """Return the SVG elements of a plot of lines: axes, bands, and lines."""
    columns = [(np.asarray(line.x, float), np.asarray(line.y, float)) for line in drawn]
    if is_log:
        columns = [(np.log10(np.where(x > 0, x, np.nan)), y) for x, y in columns]
    heights = [*(y for _, y in columns), *(edge for line in drawn for edge in line.edges)]
    frame = _Frame(_limits((x for x, _ in columns), from_0=not is_log), _limits(heights), is_log=is_log)
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), _y_axis(frame, y_name)]
    for tick in frame.x_ticks:
        value = 10**tick if is_log else tick
        parts.append(_text(frame.horizontal(tick), HEIGHT - BOTTOM + 16, _number(value), "middle"))
    for number, (line, (x, _)) in enumerate(zip(drawn, columns, strict=True)):
        parts += _band(frame, line, x, number)
    for number, (line, (x, y)) in enumerate(zip(drawn, columns, strict=True)):
        parts += _marks(frame, line, x, y, number)
    return parts


def _band(frame: _Frame, line: Line, x: NDArray[np.float64], number: int) -> list[str]:
    """Return the SVG elements of the band around a line; `number` is the line's index in the plot."""
    if len(line.edges) < 2:
        return []
    low, high = line.edges
    parts = []
    for start, end in _segments(np.isfinite(x) & np.isfinite(low) & np.isfinite(high)):
        across = np.concatenate([x[start:end], x[start:end][::-1]])
        along = np.concatenate([low[start:end], high[start:end][::-1]])
        pairs = zip(frame.horizontal(across), frame.vertical(along), strict=True)
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in pairs)
        parts.append(f'<polygon fill="{_look(number)[0]}" fill-opacity="0.14" points="{points}"/>')
    return parts


def _marks(frame: _Frame, line: Line, x: NDArray[np.float64], y: NDArray[np.float64], number: int) -> list[str]:
    """Return the SVG elements of one line; `number` is its index in the plot."""
    colour, dashes = _look(number)
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


def _look(number: int) -> tuple[str, str]:
    """Return the colour and the dash pattern of the line with this index."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _legend(names: Sequence[str]) -> str:
    symbols = {"": "—", "7 3": "– –", "2 3": "···"}
    named = [(name, *_look(number)) for number, name in enumerate(names)]
    entries = [
        f'<span style="color: {colour}">{symbols[dashes]} {escape(name)}</span> ' for name, colour, dashes in named
    ]
    return f'<p class="legend">{"".join(entries)}</p>'


def bars(title: str, x_name: str, y_name: str, heights: Mapping[str, float]) -> str:
    """Return a plot with one bar for every name, in the given order, as an HTML figure."""
    frame = _Frame((0, len(heights)), (0, max(heights.values(), default=0)))
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), _y_axis(frame, y_name)]
    width = (WIDTH - LEFT - RIGHT) / max(len(heights), 1)
    every = math.ceil(max((8 * len(name) for name in heights), default=0) / width)  # so that names do not overlap
    for number, (name, height) in enumerate(heights.items()):
        left, top, bottom = LEFT + number * width, frame.vertical(height), frame.vertical(0)
        size = f'x="{left + 0.1 * width:.1f}" y="{top:.1f}" width="{0.8 * width:.1f}" height="{bottom - top:.1f}"'
        parts.append(f'<rect fill="{COLOURS[0]}" {size}><title>{escape(name)}: {_number(height)}</title></rect>')
        if number % every == 0:
            parts.append(_text(left + width / 2, HEIGHT - BOTTOM + 16, name, "middle"))
    return _figure(title, parts)


def stacked(title: str, x_name: str, y_name: str, heights: NDArray[np.integer], names: Sequence[str]) -> str:
    """Return a plot with a bar for each row of heights [bars, parts], as the text of an SVG file with a legend.

    Args:
        names: the parts' names, [parts].
    """
    count = len(heights)
    frame = _Frame((0, count), (0, int(heights.sum(axis=1).max())))
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
            parts.append(_text(left + width / 2, HEIGHT - BOTTOM + 16, str(bar), "middle"))
    for number, name in enumerate(names):
        x, y = LEFT + 30 * (number % 16), HEIGHT + 12 + 16 * (number // 16)
        parts.append(f'<rect fill="{colours[number]}" x="{x}" y="{y - 9}" width="10" height="10"/>')
        parts.append(_text(x + 13, y, name, "start"))
    return _file(HEIGHT + 16 * math.ceil(len(names) / 16) + 8, parts)


def _file(height: int, parts: Sequence[str]) -> str:
    """Return the text of an SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        "<style>text { font-size: 11px; fill: #3c4654; } .grid { stroke: #e2e6ec; }</style>\n"
        f'<rect fill="#fff" width="{WIDTH}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _colour(number: int, of: int) -> str:
    return COLOURS[number] if of <= len(COLOURS) else f"hsl({360 * number // of}, 60%, 50%)"


def ticks(low: float, high: float) -> list[float]:
    """Return at most seven round numbers, evenly spaced, that enclose the values from low to high."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        low, high = (low, low + 1) if math.isfinite(low) else (0.0, 1.0)
    if not math.isfinite(high - low):
        low, high = low / 4, high / 4  # a wider axis would overflow; values outside of this one are not visible
    resolution = 1e-9 * max(abs(low), abs(high))
    if high - low < resolution:  # floats are too coarse for ticks between these values
        high = low + 1e3 * resolution
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return at most eight integer logarithms, evenly spaced, that enclose the logarithms from low to high."""
    first = math.floor(low + 1e-9)
    span = max(math.ceil(high - 1e-9) - first, 1)
    step = math.ceil(span / 7)
    return [float(first + number * step) for number in range(math.ceil(span / step) + 1)]


def byte_unit(maximum: float) -> tuple[float, str]:
    """Return the unit for byte counts up to `maximum`, in bytes, and its name."""
    return next((unit, name) for unit, name in _BYTES if maximum >= unit or unit == 1)


def sample_indices(size: int) -> NDArray[np.int64]:
    """Return at most `MAX_POINTS` evenly spaced indices into `size` values, the first and the last included."""
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, MAX_POINTS)).astype(np.int64))


def _limits(columns: Iterable[NDArray[np.float64]], *, from_0: bool = True) -> tuple[float, float]:
    """Return the minimum and maximum of all finite values, or 0 and 1 if there is none.

    from_0: return 0 in place of a positive minimum that is less than half of the maximum.
    """
    finite = [column[np.isfinite(column)] for column in columns]
    values = np.concatenate([np.empty(0), *finite])
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (0.0 if from_0 and 0 < low < high / 2 else low), high


def _segments(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _y_axis(frame: _Frame, name: str) -> str:
    parts = [_text(16, (TOP + HEIGHT - BOTTOM) / 2, name, "middle", "name turned")]
    for tick in frame.y_ticks:
        y = frame.vertical(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, _number(tick), "end"))
    return "".join(parts)


def _figure(title: str, parts: Sequence[str], below: str = "") -> str:
    drawn = "\n".join(parts)
    name = escape(title, quote=True)
    return (
        f"<figure><figcaption>{name}</figcaption>\n"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">\n{drawn}\n</svg>{below}</figure>\n'
    )


def _text(x: float, y: float, words: str, anchor: str, kind: str = "tick", colour: str = "") -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if kind.endswith("turned") else ""
    fill = f' style="fill: {colour}"' if colour else ""
    where = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}{turn}{fill}>{escape(words)}</text>"


def _number(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:.3g}"
