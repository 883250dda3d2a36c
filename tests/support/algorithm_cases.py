"""Cases for the tests of algorithms: configurations, and logs that can be stored. Rehearsals are the package's own.

`python tests/support/algorithm_cases.py THREADS BLOCK LOG…` replays each log from x₀ and prints its digest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

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

CONFIGURATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "decomfl": {
        "momentum": {"momentum": 0.5},
        "undampened": {"momentum": 0.9, "dampening": False, "local_steps": 3, "perturbations": 2},
        "central": {"estimator": "central", "local_steps": 2, "perturbations": 4},
        "rademacher": {"directions": "rademacher", "local_steps": 2, "perturbations": 1},
        "projection": {"estimator": "projection", "local_steps": 2, "momentum": 0.5},
        "forward-mode": {"estimator": "forward-mode", "local_steps": 2, "momentum": 0.5},
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
        "decay": {"weight_decay": 0.1, "momentum": 0.5, "local_steps": 2},
        "compensate": {"revert": "compensate", "local_steps": 2, "perturbations": {0: 3, 4: 5}},
        "bfloat16-x": {
            "arithmetic": "bfloat16",
            "learning_rate": 0.5,
            "local_steps": 3,
            "perturbations": 2,
            "momentum": 0.5,
            "weight_decay": 0.1,
        },
        "integer-projection": {"arithmetic": "integer", "estimator": "projection", "unit_bits": 20},
    },
    "hiso": {
        "several": {"local_steps": 2, "perturbations": 5},
        "projection": {"estimator": "projection", "local_steps": 2, "perturbations": 3},
        "forward-mode": {"estimator": {0: "forward-mode", 3: "central"}, "local_steps": 2, "perturbations": 3},
        "last": {"local_steps": 3, "perturbations": 2, "hessian_step": "last"},
        "clip": {"local_steps": 2, "perturbations": 3, "nu": 0.5, "clip": [0.6, 0.9]},
        "rademacher": {"directions": "rademacher", "perturbations": 2},
        "frozen": {"nu": 0.0, "local_steps": 2},
        "schedules": {"perturbations": {0: 3, 4: 6}, "learning_rate": {0: 0.5, 2: 0.1}},
        "median": {"aggregation": "median", "local_steps": 2},
        "trimmed-mean": {"aggregation": "trimmed-mean"},
        "krum": {"aggregation": "krum", "local_steps": 2},
        "decay": {"weight_decay": 0.1, "local_steps": 2, "perturbations": 3},
        "momentum": {"momentum": 0.5, "local_steps": 2, "perturbations": 3},
        "undampened-decay": {"momentum": 0.9, "dampening": False, "weight_decay": 0.1, "hessian_step": "last"},
        "normalised": {"normalise": True, "learning_rate": 100.0, "local_steps": 2, "clip": [0.5, 2.0]},
        "mean": {"hessian": "mean", "nu": 0.5, "local_steps": 2, "perturbations": 3},
        "clipped-float16": {"aggregation": "clipped", "precision": "float16"},
        "bfloat16": {"precision": "bfloat16", "local_steps": 2, "perturbations": 3},
        "curvature": {"estimator": "curvature", "local_steps": 2, "perturbations": {0: 3, 4: 5}, "momentum": 0.5},
        "curvature-last": {
            "estimator": "curvature",
            "hessian_step": "last",
            "local_steps": 3,
            "perturbations": 2,
            "precision": "float16",
            "weight_decay": 0.1,
            "aggregation": "median",
        },
        "curvature-mean": {"estimator": "curvature", "hessian": "mean", "nu": 0.5, "clip": [0.5, 2.0]},
        "bfloat16-x": {"arithmetic": "bfloat16", "local_steps": 2, "perturbations": 3, "clip": [0.6, 0.9]},
        "bfloat16-mean": {"arithmetic": "bfloat16", "local_steps": 2, "hessian": "mean", "directions": "rademacher"},
        "bfloat16-curvature": {
            "arithmetic": "bfloat16",
            "estimator": "curvature",
            "local_steps": 2,
            "perturbations": 2,
            "momentum": 0.5,
            "weight_decay": 0.1,
        },
    },
    "hizoo": {
        "several": {"perturbations": {0: 3, 4: 5}, "alpha": 0.3, "aggregation": "median"},
        "bfloat16-x": {"perturbations": 3, "arithmetic": "bfloat16", "weight_decay": 0.1},
        "decay-float16": {"alpha": 0.1, "weight_decay": 0.1, "precision": "float16"},
    },
    "feedsign": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}},
        "rademacher": {"directions": "rademacher", "perturbations": 19, "estimator": "forward"},
    },
    "zo-signsgd": {"several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}, "aggregation": "median"}},
    "zo-adam": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}},
        "bfloat16-x": {"local_steps": 2, "perturbations": 2, "arithmetic": "bfloat16"},
        "amsgrad-rademacher": {"amsgrad": True, "directions": "rademacher", "precision": "float16"},
    },
    "zo-yogi": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}, "beta2": 0.5},
        "bfloat16-x": {"local_steps": 2, "perturbations": 2, "arithmetic": "bfloat16", "weight_decay": 0.1},
    },
    "zo-rmsprop": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}, "aggregation": "median"},
        "rademacher": {"directions": "rademacher", "precision": "float16", "weight_decay": 0.1},
    },
    "fzoo": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}, "weight_decay": 0.1, "learning_rate": 0.1},
        "bfloat16-x": {"local_steps": 2, "perturbations": 3, "arithmetic": "bfloat16", "learning_rate": 0.1},
        "median-float16": {"aggregation": "median", "precision": "float16", "directions": "gaussian"},
    },
    "meazo": {
        "several": {"perturbations": {0: 3, 4: 5}, "weight_decay": 0.1, "learning_rate": {0: 0.1, 3: 0.05}},
        "bfloat16-x": {"perturbations": 3, "arithmetic": "bfloat16", "beta": 0.5, "learning_rate": 0.1},
        "clipped-float16": {"aggregation": "clipped", "precision": "float16", "directions": "rademacher"},
    },
    "r-adazo": {
        "several": {"local_steps": 3, "perturbations": {0: 3, 4: 5}, "weight_decay": 0.1},
        "bfloat16-x": {"local_steps": 2, "perturbations": 2, "arithmetic": "bfloat16", "beta2": 0.5},
    },
    "fedkseed": {
        "crowded": {"pool": 7, "local_steps": 3, "perturbations": {0: 4, 3: 2}, "learning_rate": 0.5},
        "rademacher": {"pool": 300, "directions": "rademacher", "perturbations": 40, "precision": "bfloat16"},
    },
    "fedkseed-pro": {
        "crowded": {"pool": 7, "local_steps": 3, "perturbations": {0: 4, 3: 2}, "learning_rate": 0.5},
        "clipped": {"pool": 300, "directions": "rademacher", "perturbations": 40, "clip": 0.01},
    },
    "lozo": {
        "several": {"local_steps": 2, "perturbations": {0: 3, 4: 5}, "interval": 3, "weight_decay": 0.1},
        "bfloat16-x": {"local_steps": 2, "perturbations": 2, "arithmetic": "bfloat16", "learning_rate": 0.1},
        "rademacher": {"rank": 3, "directions": "rademacher", "precision": "float16", "estimator": "forward"},
    },
    "fedscalar": {
        "several": {"perturbations": {0: 3, 4: 5}, "local_steps": {0: 2, 3: 1}, "local_learning_rate": 0.05},
        "rademacher": {"directions": "rademacher", "precision": "bfloat16"},
    },
    "fedscalar-shared": {
        "bfloat16-x": {"arithmetic": "bfloat16", "perturbations": 3, "local_learning_rate": 0.1},
        "several": {"perturbations": {0: 3, 4: 5}, "learning_rate": {0: 0.5, 2: 1.0}, "aggregation": "median"},
        "integer": {"arithmetic": "integer", "perturbations": 4, "local_learning_rate": 0.1},
        "signs": {"precision": "sign", "perturbations": 19, "directions": "rademacher", "learning_rate": 0.01},
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
        "fixed-point": {"compression": "fixed-point", "weighting": "uniform", "error_feedback": True},
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
    "fednova": {"epochs": {"epochs": 2, "momentum": 0.9, "aggregation": "median"}},
    "fedexp": {"channel": {"channel": "aircomp", "epsilon": 1e-6, "also": [{"name": "fedprox"}]}},
    "mifa": {"top-k": {"compression": {"kind": "top-k", "fraction": 0.3}, "decay": 0.5, "epochs": 2}},
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
