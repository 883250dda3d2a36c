"""The runs whose results the guard keeps: their scenarios, and the ways in which they are carried out.

Each run is a few rounds of a small task. Runs in real time are not included, because their results depend on the
machine.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Way = Callable[[Path, Path], Document | None]
"""Carries out the scenario of a file in a folder; returns its cells, or None: then they are those of the folder."""

# -- settings that runs share

QUADRATIC: Document = {"name": "quadratic", "dimension": 203, "noise": 0.1}
NULL: Document = {"name": "null", "dimension": 131, "losses": "keyed"}
DIGITS: Document = {"name": "digits", "model": "softmax", "batch_size": 8}
CNN: Document = DIGITS | {"model": "cnn"}

DECOMFL: Document = {
    "name": "decomfl",
    "perturbations": 3,
    "local_steps": 2,
    "learning_rate": 0.01,
    "momentum": 0.5,
}
HISO: Document = {"name": "hiso", "perturbations": 4, "local_steps": 2, "learning_rate": 0.001}
FEDAVG: Document = {"name": "fedavg", "local_steps": 3}

ALL: Document = {"clients": 6, "cohort": 3}
TIMED: Document = {"clients": 8, "cohort": 4, "deadline_s": 0.6}
"""With a deadline that some answers miss."""
LATE: Document = TIMED | {"late": {"discount": 0.5, "max_staleness": 5}}
LINKS: Document = {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 1.0}, "up_mbps": 1, "down_mbps": 5}
WORK: Document = {"evaluation": {"distribution": "exponential", "mean": 0.01}}

BASE: Document = {
    "task": QUADRATIC,
    "algorithm": DECOMFL,
    "participation": ALL,
    "network": LINKS,
    "evaluation": {"every": 4},
    "stop": {"rounds": 12},
    "verify": True,
}
FAULTY: Document = {"algorithm": HISO, "participation": TIMED, "compute": WORK, "stop": {"rounds": 15}}
AWAY = {"distribution": "exponential", "mean": 0.8}
PARETO = {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}

# -- the runs

FAULTS: dict[str, Document] = {
    "bandwidth": {"up_mbps": 0.002, "down_mbps": 0.01, "fraction": 0.5},
    "byzantine-noise": {"attack": "noise", "probability": 0.5},
    "byzantine-sign": {"attack": "sign-flip", "fraction": 0.5},
    "byzantine-replay": {"attack": "replay", "clients": [1, 3], "at_round": 2},
    "byzantine-huge": {"attack": "huge", "fraction": 0.25},
    "byzantine-nan": {"attack": "nan", "fraction": 0.25},
    "churn": {"stays": AWAY, "away": AWAY},
    "churn-unsaid": {"stays": AWAY, "away": AWAY, "announced": False, "returns": "without-state"},
    "colluding-alie": {"attack": "alie", "fraction": 0.5},
    "colluding-ipm": {"attack": "ipm", "fraction": 0.5},
    "colluding-min-max": {"attack": "min-max", "fraction": 0.5, "probability": 0.7},
    "corrupt": {"probability": 0.2, "bits": 2},
    "crash": {"fraction": 0.5, "at_round": 2, "for_rounds": 3, "every_rounds": 5},
    "crash-bare": {"probability": 0.3, "for_rounds": 2, "every_rounds": 4, "returns": "without-state"},
    "crash-foreign": {"clients": [0, 1, 5], "for_rounds": 4, "returns": "from-another-run"},
    "delay": {"by": PARETO, "probability": 0.4},
    "device-classes": {
        "classes": [{"share": 0.5, "factor": 1.0}, {"share": 0.3, "factor": 4.0}, {"share": 0.2, "factor": 0.5}]
    },
    "device-speeds": {"file": "speeds.csv"},
    "diurnal": {"period_s": 3.0, "low": 0.2, "high": 0.9},
    "drop": {"probability": 0.3},
    "dropout": {"probability": 0.3, "when": "after-training"},
    "dropout-landing": {"rates": [0.1, 0.6], "when": "before-landing"},
    "duplicate": {"probability": 0.2, "copies": 3},
    "hostile": {"fraction": 0.25},
    "late-joiners": {"fraction": 0.5, "at_round": 3, "spread_rounds": 4},
    "link-trace": {"file": "links.csv", "every_s": 4.5},
    "partition": {"fraction": 0.5, "for_rounds": 4, "every_rounds": 8},
    "ramp": {"start": 2, "stages": [{"rounds": 8, "target": 8}]},
    "reorder": {"window_s": 0.8, "probability": 0.5},
    "replacement": {"active": 4, "every_rounds": 3},
    "server-crash-asking": {"at_round": 2, "every_rounds": 5, "phase": "asking", "down_s": 0.3},
    "server-crash-gathering": {"at_round": 3, "down_s": 1.0},
    "server-crash-committing": {"at_round": 3, "phase": "committing"},
    "server-crash-publishing": {"at_round": 0, "every_rounds": 1, "phase": "publishing", "down_s": 0.1},
    "straggler": {"factor": {"distribution": "lognormal", "median": 3, "sigma": 1}},
    "straggler-pause": {"pause_s": 0.3, "probability": 0.4},
    "trace": {"file": "trace.csv"},
    "trace-devices": {"file": "devices.csv"},
}
"""Name of a run → fields of its fault."""

SCALAR: dict[str, Document] = {
    "decomfl": DECOMFL,
    "decomfl-central": DECOMFL | {"estimator": "central", "momentum": 0.0},
    "decomfl-rademacher": DECOMFL | {"directions": "rademacher", "momentum": 0.9, "dampening": False},
    "decomfl-projection": DECOMFL | {"estimator": "projection"},
    "decomfl-light": DECOMFL | {"revert": "light"},
    "decomfl-float16": DECOMFL | {"precision": "float16"},
    "decomfl-bfloat16": DECOMFL | {"precision": "bfloat16"},
    "decomfl-schedules": DECOMFL
    | {"perturbations": {0: 2, 3: 5, 5: 1}, "local_steps": {0: 1, 2: 3}, "learning_rate": {0: 0.01, 4: 0.005}},
    "decomfl-median": DECOMFL | {"aggregation": "median"},
    "decomfl-trimmed": DECOMFL | {"aggregation": {"rule": "trimmed-mean", "trim": 0.3}},
    "decomfl-krum": DECOMFL | {"aggregation": {"rule": "krum", "multi": 2}},
    "decomfl-clipped": DECOMFL | {"aggregation": {"rule": "clipped", "quantile": 0.5, "window": 3}},
    "hiso": HISO,
    "hiso-last": HISO | {"hessian_step": "last", "estimator": "central"},
    "hiso-clip": HISO | {"nu": 0.5, "clip": [0.6, 0.9], "revert": "light"},
    "hiso-rademacher": HISO | {"directions": "rademacher", "precision": "float16"},
}

DENSE: dict[str, Document] = {
    "fedavg": FEDAVG,
    "fedavg-fixed-point": FEDAVG | {"compression": "fixed-point", "weighting": "uniform"},
    "fedavg-epochs": {
        "name": "fedavg",
        "epochs": 2,
        "momentum": 0.9,
        "weight_decay": 0.001,
        "clip": 0.1,
        "decay": 0.9,
        "weighting": "uniform",
    },
    "fedavg-median": FEDAVG | {"aggregation": "median"},
    "fedavg-trimmed": FEDAVG | {"aggregation": "trimmed-mean"},
    "fedavg-krum": FEDAVG | {"aggregation": {"rule": "krum", "multi": 2}},
    "fedavg-clipped": FEDAVG | {"aggregation": {"rule": "clipped", "window": 3}},
    "fedavg-fedcom": FEDAVG | {"compression": "fedcom"},
    "fedavg-qsgd": FEDAVG | {"compression": {"kind": "qsgd", "levels": 16}, "error_feedback": True},
    "fedavg-top-k": FEDAVG | {"compression": {"kind": "top-k", "fraction": 0.05}, "error_feedback": True},
    "fedavg-aircomp": FEDAVG | {"channel": "aircomp"},
    "fedavg-aircomp-noisy": FEDAVG | {"channel": {"kind": "aircomp", "snr_db": 10.0, "threshold": 0.1}},
    "fedzo": {"name": "fedzo", "perturbations": 3, "local_steps": 2},
    "fedzo-central": {"name": "fedzo", "perturbations": 3, "estimator": "central", "sphere": "sqrt-d"},
    "dzopa": {"name": "dzopa", "perturbations": 3, "learning_rate": 0.05},
    "zone-s": {"name": "zone-s", "perturbations": 3, "learning_rate": 0.05, "local_steps": 2},
    "fedacg": {"name": "fedacg", "also": [{"name": "fedprox", "proximal": 0.5}]},
    "fedadagrad": {"name": "fedadagrad"},
    "fedadam": {"name": "fedadam"},
    "fedavgm": {"name": "fedavgm"},
    "fedcm": {"name": "fedcm"},
    "feddc": {"name": "feddc"},
    "feddyn": {"name": "feddyn"},
    "fedexp": {"name": "fedexp"},
    "mifa": {"name": "mifa", "decay": 0.9},
    "fednova": {"name": "fednova", "epochs": 1, "momentum": 0.5},
    "fedprox": {"name": "fedprox"},
    "fedyogi": {"name": "fedyogi"},
    "scaffold": {"name": "scaffold"},
    "scaffold-qsgd": {"name": "scaffold", "compression": "qsgd"},
}

LAGGING: Document = {
    "participation": {"clients": 8, "cohort": 2, "deadline_s": 2.0},
    "stop": {"rounds": 30},
}
LAG: Document = {"snapshot_after_commits": 3, "chunk_bytes": 256, "window": 2}
HISO_VARIANTS: Document = {
    "name": "hiso",
    "perturbations": 3,
    "local_steps": 2,
    "momentum": 0.5,
    "weight_decay": 0.01,
    "hessian": "mean",
    "normalise": True,
    "clip": [0.5, 2.0],
}

OTHERS: dict[str, Document] = {
    # tasks whose losses torch computes
    "digits-decomfl": {"task": DIGITS},
    "digits-forward-mode": {"task": DIGITS, "algorithm": DECOMFL | {"estimator": "forward-mode"}},
    "digits-label-flip": {"task": DIGITS, "faults": [{"fault": "label-flip", "fraction": 0.5, "probability": 0.5}]},
    "digits-cnn": {"task": CNN, "stop": {"rounds": 5}},
    "digits-lozo": {"task": DIGITS, "algorithm": {"name": "lozo", "perturbations": 2, "interval": 2}},
    "digits-lozo-factored": {
        "task": CNN,
        "algorithm": {"name": "lozo", "perturbations": 2, "local_steps": 2, "interval": 2, "forward": "factored"},
        "stop": {"rounds": 5},
    },
    "digits-masked": {"task": DIGITS, "mask": {"rule": "gradient", "density": 0.1}},
    "digits-cnn-compensate": {
        "task": CNN,
        "algorithm": DECOMFL | {"revert": "compensate", "momentum": 0},
        "stop": {"rounds": 3},
    },
    "digits-cnn-light": {"task": CNN, "algorithm": DECOMFL | {"revert": "light"}, "stop": {"rounds": 5}},
    "digits-hiso": {"task": DIGITS, "algorithm": HISO, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "digits-fedavg": {"task": DIGITS | {"batches": "passes"}, "algorithm": FEDAVG, "partition": {"kind": "shards"}},
    "digits-validation": {"task": DIGITS, "evaluation": {"every": 2, "split": "validation"}},
    "digits-target": {"task": DIGITS, "algorithm": FEDAVG, "stop": {"rounds": 40, "target": {"value": 0.6}}},
    "mnist": {"task": {"name": "mnist"}, "stop": {"rounds": 3}},
    "attack": {"task": {"name": "blackbox-attack", "label": None, "classifier_steps": 20}, "stop": {"rounds": 4}},
    "cifar-10": {"task": {"name": "cifar-10", "model": "softmax"}, "stop": {"rounds": 3}},
    "cifar-100": {"task": {"name": "cifar-100", "model": "softmax"}, "algorithm": FEDAVG, "stop": {"rounds": 3}},
    "femnist": {
        "task": {"name": "femnist", "model": "softmax"},
        "participation": {"clients": 3},
        "partition": {"kind": "natural"},
        "stop": {"rounds": 3},
    },
    "shakespeare": {"task": {"name": "shakespeare"}, "participation": {"clients": 2}, "stop": {"rounds": 2}},
    **{
        name: {"task": CNN, "algorithm": {"name": name, "local_steps": 2}, "stop": {"rounds": 4}}
        for name in ("feddecorr", "fedlc", "fedmlb", "fedntd", "moon")
    },
    # participation, and the end of a round
    "mezo": {"algorithm": {"name": "mezo", "perturbations": 2}, "participation": {"clients": 1}},
    "fedkseed": {"algorithm": {"name": "fedkseed", "perturbations": 3, "local_steps": 2, "pool": 64}},
    "fedkseed-pro": {"algorithm": {"name": "fedkseed-pro", "perturbations": 3, "local_steps": 2, "pool": 64}},
    "fedscalar": {
        "participation": LATE,
        "compute": WORK,
        "algorithm": {"name": "fedscalar", "perturbations": 2, "local_steps": 3},
    },
    "digits-fedscalar-shared": {
        "task": DIGITS,
        "algorithm": {"name": "fedscalar-shared", "perturbations": 3, "local_steps": 2, "aggregation": "median"},
    },
    "feedsign": {"participation": LATE, "compute": WORK, "algorithm": {"name": "feedsign", "perturbations": 5}},
    "zo-signsgd": {"algorithm": {"name": "zo-signsgd", "perturbations": 3, "local_steps": 2}},
    "zo-adam": LAGGING | {"lag": LAG, "algorithm": {"name": "zo-adam", "perturbations": 3, "local_steps": 2}},
    "zo-yogi": LAGGING | {"lag": LAG, "algorithm": {"name": "zo-yogi", "perturbations": 3, "local_steps": 2}},
    "zo-rmsprop": LAGGING | {"lag": LAG, "algorithm": {"name": "zo-rmsprop", "perturbations": 3, "local_steps": 2}},
    "r-adazo": LAGGING | {"lag": LAG, "algorithm": {"name": "r-adazo", "perturbations": 3, "local_steps": 2}},
    "fzoo": LAGGING | {"lag": LAG, "algorithm": {"name": "fzoo", "perturbations": 3, "local_steps": 2}},
    "meazo": LAGGING | {"lag": LAG, "algorithm": {"name": "meazo", "perturbations": 3}},
    "hizoo": LAGGING | {"lag": LAG, "algorithm": {"name": "hizoo", "perturbations": 3, "alpha": 0.01}},
    "hiso-variants": LAGGING | {"lag": LAG, "algorithm": HISO_VARIANTS},
    "hiso-curvature": LAGGING | {"lag": LAG, "algorithm": HISO | {"estimator": "curvature", "precision": "bfloat16"}},
    "integer": {"algorithm": {"name": "decomfl", "perturbations": 3, "local_steps": 2, "arithmetic": "integer"}},
    "private": {
        "algorithm": {"name": "decomfl", "perturbations": 3, "arithmetic": "integer", "precision": "int32"},
        "privacy": {"clip": 100_000, "noise_multiplier": 2.0, "delta": 0.01},
    },
    "private-poisson": {
        "algorithm": {"name": "decomfl", "perturbations": 3, "arithmetic": "integer", "precision": "int32"},
        "participation": ALL | {"cohort": 1, "selection": {"policy": "poisson"}},
        "privacy": {"clip": 100_000, "noise_multiplier": 2.0, "delta": 0.01, "cohorts": "secret"},
    },
    "private-secure-dense": {
        "algorithm": FEDAVG | {"compression": "fixed-point", "weighting": "uniform"},
        "participation": ALL | {"cohort": 4, "quorum": 2, "deadline_s": 5.0},
        "secure_aggregation": {},
        "privacy": {"mechanism": "distributed", "clip": 100_000, "noise_multiplier": 0.5, "delta": 0.01},
        "faults": [{"fault": "drop", "probability": 0.05}],
    },
    "stream": {
        "participation": {"clients": 6, "cohort": 3, "mode": "stream"},
        "compute": WORK,
        "algorithm": {"name": "decomfl", "perturbations": 3, "arithmetic": "integer"},
    },
    "null": {"task": NULL},
    "zero": {"task": NULL | {"losses": "zero"}, "algorithm": FEDAVG},
    "without-verify": {"verify": False},
    "verify-seldom": {"verify_every": 4},
    "everybody": {"participation": {"clients": 5}},
    "fraction": {"participation": {"clients": 9, "fraction": 0.4, "quorum": 2}},
    "over-selection": {"participation": {"clients": 8, "cohort": 3, "over_selection": 1.7}, "compute": WORK},
    "deadline": {"participation": TIMED | {"quorum": 3}, "compute": WORK},
    "deadline-learnt": {"participation": TIMED | {"deadline": {"quantile": 0.5, "window": 10}}, "compute": WORK},
    "late": {"participation": LATE, "compute": WORK},
    "late-dense": {"participation": LATE, "compute": WORK, "algorithm": {"name": "scaffold"}},
    "late-lost": {"participation": LATE, "compute": WORK, "faults": [{"fault": "drop", "probability": 0.2}]},
    "late-replayed": {
        "participation": LATE,
        "compute": WORK | {"replay": 0.02},
        "faults": [{"fault": "drop", "probability": 0.2}, {"fault": "duplicate", "probability": 0.2}],
    },
    "buffer": {"participation": LATE | {"buffer": 2}, "compute": WORK},
    "buffer-dense": {"participation": LATE | {"buffer": 2}, "compute": WORK, "algorithm": FEDAVG},
    "rarest": {"participation": ALL | {"selection": {"policy": "rarest"}}},
    "poisson": {"participation": ALL | {"selection": {"policy": "poisson"}, "quorum": 2}},
    "power-of-choice": {"participation": ALL | {"selection": {"policy": "power-of-choice", "candidates": 2}}},
    "oort": {
        "participation": TIMED | {"selection": {"policy": "oort", "window": 2, "pace": 0.2}},
        "compute": WORK,
        "faults": [{"fault": "straggler", "fraction": 0.3, "factor": 5}],
        "stop": {"rounds": 25},
    },
    "stop-bytes": {"stop": {"rounds": 100, "bytes": 2000}},
    "shared-links": {"network": LINKS | {"shared_up_mbps": 0.05, "shared_down_mbps": 0.1}},
    "slow-clients": {
        "compute": WORK | {"replay": 0.01, "slowness": {"distribution": "uniform", "low": 0.5, "high": 3}}
    },
    "another-seed": {"seed": 77},
    # clients that lag
    "lag-replay": LAGGING,
    "lag-evaluator": LAGGING | {"lag": LAG},
    "lag-peer": LAGGING | {"lag": LAG | {"source": "peer"}},
    "lag-bytes": LAGGING | {"lag": {"snapshot_after_bytes": 150, "chunk_bytes": 64}, "algorithm": HISO},
    "lag-cheapest": LAGGING
    | {
        "task": {"name": "quadratic", "dimension": 8},
        "lag": {"snapshot_after_bytes": "snapshot", "chunk_bytes": 64, "source": "peer"},
        "participation": {"clients": 20, "cohort": 2, "deadline_s": 2.0, "late": {"max_staleness": 2}},
        "stop": {"rounds": 60},
    },
    "lag-seconds": LAGGING | {"lag": {"snapshot_after_s": 0.05}, "compute": {"replay": 0.01}},
    "lag-lossy": LAGGING | {"lag": LAG | {"source": "peer"}, "faults": [{"fault": "drop", "probability": 0.2}]},
}

EVERYTHING: Document = FAULTY | {
    "algorithm": DECOMFL,
    "participation": LATE,
    "lag": LAG | {"source": "peer"},
    "faults": [{"fault": "drop", "probability": 0.1}, {"fault": "churn", "stays": AWAY, "away": AWAY}],
    "stop": {"rounds": 25},
}
HISO_CHURN: Document = FAULTY | {
    "participation": {"clients": 12, "cohort": 4, "over_selection": 1.25, "quorum": 2, "deadline_s": 0.6},
    "lag": {"snapshot_after_commits": 12, "chunk_bytes": 256, "window": 2},
    "faults": [
        {"fault": "straggler", "fraction": 0.2, "factor": {"distribution": "lognormal", "median": 8, "sigma": 0.5}},
        {"fault": "dropout", "probability": 0.1, "when": "before-training"},
        {"fault": "dropout", "probability": 0.1, "when": "after-training"},
        {"fault": "drop", "probability": 0.05},
        {"fault": "late-joiners", "fraction": 0.2, "at_round": 5, "spread_rounds": 30},
        {"fault": "churn", "fraction": 0.5, "stays": AWAY, "away": AWAY, "returns": "without-state"},
        {"fault": "crash", "fraction": 0.2, "at_round": 5, "for_rounds": 15, "every_rounds": 25, "probability": 0.7},
    ],
    "stop": {"rounds": 50},
}
"""`stress/hiso-churn`, smaller."""
DENSELY: Document = FAULTY | {
    "algorithm": {"name": "scaffold", "compression": "fedcom"},
    "faults": [{"fault": "duplicate", "probability": 0.3}, {"fault": "crash", "probability": 0.3, "for_rounds": 2}],
}
HISO_FAULTS: Document = HISO_CHURN | {
    "participation": {"clients": 12, "cohort": 5, "over_selection": 1.25, "quorum": 2, "deadline_s": 0.6},
    "algorithm": HISO | {"aggregation": "median"},
    "lag": LAG | {"source": "peer"},
    "faults": [
        *HISO_CHURN["faults"],
        {"fault": "duplicate", "probability": 0.1},
        {"fault": "reorder", "probability": 0.1, "window_s": 0.5},
        {"fault": "corrupt", "probability": 0.03},
        {"fault": "partition", "fraction": 0.2, "at_round": 10, "for_rounds": 6},
        {"fault": "server-crash", "at_round": 8, "every_rounds": 12, "phase": "gathering", "down_s": 0.5},
        {"fault": "byzantine", "fraction": 0.2, "attack": "sign-flip"},
    ],
    "stop": {"rounds": 40},
}
"""`stress/everything` with HiSo, smaller."""
TORCH: Document = {"task": DIGITS, "algorithm": FEDAVG, "stop": {"rounds": 4}}
WHOLE: Document = {"name": "decomfl", "perturbations": 3, "local_steps": 2, "arithmetic": "integer"}
GOSSIP: Document = {
    "algorithm": WHOLE,
    "participation": {"clients": 9},
    "topology": {"kind": "gossip", "graph": "torus", "repair_rounds": 20},
    "network": {"latency": {"distribution": "lognormal", "median": 0.2, "sigma": 0.5}},
    "compute": WORK,
    "faults": [
        {"fault": "drop", "probability": 0.3},
        {"fault": "partition", "clients": [0, 1, 2], "at_s": 3, "for_s": 4},
    ],
    "stop": {"rounds": 8},
}
SECURE: Document = {
    "algorithm": WHOLE | {"precision": "int32"},
    "participation": {"clients": 8, "cohort": 5, "quorum": 2, "deadline_s": 10.0},
    "secure_aggregation": {"threshold": 0.5},
    "compute": WORK,
    "faults": [
        {"fault": "drop", "probability": 0.03},
        {"fault": "dropout", "probability": 0.1, "when": "after-training"},
    ],
    "stop": {"rounds": 6},
}
TABLE: Document = {
    "task": {
        "name": "table",
        "file": "people.csv",
        "target": "city",
        "hidden": [4],
        "owner": "person",
    },
    "partition": {"kind": "natural"},
    "participation": {"clients": 4, "cohort": 2},
    "stop": {"rounds": 4},
}
OWN: Document = {
    "task": {"name": "torch", "network": "own:build", "data": "own:load", "batch_size": 8},
    "stop": {"rounds": 4},
}
LANGUAGE: Document = {
    "task": {"name": "language-model", "model": "opt", "data": "sst2", "batch_size": 4},
    "participation": {"clients": 2},
    "stop": {"rounds": 2},
}
HUB: Document = {
    "task": {
        "name": "hugging-face",
        "model": "bert",
        "head": "sequence-classification",
        "dataset": "reviews",
        "columns": {"text": "sentence", "label": "label"},
        "batch_size": 4,
    },
    "participation": {"clients": 2},
    "stop": {"rounds": 2},
}
TEXTS = ("language-model", "hugging-face")
"""The tasks that need `write_texts`."""
STUDY: Document = {
    "variants": {"decomfl": [], "hiso": {"algorithm": HISO}},
    "conditions": {"calm": [], "lossy": {"faults": [{"fault": "drop", "probability": 0.2}]}},
    "seeds": [1, 2],
    "ask": {"against": "decomfl"},
}
"""A study of the base scenario, without its `base`."""


# -- ways to run a scenario in a folder


class Stopper:
    """An observer that stops the run, as Ctrl-C would, after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def round_closed(self, *_: Any, **__: Any) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def alone(file: Path, folder: Path) -> None:
    """Run in this process."""
    import seedbus

    seedbus.run(seedbus.load(file), folder)


