"""Cases for the tests of algorithms: configurations, losses without a data set, a small federation, and logs.

`python tests/support/algorithm_cases.py THREADS BLOCK LOG…` replays each log from x₀ and prints its digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np

from seedbus.algorithms.contract import Replica, Vector
from seedbus.algorithms.directions import for_blocks, reference, set_threads
from seedbus.bus import Envelope, Kind
from seedbus.bus.codec import decode, encode
from seedbus.scenarios.schema.discovery import ALGORITHMS

DIMENSION = 1_003
"""Odd, so that the end of a vector, which does not fill a kernel's step, is always tested."""

CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "decomfl": {
        "momentum": {"momentum": 0.5},
        "undampened": {"momentum": 0.9, "dampening": False, "local_steps": 3, "perturbations": 2},
        "central": {"estimator": "central", "local_steps": 2, "perturbations": 4},
        "rademacher": {"directions": "rademacher", "local_steps": 2, "perturbations": 1},
        "projection": {"estimator": "projection", "local_steps": 2, "momentum": 0.5},
        "schedules": {
            "perturbations": {0: 2, 3: 5, 5: 1},
            "local_steps": {0: 1, 2: 3},
            "learning_rate": {0: 0.5, 4: 0.25},
            "smoothing": {0: 1e-2, 1: 1e-3},
            "estimator": {0: "forward", 4: "central"},
        },
        "median": {"aggregation": "median", "local_steps": 2},
        "trimmed-mean": {"aggregation": {"rule": "trimmed-mean", "f": 1}, "momentum": 0.5},
        "krum": {"aggregation": {"rule": "krum", "multi": 2}},
        "clipped": {"aggregation": {"rule": "clipped", "quantile": 0.5, "window": 3}, "local_steps": 2},
        "float16": {"precision": "float16", "local_steps": 3, "perturbations": 2},
        "bfloat16": {"precision": "bfloat16", "momentum": 0.5, "local_steps": 2},
        "integer": {"arithmetic": "integer", "local_steps": 3, "perturbations": 4, "learning_rate": {0: 0.01, 3: 0.5}},
        "integer-rademacher": {
            "arithmetic": "integer",
            "directions": "rademacher",
            "aggregation": "clipped",
            "precision": "float16",
            "perturbations": 19,
            "local_steps": 2,
        },
        "integer-projection": {"arithmetic": "integer", "estimator": "projection", "unit_bits": 20},
    },
    "hiso": {
        "several": {"local_steps": 2, "perturbations": 5},
        "projection": {"estimator": "projection", "local_steps": 2, "perturbations": 3},
        "last": {"local_steps": 3, "perturbations": 2, "hessian_step": "last"},
        "clip": {"local_steps": 2, "perturbations": 3, "nu": 0.5, "clip": [0.6, 0.9]},
        "rademacher": {"directions": "rademacher", "perturbations": 2},
        "frozen": {"nu": 0.0, "local_steps": 2},
        "schedules": {"perturbations": {0: 3, 4: 6}, "learning_rate": {0: 0.5, 2: 0.1}},
        "median": {"aggregation": "median", "local_steps": 2},
        "trimmed-mean": {"aggregation": "trimmed-mean"},
        "krum": {"aggregation": "krum", "local_steps": 2},
        "clipped-float16": {"aggregation": "clipped", "precision": "float16"},
        "bfloat16": {"precision": "bfloat16", "local_steps": 2, "perturbations": 3},
    },
    "fedkseed": {
        "crowded": {"pool": 7, "local_steps": 3, "perturbations": {0: 4, 3: 2}, "learning_rate": 0.5},
        "rademacher": {"pool": 300, "directions": "rademacher", "perturbations": 40, "precision": "bfloat16"},
    },
    "mezo": {"several": {"perturbations": 3}, "integer": {"arithmetic": "integer", "perturbations": 2}},
    "fedavg": {
        "one-step": {"local_steps": 1},
        "epochs": {"epochs": 2, "momentum": 0.9, "weight_decay": 1e-3, "clip": 0.1, "decay": 0.9},
        "uniform": {"weighting": "uniform", "server_learning_rate": 0.5, "learning_rate": {0: 0.2, 3: 0.1}},
        "median": {"aggregation": "median"},
        "krum": {"aggregation": {"rule": "krum", "multi": 2}},
        "clipped": {"aggregation": {"rule": "clipped", "window": 3}},
        "fedcom": {"compression": "fedcom"},
        "qsgd": {"compression": {"kind": "qsgd", "levels": 16}, "error_feedback": True},
        "top-k": {"compression": {"kind": "top-k", "fraction": 0.05}, "error_feedback": True},
        "aircomp": {"channel": "aircomp"},
    },
    "fedzo": {
        "central": {"estimator": "central", "sphere": "sqrt-d", "perturbations": 3, "local_steps": 2},
        "epochs": {"epochs": 2, "perturbations": 2, "momentum": 0.5, "learning_rate": 1e-2, "channel": "aircomp"},
    },
    "dzopa": {"central": {"estimator": "central", "perturbations": 3, "learning_rate": 0.05}},
    "zone-s": {"steps": {"perturbations": 3, "learning_rate": 0.05, "local_steps": 2, "server_learning_rate": 0.5}},
    "fedacg": {"prox": {"also": [{"name": "fedprox", "proximal": 0.5}]}},
    "fedadam": {"adaptive": {"adaptivity": 0.1, "beta1": 0.0, "epochs": 2}},
    "fedyogi": {"bold": {"server_learning_rate": 1.0, "adaptivity": 1e-2, "aggregation": "trimmed-mean"}},
    "fedadagrad": {"momentum": {"beta1": 0.9, "momentum": 0.5}},
    "feddyn": {"weighted": {"weighting": "samples", "regularisation": 1.0, "momentum": 0.9}},
    "fedcm": {
        "epochs": {"epochs": 2, "gradient_share": 0.5, "learning_rate": {0: 0.2, 3: 0.1}},
        "adam": {"also": [{"name": "fedadam"}], "server_learning_rate": 0.01, "clip": 0.1},
    },
    "feddc": {"median": {"aggregation": "median", "drift_penalty": 0.5, "weight_decay": 1e-3}},
    "scaffold": {
        "epochs": {"epochs": 1, "momentum": 0.9, "server_learning_rate": 0.5},
        "noisy": {"channel": {"kind": "aircomp", "snr_db": 10.0, "threshold": 0.1}},
        "fedcom": {"compression": {"kind": "fedcom", "bits": 11}},
        "prox-krum": {"also": [{"name": "fedprox", "proximal": 0.5}], "aggregation": "krum"},
    },
}
"""Algorithm → name of a case → hyperparameters. Each algorithm is tested with its defaults as well."""


