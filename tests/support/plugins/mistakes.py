"""Classes with one mistake each, which a run or the loading of a plug-in has to name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seedbus.plugin import (
    Channel,
    Compression,
    Local,
    MessageSelector,
    Method,
    Partition,
    Rule,
    ScalarOnly,
    Server,
    Verdict,
)


class Raises(ScalarOnly):
    """An error in a line of the plug-in."""

    name: Literal["raises"] = "raises"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        scalars[0] / 0
        return scalars


class OpensNothing(ScalarOnly):
    """An error of the operating system, which is not about the run's own files."""

    name: Literal["opens-nothing"] = "opens-nothing"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [float(Path("no-such-file").read_text(encoding="utf-8")) for _ in scalars]


class Silent(ScalarOnly):
    """Nothing is returned."""

    name: Literal["silent"] = "silent"

    def reported(self, scalars: Sequence[float]) -> Any:
        pass


class Words(ScalarOnly):
    """What is returned is no number."""

    name: Literal["words"] = "words"

    def reported(self, scalars: Sequence[float]) -> Any:
        return ["a" for _ in scalars]


class Mute(Method):
    """It moves the model, and does not say so."""

    name: Literal["mute"] = "mute"

    def move(self, server: Server) -> Any:
        server.x += server.update


class Shortens(Method):
    """It reports a part of its update."""

    name: Literal["shortens"] = "shortens"

    def finish(self, local: Local) -> None:
        local.update = local.update[:2]


class Counts(Method):
    """A client remembers a number."""

    name: Literal["counts"] = "counts"

    def finish(self, local: Local) -> None:
        local.memory["counts.own"] = np.ones(1, np.float32)


class Unmeasured(Method):
    """It declares a number, and reports none."""

    name: Literal["unmeasured"] = "unmeasured"

    @property
    def measures(self) -> tuple[str, ...]:
        return ("unmeasured.loss",)


class Tallies(Method):
    """The server keeps a number."""

    name: Literal["tallies"] = "tallies"

    def learn(self, server: Any) -> None:
        server.state["tallies.all"] = 1.0


class Hasty(MessageSelector):
    """Messages arrive before they are sent."""

    fault: Literal["hasty"] = "hasty"

    def judge(self, passage: Any) -> Any:
        return Verdict(delay_ns=-5)


class Undecided(MessageSelector):
    """No verdict."""

    fault: Literal["undecided"] = "undecided"

    def judge(self, passage: Any) -> Any:
        pass


class Arrays(Compression):
    """What it encodes cannot travel."""

    kind: Literal["arrays"] = "arrays"

    def encode(self, vector: Any, key: int) -> list[Any]:
        return [vector]

    def decode(self, body: Any, dimension: int) -> Any:
        return body[0]


class Wide(Rule):
    """It returns all rows."""

    rule: Literal["wide"] = "wide"

    def combine(self, rows: Any, state: Any) -> Any:
        return rows, state

    def blend(self, updates: Any, state: Any) -> Any:
        return np.zeros(3), state


class Narrow(Channel):
    """Its noise is too short."""

    kind: Literal["narrow"] = "narrow"

    def reaches(self, seed: int, client: int) -> bool:
        return True

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Any:
        return np.zeros(2, np.float32)


class Lists(Partition):
    """It returns lists."""

    kind: Literal["lists"] = "lists"

    def split(self, column: Any, clients: int, seed: int) -> Any:
        return [list(range(client, column.size, clients)) for client in range(clients)]


class Leaves(ScalarOnly):
    """It ends the process."""

    name: Literal["leaves"] = "leaves"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        sys.exit(3)