def stopped(*rounds: int) -> Way:
    """Run in this process; stop after each of these numbers of rounds and resume."""

    def runs(file: Path, folder: Path) -> None:
        import seedbus

        for count, after in enumerate(rounds):
            try:
                seedbus.run(seedbus.load(file), folder, resume=count > 0, observer=Stopper(after))
            except BaseException as error:
                if type(error).__name__ != "Interrupted":  # raised for Ctrl-C
                    raise
            else:
                raise RuntimeError(f"the run ended before it was stopped the {count + 1}. time")
        seedbus.run(seedbus.load(file), folder, resume=True)

    return runs


def over(transport: str) -> Way:
    """Run with followers on a thread of this process, over ZeroMQ."""

    def runs(file: Path, folder: Path) -> None:
        import seedbus

        seedbus.run(seedbus.load(file, [f"transport={transport}"]), folder)

    return runs


def plugged_in(file: Path, folder: Path) -> None:
    """Run with worker processes and the plug-in, which this process needs as well to replay the run."""
    from seedbus.plugin import load_plugin

    plugin = file.with_name("own.py")
    load_plugin(plugin)
    workers(2, "--plugin", str(plugin))(file, folder)


def studied(file: Path, folder: Path) -> Document:
    """Make a study of the scenario; return the digest of its table without wall times, and its columns.

    Twelve digits of a number are compared: the last ones of intervals are the processor's.
    """
    base = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({"name": "guard", "base": base} | STUDY), encoding="utf-8")
    printed = _finish(_command("study", file, "--out", str(folder), "--format", "csv"))
    rows = list(csv.DictReader(printed.decode().splitlines()))
    timeless = [{name: _rounded(cell) for name, cell in row.items() if not name.startswith("wall_s")} for row in rows]
    digest = hashlib.sha256(json.dumps(timeless).encode()).hexdigest()
    return {"losses": "numpy", "csv": digest[:16], "rows": len(rows), "columns": list(rows[0])}


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.12g}"
    except ValueError:
        return cell


