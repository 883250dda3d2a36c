"""Accuracy and traffic of DeComFL and HiSo when clients drop out, and when they lag.

    python benchmarks/conditions.py [digits|fashion-mnist] [--rounds 100] [--seeds 1] [--workers 2]

Dropout: this share of the clients asked never answers. Lag: five of N clients are asked in each round, so on average a
client misses N/5 − 1 rounds before it is asked again.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ALGORITHMS: dict[str, dict[str, Any]] = {
    "DeComFL": {"name": "decomfl", "momentum": 0.5, "dampening": False},
    "HiSo": {"name": "hiso"},
}
TASKS: dict[str, dict[str, Any]] = {
    "digits": {"task": {"name": "digits", "model": "softmax"}, "rates": (0.01, 0.015), "perturbations": 20},
    "fashion-mnist": {
        "task": {"name": "fashion-mnist", "model": "mnist-cnn"},
        "rates": (0.002, 0.003),
        "perturbations": 20,
    },
}
DROPOUT = (0.0, 0.1, 0.3, 0.5)
LAG = {1: 10, 10: 55, 100: 505}  # mean lag: clients


def scenario(task: str, algorithm: str, rounds: int, seed: int, *, dropout: float = 0.0, clients: int = 50) -> Any:
    """Return the scenario of a run under one condition."""
    from seedbus.scenarios.schema.loading import validate

    setting = TASKS[task]
    rate = setting["rates"][list(ALGORITHMS).index(algorithm)]
    faults = [{"fault": "dropout", "probability": dropout, "when": "before-training"}] if dropout else []
    document = {
        "name": "condition",
        "seed": seed,
        "task": setting["task"],
        "algorithm": ALGORITHMS[algorithm] | {"perturbations": setting["perturbations"], "learning_rate": rate},
        "participation": {"clients": clients, "cohort": 5, "deadline_s": 5.0},
        "faults": faults,
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }
    return validate(document, "a condition")


def measured(job: tuple[str, str, int, int, dict[str, Any]]) -> tuple[float, float, float]:
    """Return a run's final accuracy, kilobytes per round, and the share of these bytes that is catch-up."""
    from seedbus.scenarios.running.run import run

    task, algorithm, rounds, seed, condition = job
    with tempfile.TemporaryDirectory() as folder:
        summary = run(scenario(task, algorithm, rounds, seed, **condition), Path(folder) / "run").summary
    traffic = summary["traffic"]
    return summary["metrics"]["accuracy"], traffic["bytes"] / rounds / 1000, traffic["catchup_share"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", nargs="?", default="digits", choices=TASKS)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    conditions: list[tuple[str, dict[str, Any]]] = [(f"dropout {p:.0%}", {"dropout": p}) for p in DROPOUT]
    conditions += [(f"mean lag {lag} ({clients} clients)", {"clients": clients}) for lag, clients in LAG.items()]
    seeds = range(1, asked.seeds + 1)
    jobs = [
        (asked.task, algorithm, asked.rounds, seed, condition)
        for (_, condition), algorithm, seed in itertools.product(conditions, ALGORITHMS, seeds)
    ]
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        found = iter(list(pool.map(measured, jobs)))
    print(f"{asked.task}, {asked.rounds} rounds, 5 clients asked a round, {asked.seeds} seeds\n")
    print("| condition | " + " | ".join(f"{name}: accuracy | kB a round | catch-up" for name in ALGORITHMS) + " |")
    print("|---|" + "---|" * 3 * len(ALGORITHMS))
    for name, _ in conditions:
        cells = []
        for _ in ALGORITHMS:
            runs = [next(found) for _ in seeds]
            accuracy, kilobytes, share = (statistics.fmean(column) for column in zip(*runs, strict=True))
            spread = max(a for a, *_ in runs) - min(a for a, *_ in runs)
            cells.append(f"{accuracy:.1%} ± {spread / 2:.1%} | {kilobytes:.2f} | {share:.0%}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
