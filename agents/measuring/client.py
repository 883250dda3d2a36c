"""A client's part of an evaluation: the sums of metrics over its own held-out samples, and how many these are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.messages import Measured
from seedbus.algorithms.contract import Vector


class OwnParts:
    """Measures models on the held-out samples of a process's clients.

    Args:
        problem: the task with its data, which must be `models.task.HasParts`.
        split: "train", "validation" or "test": which of the clients' samples are measured on.
        names: the metrics, each a mean over samples, in the order in which their sums travel.
    """

    def __init__(self, problem: Any, split: str, names: Sequence[str]) -> None:
        self._problem = problem
        self._split = split
        self._names = names
        self._parts: Sequence[NDArray[np.int64]] | None = None

    def measured(self, client: int, round: int, version: int, x: Vector) -> Measured:
        """Return what a client tells of a model x [d] of a version, after a round."""
        if self._parts is None:
            self._parts = self._problem.owned(self._split) or ()
        part = self._parts[client] if client < len(self._parts) else np.zeros(0, np.int64)
        sums = [0.0] * len(self._names)
        if part.size:
            means = self._problem.evaluate_part(x, self._split, part)
            sums = [means[name] * int(part.size) for name in self._names]
        return Measured(client, round, version, int(part.size), sums)
