"""A client's part of an evaluation: the sums of metrics over its own held-out samples, and how many these are.

Sums at models of a server's choice tell of the samples. So a client answers as often as the scenario says and no more:
once after a round in which an evaluation is due, and once after another, which is then the last.
"""

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
        every: after how many rounds an evaluation is due.
        rounds: how many rounds there are at most.
    """

    def __init__(self, problem: Any, split: str, names: Sequence[str], every: int, rounds: int) -> None:
        self._problem = problem
        self._split = split
        self._names = names
        self._every = every
        self._rounds = rounds
        self._parts: Sequence[NDArray[np.int64]] | None = None
        self._last: dict[int, tuple[int, int]] = {}

    def is_due(self, client: int, round: int, version: int) -> bool:
        """Whether a client may be asked to measure a version after a round: a further one, or the same once more."""
        last = self._last.get(client, (-1, -1))
        if (round, version) == last:
            return True
        is_first = (round, version) == (0, 0)
        was_whole = last in ((-1, -1), (0, 0)) or (last[0] + 1) % self._every == 0
        is_further = round > last[0] or last == (0, 0)
        return was_whole and is_further and version <= round + 1 and (is_first or round < self._rounds)

    def measured(self, client: int, round: int, version: int, x: Vector) -> Measured:
        """Return what a client tells of a model x [d] of a version, after a round in which that `is_due`."""
        self._last[client] = round, version
        if self._parts is None:
            self._parts = self._problem.owned(self._split) or ()
        part = self._parts[client] if client < len(self._parts) else np.zeros(0, np.int64)
        sums = [0.0] * len(self._names)
        if part.size:
            means = self._problem.evaluate_part(x, self._split, part)
            sums = [means[name] * int(part.size) for name in self._names]
        return Measured(client, round, version, int(part.size), sums)