def make(name: str, **hyperparameters: Any) -> Any:
    """Return an algorithm by its name in scenarios."""
    return ALGORITHMS.all()[name](**hyperparameters)


class Quadratic:
    """One client's loss in one round, ½ mean_j a_j (x_j − c_j)²; every mini-batch has its own c.

    Args:
        dimension: d.
        client: the client.
        round: the round.
        dtype: of the point.
        grain: losses are multiples of it, if it is not 0; with a coarse grain no mean of gradient scalars is rounded.

    Attributes:
        point: x, [d].
        evaluations: how many evaluations have been made; a gradient counts as 3.
    """

    def __init__(self, dimension: int, client: int, round: int, dtype: Any = np.float32, grain: float = 0.0) -> None:
        self.point: Vector = np.full(dimension, np.nan, dtype)
        self.evaluations = 0
        self._indices = np.arange(dimension)
        self._batch = 10 * client + 3 * round
        self._grain = grain
        self._curvature = 1.5 + np.sin(self._indices)
        self._centres: dict[int, Vector] = {}

    samples, steps_an_epoch = 5, 2

    @property
    def key(self) -> int:
        return 2**63 + self._batch

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        assert criterion is None
        self.evaluations += 3  # one forward pass, and a backward pass that costs two
        gradient: Vector = self._curvature * self._difference(step) / self.point.size
        return gradient.astype(self.point.dtype)

    def _difference(self, step: int) -> Vector:
        if step not in self._centres:
            self._centres[step] = np.cos(self._indices + self._batch + step)
        difference: Vector = self.point - self._centres[step]
        return difference

    def loss(self, step: int) -> float:
        self.evaluations += 1
        difference = self._difference(step)
        loss = float(self._curvature @ (difference * difference)) / (2 * difference.size)
        return round(loss / self._grain) * self._grain if self._grain else loss


