"""Amounts as people write them: bytes with a unit, and how far a run is, in rounds, bytes or simulated time."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from seedbus.scenarios.sentences import is_whole

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_MOST_ROUNDS = 10**18
POINTS = "expected rounds, bytes or a time"
_POINT = f"{POINTS}, such as 50, 1MB or 600s"
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?"


def byte_count(text: str) -> int | None:
    """Return the bytes that a text stands for, such as 4GiB, 1.5 MB or 2000000000; None if it is no such amount."""
    match = re.fullmatch(_NUMBER + r"([kMGT]i?|)B?", text.replace("K", "k"))
    # a float is a little less than many a number with decimals
    return None if match is None else round(float(match[1]) * _UNITS[match[2].replace("ki", "Ki")])


def point_of(given: Any) -> int | str:
    """Return how far a run is: a number of rounds, or text without blanks, of bytes ("1MB") or a time ("600s").

    Raises:
        ValueError: it is none of these.
    """
    if is_whole(given) and 0 <= given < _MOST_ROUNDS:
        return int(given)
    if isinstance(given, str):
        cost_of(given)
        return given.replace(" ", "")
    raise ValueError(_POINT)


def cost_of(point: str) -> tuple[str, float]:
    """Return of which cost a point in text is an amount, "bytes" or "simulated_s", and the amount.

    Raises:
        ValueError: it is no such amount.
    """
    if point.endswith("B") and (size := byte_count(point)) is not None:
        return "bytes", size
    if (match := re.fullmatch(rf"{_NUMBER}(s|min|h)", point)) is not None:
        return "simulated_s", float(match[1]) * _SECONDS[match[2]]
    raise ValueError(_POINT)


Point = Annotated[int | str, BeforeValidator(point_of)]
"""How far a run is, see `point_of`."""


def words_of(point: int | str) -> str:
    """Return a point in words, such as "1,000" for rounds, "1 MB" or "600 s"."""
    return f"{point:,}" if isinstance(point, int) else re.sub(r"(?<=[0-9])(?=[^0-9.])", " ", point)
