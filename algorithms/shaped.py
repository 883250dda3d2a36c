"""Directions that depend on the shapes of a network's parameters: an optional addition to the contract of an algorithm.

Only followers need them. The server plans and aggregates without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

Shapes = Sequence[tuple[int, ...]]
"""The shapes of a network's trained parameters, in the order of their coordinates."""


@runtime_checkable
class Shaped(Protocol):
    """An algorithm whose followers need the shapes of the parameters."""

    def shaped(self, shapes: Shapes) -> Any:
        """Return this algorithm for a network with parameters of these shapes."""
        ...
