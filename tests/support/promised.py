"""All promises of a contract in one test, because most take less than a test itself does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def keep(name: str, contract: Iterable[Callable[[Any], None]], subject: Any) -> None:
    """Try all promises; those that are broken are raised together, each with its name."""
    broken = []
    for promise in contract:
        try:
            promise(subject)
        except Exception as error:
            error.add_note(f"broken: {promise.__name__}")
            broken.append(error)
    if broken:
        raise ExceptionGroup(f"{name} breaks {len(broken)} promises", broken)
