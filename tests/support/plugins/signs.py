"""A plug-in as a user would write it: an algorithm, a dense method, and one class of every other kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seedbus.plugin import (
    PASS,
    Channel,
    Compression,
    DataError,
    Known,
    Law,
    Local,
    MessageSelector,
    Method,
    Partition,
    Passage,
    Problem,
    Rule,
    ScalarOnly,
    Selection,
    Task,
    TrackedRun,
    Tracker,
    TrackerRun,
    Vector,
    Verdict,
)


class Signs(ScalarOnly):
    """The sign of each scalar, one bit (no paper; arXiv knows it as signSGD, arXiv:1802.04434)."""

    name: Literal["signs"] = "signs"

    def reported(self, scalars: Sequence[float]) -> Sequence[float]:
        return [float(sign) for sign in np.sign(scalars)]


class Damped(Method):
    """Halves every direction."""

    name: Literal["damped"] = "damped"
    factor: float = Field(default=0.5, gt=0, description="of each direction")

    def direct(self, direction: Vector, local: Local) -> None:
        direction *= np.float32(self.factor)


class Halves(Compression):
    """Half precision."""

    kind: Literal["halves"] = "halves"

    def encode(self, vector: Vector, key: int) -> list[Any]:
        with np.errstate(over="ignore"):
            return [vector.astype("<f2").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        if (
            not isinstance(body, list)
            or len(body) != 1
            or not isinstance(body[0], bytes)
            or len(body[0]) != 2 * dimension
        ):
            from seedbus.plugin import BadPayload

            raise BadPayload("a vector is not half as long as it should be")
        return np.frombuffer(body[0], "<f2").astype(np.float32)


class Quiet(Channel):
    """Reaches everybody and adds nothing."""

    kind: Literal["quiet"] = "quiet"

    def reaches(self, seed: int, client: int) -> bool:
        return True

    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        return np.zeros(dimension, np.float32)


class First(Rule):
    """Believes the first client."""

    rule: Literal["first"] = "first"

    def combine(self, rows: Any, state: Any) -> tuple[Any, Any]:
        return rows[0], state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Any, Any]:
        return updates[0].astype(np.float64), state


class SparseSigns(Law):
    """0, or a sign times the root of 1 / density (no paper; Achlioptas 2003 projects by it)."""

    law: Literal["sparse-signs"] = "sparse-signs"
    density: float = Field(default=1 / 3, gt=0, le=1, description="share of the coordinates that are not 0")

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 1 - self.density / 2, self.density**-0.5, 0.0)


class Lowest(Selection):
    """The lowest numbers."""

    policy: Literal["lowest"] = "lowest"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(members[:count])


class Alternating(Partition):
    """Sample i goes to client i modulo the number of clients."""

    kind: Literal["alternating"] = "alternating"

    def split(self, column: Any, clients: int, seed: int) -> list[Any]:
        if not 1 <= clients <= column.size:
            raise DataError("partition alternating", f"{clients} clients", f"1 to {column.size}")
        return [np.arange(client, column.size, clients) for client in range(clients)]


class Deaf(MessageSelector):
    """Counts messages, and strikes none."""

    fault: Literal["deaf"] = "deaf"

    def judge(self, passage: Passage) -> Verdict:
        return PASS


class Bowl(Task, frozen=True):
    """½‖x − 1‖²."""

    name: Literal["bowl"] = "bowl"
    dimension: int = Field(default=50, ge=1, description="d")

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        return BowlProblem(self.dimension)


class BowlProblem:
    def __init__(self, dimension: int) -> None:
        self.dimension, self.point = dimension, np.zeros(dimension, np.float32)

    def x0(self) -> Vector:
        return np.zeros(self.dimension, np.float32)

    def samples(self, client: int) -> int:
        return 1

    def objective(self, client: int, round: int) -> BowlProblem:
        return self

    def loss(self, step: int) -> float:
        return float(np.sum((self.point.astype(np.float64) - 1) ** 2) / 2)

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        return {"loss": float(np.sum((x.astype(np.float64) - 1) ** 2) / 2)}

    def state_dict(self, x: Vector) -> dict[str, Any]:
        return {"x": x.copy()}


class Paper(Tracker):
    """A line of JSON for every evaluation, in RUN/paper.jsonl."""

    tracker: Literal["paper"] = "paper"

    def begin(self, run: TrackedRun) -> TrackerRun:
        return PaperRun(run.folder / "paper.jsonl")


class PaperRun(TrackerRun):
    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.last_step = json.loads(lines[-1])["step"] if lines else -1

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def end(self, how: str, figures: Mapping[str, str | float]) -> None:
        pass
