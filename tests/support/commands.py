"""The command as a test calls it: what it is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """What the command answered."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]
