"""The axes of a plot: round ticks, units of bytes, and the data that is drawn of much."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 72, 28, 26, 50
MAX_POINTS = 400
_FINE = 3  # decades; a shorter logarithmic axis has ticks at 1, 2 and 5
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


class Frame:
    """Maps data to positions in the drawing. x ends where the data end, and y at ticks that enclose all values."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], *, is_log: bool = False) -> None:
        self.is_log = is_log
        self.x_ticks, self._x0, self._x1 = _across(*x, is_log=is_log)
        self.across = self._x0, self._x1
        self.y_ticks = ticks(*y)
        self._y0 = self.y_ticks[0]
        self._y1 = self.y_ticks[-1]

    def horizontal(self, x: Any) -> Any:
        return LEFT + (x - self._x0) / (self._x1 - self._x0) * (WIDTH - LEFT - RIGHT)

    def vertical(self, y: Any) -> Any:
        return HEIGHT - BOTTOM - (y - self._y0) / (self._y1 - self._y0) * (HEIGHT - TOP - BOTTOM)


def _across(low: float, high: float, *, is_log: bool) -> tuple[list[float], float, float]:
    """Return the ticks of an x axis and its ends: those of the data where at least two ticks lie between them."""
    enclosing = decades(low, high) if is_log else ticks(low, high)
    finer = [math.log10(factor) + power for power in range(math.floor(low), math.ceil(high) + 1) for factor in (1, 2, 5)
             ] if is_log and high - low < _FINE else enclosing  # fmt: skip
    slack = 1e-9 * (high - low)
    inside = [tick for tick in finer if low - slack <= tick <= high + slack]
    return (inside, low, high) if len(inside) > 1 else (enclosing, enclosing[0], enclosing[-1])


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


def is_share(metric: str) -> bool:
    """Whether a metric is a share of samples, from 0 to 1, which is shown in percent; the name of one says so."""
    return metric.startswith("accuracy")


def metric_axis(metric: str) -> tuple[str, float]:
    """Return the name of a metric's axis, and what its values are multiplied by."""
    return (f"{metric} (%)", 100.0) if is_share(metric) else (metric, 1.0)


def with_unit(text: str, unit: str) -> str:
    """Return a number as text with its unit: apart from it, but for percent (91.58%); "" is no unit."""
    return f"{text}{unit}" if unit in ("", "%") else f"{text} {unit}"


def byte_unit(maximum: float) -> tuple[float, str]:
    """Return the unit for byte counts up to `maximum`, in bytes, and its name."""
    return next((unit, name) for unit, name in _BYTES if maximum >= unit or unit == 1)


def sample_indices(size: int) -> NDArray[np.int64]:
    """Return at most `MAX_POINTS` evenly spaced indices into `size` values, the first and the last included."""
    return np.unique(np.linspace(0, max(size - 1, 0), min(size, MAX_POINTS)).astype(np.int64))


def limits(columns: Iterable[NDArray[np.float64]], *, from_0: bool = True) -> tuple[float, float]:
    """Return the minimum and maximum of all finite values, or 0 and 1 if there is none.

    from_0: return 0 in place of a positive minimum that is less than half of the maximum.
    """
    finite = [column[np.isfinite(column)] for column in columns]
    values = np.concatenate([np.empty(0), *finite])
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (0.0 if from_0 and 0 < low < high / 2 else low), high


def segments(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