def keys(file: Path, folder: Path) -> Document:
    """Run in this process, and return the names in the results: what programs of users look for."""
    alone(file, folder)
    summary = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "losses": "numpy",
        "results": sorted(set(_paths(summary))),
        "metrics": sorted({path for line in lines for path in _paths(json.loads(line))}),
    }


def _paths(value: Any, before: str = "") -> Iterator[str]:
    """Yield the path of each value that has no parts: a.b.c; elements of lists share theirs: a[].b."""
    parts = [(f"{before}.{name}", each) for name, each in value.items()] if isinstance(value, dict) else []
    parts += [(f"{before}[]", each) for each in value] if isinstance(value, list) else []
    for path, each in parts:
        yield from _paths(each, path.removeprefix("."))
    if not parts:
        yield before


def workers(count: int, *options: str) -> Way:
    """Run with worker processes, through the command line."""

    def runs(file: Path, folder: Path) -> None:
        _finish(_command("run", file, "--out", str(folder), "--workers", str(count), *options))

    return runs


KILLS = 5
"""How often a run is begun until it is killed: on a busy machine it may end before this process notices its rounds."""


def killed(count: int, rounds: int) -> Way:
    """Run with worker processes; kill the server after so many rounds and resume."""

    def runs(file: Path, folder: Path) -> None:
        log = folder / "log.jsonl"

        def is_under_way() -> bool:
            return log.is_file() and log.read_text(encoding="utf-8").count('"event": "round"') >= rounds

        for _ in range(KILLS):
            process = _command("run", file, "--out", str(folder), "--workers", str(count))
            while process.poll() is None and not is_under_way():
                time.sleep(0.01)
            process.kill()
            _, errors = process.communicate()
            if process.returncode == -signal.SIGKILL:
                break
            if process.returncode:
                raise RuntimeError(f"exit code {process.returncode}: {errors.decode()}")
            shutil.rmtree(folder)
        else:
            raise RuntimeError(f"{KILLS} times the run ended before it was killed")
        _finish(_command("run", None, "--resume", str(folder), "--workers", str(count)))

    return runs


