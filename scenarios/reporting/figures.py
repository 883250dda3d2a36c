"""Plots as SVG in text: lines and bars, every axis with its name, unit and ticks. No script, nothing to load."""

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
DASHES = ("", "7 3", "2 3")  # once the colours begin again
NAMED_INSIDE = 3  # more lines than that are named under the plot
MOST_POINTS = 400
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Line(NamedTuple):
    """One line of a plot, or only its points. x, y: [n], finite or not."""

    name: str
    x: ArrayLike
    y: ArrayLike
    is_dotted: bool = False


class _Frame:
    """Where data lies on the paper: from a tick at or before the least value to one at or past the greatest."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, is_log: bool = False) -> None:
        self.x_ticks, self.y_ticks = decades(*x) if is_log else ticks(*x), ticks(*y)
        self._x0, self._x1 = self.x_ticks[0], self.x_ticks[-1]
        self._y0, self._y1 = self.y_ticks[0], self.y_ticks[-1]

    def across(self, x: Any) -> Any:
        return LEFT + (x - self._x0) / (self._x1 - self._x0) * (WIDTH - LEFT - RIGHT)

    def up(self, y: Any) -> Any:
        return HEIGHT - BOTTOM - (y - self._y0) / (self._y1 - self._y0) * (HEIGHT - TOP - BOTTOM)


def lines(title: str, x_name: str, y_name: str, drawn: Sequence[Line], *, is_log: bool = False) -> str:
    """A plot of one line or more; where a value is not finite, a line has a gap.

    is_log: x is drawn as its logarithm; what is not above 0 is left out.
    """
    columns = [(np.asarray(line.x, float), np.asarray(line.y, float)) for line in drawn]
    if is_log:
        columns = [(np.log10(np.where(x > 0, x, np.nan)), y) for x, y in columns]
    frame = _Frame(_limits((x for x, _ in columns), from_0=not is_log), _limits(y for _, y in columns), is_log=is_log)
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), _y_axis(frame, y_name)]
    for tick in frame.x_ticks:
        parts.append(_text(frame.across(tick), HEIGHT - BOTTOM + 16, _number(10**tick if is_log else tick), "middle"))
    for number, (line, (x, y)) in enumerate(zip(drawn, columns, strict=True)):
        parts += _drawn(frame, line, x, y, number)
        if 1 < len(columns) <= NAMED_INSIDE:
            parts.append(_text(LEFT + 8 + 160 * number, TOP - 10, line.name, "start", "name", COLOURS[number]))
    return _figure(title, parts, _legend([line.name for line in drawn]) if len(columns) > NAMED_INSIDE else "")


def _drawn(frame: _Frame, line: Line, x: NDArray[np.float64], y: NDArray[np.float64], number: int) -> list[str]:
    """The marks of one line, the number-th of its plot."""
    colour, dashes = _look(number)
    parts = []
    for start, end in _stretches(np.isfinite(x) & np.isfinite(y)):
        points = list(zip(frame.across(x[start:end]), frame.up(y[start:end]), strict=True))
        if line.is_dotted or len(points) == 1:
            parts += [f'<circle fill="{colour}" cx="{across:.1f}" cy="{up:.1f}" r="2"/>' for across, up in points]
        else:
            path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
            dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6"{dashed} points="{path}"/>')
    return parts


def _look(number: int) -> tuple[str, str]:
    """The colour and the dashes of the number-th line."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _legend(names: Sequence[str]) -> str:
    signs = {"": "—", "7 3": "– –", "2 3": "···"}
    named = [(name, *_look(number)) for number, name in enumerate(names)]
    entries = [
        f'<span style="color: {colour}">{signs[dashes]} {escape(name)}</span> ' for name, colour, dashes in named
    ]
    return f'<p class="legend">{"".join(entries)}</p>'


def bars(title: str, x_name: str, y_name: str, heights: Mapping[str, float]) -> str:
    """A bar for every name, in the order in which they are given."""
    frame = _Frame((0, len(heights)), (0, max(heights.values(), default=0)))
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle", "name"), _y_axis(frame, y_name)]
    wide = (WIDTH - LEFT - RIGHT) / max(len(heights), 1)
    every = math.ceil(max((8 * len(name) for name in heights), default=0) / wide)  # names must not touch
    for number, (name, height) in enumerate(heights.items()):
        left, top = LEFT + number * wide, frame.up(height)
        size = f'x="{left + 0.1 * wide:.1f}" y="{top:.1f}" width="{0.8 * wide:.1f}" height="{frame.up(0) - top:.1f}"'
        parts.append(f'<rect fill="{COLOURS[0]}" {size}><title>{escape(name)}: {_number(height)}</title></rect>')
        if number % every == 0:
            parts.append(_text(left + wide / 2, HEIGHT - BOTTOM + 16, name, "middle"))
    return _figure(title, parts)


def ticks(low: float, high: float) -> list[float]:
    """At most seven round numbers that cover the values from low to high."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        low, high = (low, low + 1) if math.isfinite(low) else (0.0, 1.0)
    if not math.isfinite(high - low):
        low, high = low / 4, high / 4  # what lies outside is not seen, but nor could the ticks be written
    least = 1e-9 * max(abs(low), abs(high))
    if high - low < least:  # floats are too coarse there for ticks between
        high = low + 1e3 * least
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """At most eight whole logarithms that cover those from low to high."""
    first = math.floor(low + 1e-9)
    span = max(math.ceil(high - 1e-9) - first, 1)
    step = math.ceil(span / 7)
    return [float(first + number * step) for number in range(math.ceil(span / step) + 1)]


def in_bytes(most: float) -> tuple[float, str]:
    """The unit that suits so many bytes, and its name."""
    return next((unit, name) for unit, name in _BYTES if most >= unit or unit == 1)


def picked(size: int) -> NDArray[np.int64]:
    """Evenly spaced places among `size` values, the first and the last among them; no more than can be seen."""
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, MOST_POINTS)).astype(np.int64))


def _limits(columns: Iterable[NDArray[np.float64]], *, from_0: bool = True) -> tuple[float, float]:
    """From the least to the greatest; from_0: from 0 where the least is less than half of the greatest."""
    finite = [column[np.isfinite(column)] for column in columns]
    values = np.concatenate([np.empty(0), *finite])
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (0.0 if from_0 and 0 < low < high / 2 else low), high


def _stretches(is_good: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where runs of true begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_good, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _y_axis(frame: _Frame, name: str) -> str:
    parts = [_text(16, (TOP + HEIGHT - BOTTOM) / 2, name, "middle", "name turned")]
    for tick in frame.y_ticks:
        up = frame.up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>')
        parts.append(_text(LEFT - 6, up + 4, _number(tick), "end"))
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
