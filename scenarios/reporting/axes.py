"""The axes of a plot: names, units of bytes, limits, and the data that is drawn of much."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 400
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


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
