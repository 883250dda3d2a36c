"""Amounts of bytes are read exactly, and a point of a run is a number of rounds or such an amount."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedbus.scenarios.schema.amounts import byte_count, point_of, words_of


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


def test_a_point_of_a_run_is_rounds_or_bytes() -> None:
    assert [point_of(given) for given in (0, np.int64(50), "1.5 MB", "512B")] == [0, 50, "1.5MB", "512B"]
    assert [words_of(point) for point in (1000, "1.5MB", "512B")] == ["1,000", "1.5 MB", "512 B"]


@pytest.mark.parametrize("given", [-1, 10**18, True, 2.0, "50", "1M", "1 megabyte", None, [1]])
def test_a_point_without_a_unit_or_a_whole_number_of_rounds_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected rounds or bytes, such as 50 or 1MB"):
        point_of(given)
