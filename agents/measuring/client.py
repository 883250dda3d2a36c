"""A client's part of an evaluation: the sums of metrics over its own held-out samples, and how many these are.

Sums at models of a server's choice tell of the samples. So a client answers as often as the scenario says and no more:
once after a round in which an evaluation is due, and once after another, which is then the last.

Where the server may see sums over clients alone (`in_sums`), a client answers no such question. In a round that begins
after an evaluation was due it tells its numbers beside its report, and these are hidden as the report is.

What a client has measured is also written for its owner, where the process has a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.measuring.sums import numbers, rides, width
from seedbus.agents.messages import Measured
from seedbus.algorithms.contract import Vector
from seedbus.bus.files import private, whole_lines

METRICS = "metrics.jsonl"
"""The file of a folder with a line for each time that a client has measured."""


class OwnParts:
    """Measures models on the held-out samples of a process's clients.

    Args:
        problem: the task with its data, which must be `models.task.HasParts`.
        split: "train", "validation" or "test": which of the clients' samples are measured on.
        names: the metrics, each a mean over samples, in the order in which their sums travel.
        every: after how many rounds an evaluation is due.
        rounds: how many rounds there are at most.
        folder: where the clients' own metrics are written, which are not sent; None: nowhere.
        in_sums: whether the server sees sums over clients alone.
    """

    def __init__(
        self,
        problem: Any,
        split: str,
        names: Sequence[str],
        every: int,
        rounds: int,
        folder: Path | None = None,
        *,
        in_sums: bool = False,
    ) -> None:
        self._problem = problem
        self._split = split
        self._names = names
        self._every = every
        self._rounds = rounds
        self._folder = folder
        self.in_sums = in_sums
        self._parts: Sequence[NDArray[np.int64]] | None = None
        self._last: dict[int, tuple[int, int]] = {}
        self._written: set[str] | None = None  # the lines of the folder's file; None: it has not been read

    def is_due(self, client: int, round: int, version: int) -> bool:
        """Whether a client may be asked to measure a version after a round: a further one, or the same once more."""
        last = self._last.get(client, (-1, -1))
        if (round, version) == last:
            return True
        is_first = (round, version) == (0, 0)
        was_whole = last in ((-1, -1), (0, 0)) or (last[0] + 1) % self._every == 0
        is_further = round > last[0] or last == (0, 0)
        return was_whole and is_further and version <= round + 1 and (is_first or round < self._rounds)

    def rides(self, round: int) -> bool:
        """Whether what clients measure at the start of a round is told beside their reports."""
        return self.in_sums and rides(round, self._every)

    def beside(self, client: int, round: int, version: int, x: Vector) -> list[int]:
        """Return the numbers that a client tells beside its report in a round in which it `rides`.

        Zeros are those of a client that may not measure once more, or whose means are no numbers of float32.

        Args:
            client: the client.
            round: the round.
            version: at which the round starts.
            x: the model of that version, float32 [d].

        Raises:
            OSError: as `measured`.
        """
        after = max(0, round - 1)
        told = numbers(self.measured(client, after, version, x)) if self.is_due(client, after, version) else None
        return told or [0] * width(self._names)

    def measured(self, client: int, round: int, version: int, x: Vector) -> Measured:
        """Return what a client tells of a model x [d] of a version, after a round in which that `is_due`.

        Raises:
            OSError: the owner's metrics cannot be written.
        """
        is_new = self._last.get(client) != (round, version)
        self._last[client] = round, version
        if self._parts is None:
            self._parts = self._problem.owned(self._split) or ()
        part = self._parts[client] if client < len(self._parts) else np.zeros(0, np.int64)
        sums = [0.0] * len(self._names)
        if part.size:
            means = self._problem.evaluate_part(x, self._split, part)
            sums = [means[name] * int(part.size) for name in self._names]
            if is_new and self._folder is not None:
                own = {"client": client, "round": round, "version": version, "samples": int(part.size)}
                self._write(self._folder / METRICS, own | {name: means[name] for name in self._names})
        return Measured(client, round, version, int(part.size), sums)

    def _write(self, path: Path, own: dict[str, Any]) -> None:
        """Append a line, unless a process before this one has written it; half a line of a killed one is removed."""
        if self._written is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._written = set(whole_lines(path))
        line = json.dumps(own)
        if line not in self._written:
            self._written.add(line)
            with open(path, "a", encoding="utf-8", opener=private) as file:
                file.write(line + "\n")
