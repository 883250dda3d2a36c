"""Watches for losses that no longer differ: then scalars are rounding errors, and a model walks at random.

It happens when μ times the slope of the loss falls below the resolution of the loss, soonest in 16-bit arithmetic.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from seedbus.agents.observer import Observer

FEWEST = 8  # steps with equal losses before anything is noted
WHAT = (
    "client {client} found no difference between the losses of a step in {equal} of {steps} steps: its scalars are "
    "rounding errors. A larger algorithm.smoothing helps, or a forward pass in float32"
)


class LossWatch:
    """Notes clients that see equal losses in at least half of their steps, again whenever their number has doubled.

    Args:
        observer: is told "coarse-losses", a sentence, of the first client, and "equal-losses", counts, of each.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._steps = Counter[int]()
        self._equal = Counter[int]()
        self._next: dict[int, int] = {}

    def saw(self, client: int, round: int, objective: Any) -> None:
        """Take an objective after a client's local steps; only one with `compare` is looked at, see `Compared`."""
        if not hasattr(objective, "compare"):
            return
        self._steps[client] += objective.steps
        self._equal[client] += objective.equal
        facts = {"client": client, "steps": self._steps[client], "equal": self._equal[client]}
        if self._equal[client] < max(self._next.get(client, FEWEST), self._steps[client] / 2):
            return
        if not self._next:
            self._observer.noted("coarse-losses", what=WHAT.format(**facts))
        self._next[client] = 2 * self._equal[client]
        self._observer.noted("equal-losses", round=round, **facts)
