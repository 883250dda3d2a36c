"""Amounts as people write them: bytes with a unit, and how far a run is, in rounds or in bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from seedbus.scenarios.sentences import is_whole

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_MOST_ROUNDS = 10**18
POINTS = "expected rounds or bytes"


def byte_count(text: str) -> int | None:
    """Return the bytes that a text stands for, such as 4GiB, 1.5 MB or 2000000000; None if it is no such amount."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([kMGT]i?|)B?", text.replace("K", "k"))
    # a float is a little less than many a number with decimals
    return None if match is None else round(float(match[1]) * _UNITS[match[2].replace("ki", "Ki")])


def point_of(given: Any) -> int | str:
    """Return how far a run is: a number of rounds, or bytes as text with a unit, such as "1MB", without blanks.

    Raises:
        ValueError: it is neither.
    """
    if is_whole(given) and 0 <= given < _MOST_ROUNDS:
        return int(given)
    if isinstance(given, str) and given.endswith("B") and byte_count(given) is not None:
        return given.replace(" ", "")
    raise ValueError(f"{POINTS}, such as 50 or 1MB")


Point = Annotated[int | str, BeforeValidator(point_of)]
"""How far a run is, see `point_of`."""


def words_of(point: int | str) -> str:
    """Return a point in words, such as "1,000" for rounds or "1 MB"."""
    return f"{point:,}" if isinstance(point, int) else re.sub(r"(?<=[0-9])(?=[^0-9.])", " ", point)
