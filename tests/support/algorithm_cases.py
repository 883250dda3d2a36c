"""Cases for the tests of algorithms: configurations, and logs that can be stored. Rehearsals are the package's own.

`python tests/support/algorithm_cases.py THREADS BLOCK LOG…` replays each log from x₀ and prints its digest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import yaml

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import for_blocks, set_threads
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.studies.check.promises import bits, over_the_wire, seed_of
from seedbus.studies.check.rehearsal import (
    DIMENSION,
    ROUNDS,
    Classifier,
    Quadratic,
    Rehearsal,
    objective,
    of_dimension,
    rehearse,
    x0,
)

__all__ = [
    "DIMENSION",
    "ROUNDS",
    "Classifier",
    "Quadratic",
    "Rehearsal",
    "bits",
    "objective",
    "over_the_wire",
    "rehearse",
    "seed_of",
    "x0",
]

CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).with_name("data") / "configurations.yaml").read_text(encoding="utf-8")
)
"""Algorithm → name of a case → hyperparameters. Each algorithm is tested with its defaults as well."""


def make(name: str, **hyperparameters: Any) -> Any:
    """Return an algorithm by its name in scenarios."""
    return ALGORITHMS.all()[name](**hyperparameters)


class Log(NamedTuple):
    """A run that can be stored: its algorithm, its dimension and its commits. x₀ is `x0(dimension)`."""

    algorithm: Any
    dimension: int
    commits: Sequence[Any]

    def pack(self, digest: str = "") -> bytes:
        algorithm, body = self.algorithm, self.algorithm.pack_commits(self.commits).body
        packed: bytes = msgpack.packb([algorithm.name, algorithm.model_dump_json(), self.dimension, body, digest])
        return packed

    @staticmethod
    def unpack(packed: bytes) -> tuple[Log, str]:
        name, hyperparameters, dimension, body, digest = msgpack.unpackb(packed)
        kind: Any = ALGORITHMS.all()[name]
        algorithm = of_dimension(kind.model_validate_json(hyperparameters), dimension)
        return Log(algorithm, dimension, algorithm.unpack_commits(body)), digest

    def replay(self) -> Replica:
        replica: Replica = self.algorithm.replica(x0(self.dimension))
        self.algorithm.apply(replica, self.commits)
        return replica


def set_block(coordinates: int) -> None:
    """Set the size of blocks into which this process divides vectors from now on."""
    assert for_blocks.__kwdefaults__ is not None
    for_blocks.__kwdefaults__["block"] = coordinates


def digests(threads: str, block: str, logs: Iterable[str]) -> None:
    set_threads(int(threads))
    set_block(int(block))
    for log in logs:
        sys.stdout.write(Log.unpack(Path(log).read_bytes())[0].replay().digest() + "\n")


if __name__ == "__main__":
    digests(sys.argv[1], sys.argv[2], sys.argv[3:])
