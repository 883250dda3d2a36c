"""Finds the algorithms and faults that a scenario may name."""

from __future__ import annotations

from pydantic import BaseModel

from seedbus.algorithms.dense.base import ALGORITHMS as DENSE
from seedbus.discovery import discover


def algorithms() -> dict[str, type[BaseModel]]:
    """Return all algorithms by their names in a scenario."""
    return dict(sorted((discover("seedbus.algorithms.scalar_only", "name") | DENSE).items()))


def faults() -> dict[str, type[BaseModel]]:
    """Return all faults by their names in a scenario."""
    return discover("seedbus.scenarios.faults", "fault")
