"""Amounts of bytes are read exactly, and a point of a run is a number of rounds, such an amount or a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedbus.scenarios.schema.amounts import byte_count, cost_of, point_of, words_of


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2000000000", 2 * 10**9),
        ("1.001kB", 1001),  # 1.001 times 1,000 is less in float64
        ("1.5 MB", 1_500_000),
        ("4GiB", 2**32),
        ("3 KiB", 3072),
        ("-1MB", None),
        ("1 mb", None),
        ("1e3B", None),
        ("MB", None),
    ],
)
def test_an_amount_of_bytes_is_a_number_with_a_unit(text: str, count: int | None) -> None:
    assert byte_count(text) == count


def test_a_point_of_a_run_is_rounds_or_bytes_or_a_time() -> None:
    assert [point_of(given) for given in (0, np.int64(50), "1.5 MB", "512B")] == [0, 50, "1.5MB", "512B"]
    assert [point_of(given) for given in ("600 s", "1.5min", "2h")] == ["600s", "1.5min", "2h"]
    assert [words_of(point) for point in (1000, "1.5MB", "512B", "600s")] == ["1,000", "1.5 MB", "512 B", "600 s"]
    times = [("simulated_s", 600.0), ("simulated_s", 90.0), ("simulated_s", 7200.0)]
    assert [cost_of(text) for text in ("1.5MB", "600s", "1.5min", "2h")] == [("bytes", 1_500_000), *times]


@pytest.mark.parametrize(
    "given", [-1, 10**18, True, 2.0, "50", "1M", "1 megabyte", None, [1], "5m", "-5s", "s", "1e3s"]
)
def test_a_point_without_a_unit_or_a_whole_number_of_rounds_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected rounds, bytes or a time, such as 50, 1MB or 600s"):
        point_of(given)
