"""Matrices of reports, one client a row, and the aggregation rules to test on them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from seedbus.algorithms.aggregation.rules import Clipped, Krum, Mean, Median, NearestMixing, TrimmedMean
from seedbus.studies.check.rule import Matrix, crowd

__all__ = ["ALL", "MIXING", "ROBUST", "Matrix", "crowd", "matrices", "numbers"]

numbers = st.floats(-(2.0**40), 2.0**40, width=32)
MIXING = [NearestMixing(f=2), NearestMixing(f=2, then="median"), NearestMixing(f=2, then="krum")]
ROBUST = [
    Median(),
    TrimmedMean(f=2),
    TrimmedMean(trim=0.25),
    Krum(f=2),
    Krum(f=2, multi=4),
    Clipped(quantile=0.7),
    *MIXING,
]
ALL = [Mean(), *ROBUST, Krum(), Krum(multi=3), TrimmedMean(), NearestMixing()]


@st.composite
def matrices(draw: st.DrawFn, min_clients: int = 1) -> Matrix:
    """Rows of one to four values from at least `min_clients` and at most nine clients."""
    clients, values = draw(st.integers(min_clients, 9)), draw(st.integers(1, 4))
    flat = draw(st.lists(numbers, min_size=clients * values, max_size=clients * values))
    return np.array(flat).reshape(clients, values)