def _command(name: str, file: Path | None, *options: str) -> subprocess.Popen[bytes]:
    given = [] if file is None else [str(file)]
    form = [] if "--format" in options else ["--format", "json"]
    command = [sys.executable, "-m", "seedbus", name, *given, *options, "--quiet", *form]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _finish(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for a command to end well, and return what it printed."""
    try:
        printed, errors = process.communicate()
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {errors.decode()}")
    return printed


def runs() -> dict[str, tuple[Document, Way]]:
    """Return all runs by name."""
    found: dict[str, tuple[Document, Way]] = {}
    for name, algorithm in (SCALAR | DENSE).items():
        found[name] = {"algorithm": algorithm}, alone
    for name, changes in OTHERS.items():
        found[name] = changes, alone
    for name, line in FAULTS.items():
        found[f"fault-{name}"] = FAULTY | {"faults": [{"fault": _kind(name)} | line]}, alone
    for name, what in (("everything", EVERYTHING), ("hiso-churn", HISO_CHURN), ("densely", DENSELY)):
        found[name] = what, alone
        found[f"{name}-stopped"] = what, stopped(4, 5)
        for transport in ("inproc", "ipc", "tcp"):
            found[f"{name}-{transport}"] = what, over(transport)
        found[f"{name}-workers"] = what, workers(2)
    found["everything-workers-ipc"] = EVERYTHING, workers(2, "--transport", "ipc")
    found["hiso-churn-killed"] = HISO_CHURN | {"stop": {"rounds": 400}}, killed(2, 20)
    found["everything-killed"] = EVERYTHING | {"stop": {"rounds": 400}}, killed(2, 20)
    found["torch-workers"] = TORCH, workers(2)
    for name, what in (("table", TABLE), ("language-model", LANGUAGE), ("hugging-face", HUB), ("gossip", GOSSIP)):
        found[name] = what, alone
    found["gossip-stopped"] = GOSSIP, stopped(3)
    found["secure"], found["secure-workers"] = (SECURE, alone), (SECURE, workers(2))
    found["own-network-workers"] = OWN, plugged_in
    for name, way in (("", alone), ("-tcp", over("tcp")), ("-workers", workers(2))):
        found[f"hiso-faults{name}"] = HISO_FAULTS, way
    found["study"] = {"participation": TIMED, "stop": {"rounds": 8}}, studied
    for name, what in (("everything", EVERYTHING), ("densely", DENSELY), ("gossip", GOSSIP), ("secure", SECURE)):
        found[f"keys-{name}"] = what, keys
    return dict(sorted(found.items()))


def _kind(name: str) -> str:
    """The fault of a run's name: server-crash for server-crash-asking, crash for crash-bare."""
    kinds = ("server-crash", "byzantine", "churn", "colluding", "crash", "dropout", "straggler", "trace")
    return next((kind for kind in kinds if name.startswith(kind)), name)
