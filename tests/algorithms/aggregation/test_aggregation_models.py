"""Aggregation rules on model updates: equal to those on scalars up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aggregation_cases import ALL, MIXING, Matrix, matrices
from algorithm_cases import bits
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.aggregation import vectors as coordinates
from seedbus.algorithms.aggregation.rules import Clipped, Krum, Median, TrimmedMean

BY_VALUE = [rule for rule in ALL if not isinstance(rule, Clipped)]
ROBUST = [Median(), TrimmedMean(f=2), Krum(f=2), Krum(f=2, multi=4), Clipped(quantile=0.7), *MIXING]


def blended(rule: Any, rows: Any, state: Any = None) -> Any:
    return rule.blend(list(np.asarray(rows, np.float32)), state)[0]


@pytest.mark.few(6)
@pytest.mark.parametrize("rule", BY_VALUE, ids=repr)
@settings(max_examples=40)
@given(rows=matrices())
def test_a_rule_gives_the_same_aggregate_for_models_as_for_scalars(rule: Any, rows: Matrix) -> None:
    actual, expected = blended(rule, rows), rule.combine(rows, None)[0]
    assert actual.dtype == np.float64
    assert np.abs(actual - expected).max() <= 1e-14 * (1 + np.abs(rows).max())


@pytest.mark.parametrize("rule", ROBUST, ids=repr)
def test_neither_blocks_nor_the_memory_layout_change_an_aggregate(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(3).normal(size=(7, 1001)).astype(np.float32)
    expected = blended(rule, rows)
    strided = np.asfortranarray(rows)
    assert bits(rule.blend([strided[i] for i in range(7)], None)[0]) == bits(expected)
    monkeypatch.setattr(coordinates, "BLOCK", 64)
    assert np.abs(blended(rule, rows) - expected).max() < 1e-15


def test_clipping_updates_by_hand() -> None:
    """The updates have norms 5, 13 and 10; clipping scales a whole update."""
    rule, rows = Clipped(quantile=0.5, window=2), np.array([[3, 4], [5, -12], [-6, 8]], np.float32)
    first, state = rule.blend(list(rows), None)
    assert state == [10.0] and first == pytest.approx((rows[0] + rows[1] * 10 / 13 + rows[2]) / 3)
    second, state = rule.blend(list(rows * 2), state)
    assert state == [10.0, 20.0] and second == pytest.approx((rows[0] * 2 + rows[1] * 10 / 13 + rows[2]) / 3)
    third, state = rule.blend(list(rows), state)
    assert state == [20.0, 10.0] and third == pytest.approx(rows.mean(axis=0)), "to 15, the median of both"
    nothing, _ = rule.blend(list(rows), [0.0])
    assert not nothing.any()


@given(rows=matrices(), limit=st.floats(1e-3, 1e6))
def test_no_update_contributes_more_than_the_clipping_limit(rows: Matrix, limit: float) -> None:
    assert np.linalg.norm(blended(Clipped(), rows, [limit])) <= limit * (1 + 1e-12)