class Classifier(Quadratic):
    """The loss of a network with three classes and `DIMENSION` parameters, for methods that need its outputs."""

    def __init__(self, dimension: int, client: int, round: int) -> None:
        super().__init__(dimension, client, round)
        from torch import nn

        from seedbus.models.parameters.flat import FlatModule

        self._flat = FlatModule(nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Linear(100, 3)))
        assert self._flat.point.size == dimension
        self.point = self._flat.point

    def loss(self, step: int) -> float:
        from torch.nn.functional import cross_entropy

        self.evaluations += 1
        inputs, labels = self._drawn(step)
        return float(cross_entropy(self._flat.module(inputs), labels))

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        from torch.nn.functional import cross_entropy

        from seedbus.models.parameters.gradients import backward

        self.evaluations += 3
        return backward(self._flat, *self._drawn(step), cross_entropy, criterion)

    def outputs(self, step: int, at: Vector) -> Any:
        from seedbus.models.parameters.gradients import Outputs, through

        inputs, labels = self._drawn(step)
        *hidden, logits = through(self._flat, inputs, -1, at)
        return Outputs(inputs, logits.detach(), tuple(each.detach() for each in hidden), labels)

    def through(self, hidden: Any, number: int, at: Vector) -> Any:
        from seedbus.models.parameters.gradients import through

        return through(self._flat, hidden, number, at)[-1]

    def counts(self) -> Any:
        return np.array([3, 2, 1])

    def _drawn(self, step: int) -> tuple[Any, Any]:
        import torch

        labels = np.arange(5) % 3
        inputs = np.cos(np.arange(30.0).reshape(5, 6) * (self._batch + step + 1)) + labels[:, None]
        return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels)


def objective(algorithm: Any, client: int, round: int, dimension: int = DIMENSION) -> Quadratic:
    """Return a client's objective that the algorithm can work with."""
    return (Classifier if algorithm.needs_outputs else Quadratic)(dimension, client, round)


def x0(dimension: int = DIMENSION, dtype: Any = np.float32) -> Vector:
    """Return the initial point of every test's federation, a direction divided by ten, [dimension]."""
    start = np.empty(dimension, np.float32)
    reference("gaussian").fill(start, seed=2**63 + 1, step=0, perturbation=0)
    return (start * np.float32(0.1)).astype(dtype)


def seed_of(round: int) -> int:
    return int.from_bytes(hashlib.blake2b(str(round).encode(), digest_size=8).digest(), "little")


class Rehearsal(NamedTuple):
    """A run in which the same clients take part in every round.

    Attributes:
        algorithm: with its size.
        plans: one a round.
        reports: one a round, by client.
        commits: one a round.
        states: the server's state before each commit.
        replica: of a client that folded each commit at once.
    """

    algorithm: Any
    plans: list[Any]
    reports: list[dict[int, Any]]
    commits: list[Any]
    states: list[Any]
    replica: Replica


def rehearse(algorithm: Any, rounds: int, *, clients: int = 3, dimension: int = DIMENSION) -> Rehearsal:
    """Run an algorithm's rounds without a bus."""
    algorithm = algorithm.sized(dimension)
    replica, memory = algorithm.replica(x0(dimension)), dict.fromkeys(range(clients))
    state = algorithm.first_state(lambda: x0(dimension))
    plans, reports, commits = [], [], []
    states: list[Any] = []
    for round in range(rounds):
        plan = algorithm.plan(round, replica.version, seed_of(round))
        answers = {}
        for client in range(clients):
            own = objective(algorithm, client, round, dimension)
            answers[client], memory[client] = algorithm.local(replica, memory[client], plan, own)
        states.append(state)
        commit, state = algorithm.aggregate(state, plan, answers)
        algorithm.apply(replica, [commit])
        plans.append(plan)
        reports.append(answers)
        commits.append(commit)
    return Rehearsal(algorithm, plans, reports, commits, states, replica)


def over_the_wire(body: list[Any]) -> Any:
    """Return a body as the recipient decodes it, within the limits of the bus."""
    return decode(encode(Envelope(Kind.PLAN, 0, 0, 0, body))[0]).body


def bits(value: Any) -> Any:
    """Return a value that compares bit for bit: 0 and −0 differ, and a NaN equals itself."""
    if dataclasses.is_dataclass(value):
        return type(value), [bits(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [bits(element) for element in value]
    return (float, struct.pack("<d", value)) if isinstance(value, float) else (type(value), value)


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
        algorithm = kind.model_validate_json(hyperparameters).sized(dimension)
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
