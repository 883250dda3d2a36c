"""Exact sums (docs/exact-sums.md): accuracy beside float32, and the bytes that catching up takes by lag.

    python benchmarks/exact_sums.py accuracy [--task fashion] [--rounds 300]   float, integer and pools, three seeds
    python benchmarks/exact_sums.py catch-up [--rounds 10000]                  bytes against lag, of real commits

Rates of replay in both arithmetics are rows of `python benchmarks/replay.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import msgpack

from seedbus.agents.seeds import of_directions
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.fedkseed import FedKSeed
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

SEEDS = (1, 2, 3)
LAGS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
POOLS = (1024, 4096)
MODELS = {
    "digits, softmax": 650,
    "Fashion, softmax": 7_850,
    "MNIST CNN": 28_938,
    "Fashion CNN": 1_206_590,
    "OPT-125M": 125_239_296,
}
SNAPSHOTS = {"float32": 4, "int64": 8}
"""Bytes a coordinate."""
COHORT, PAIRS = 5, 10


# Each task's setting without its seed, its rounds and what the kinds of algorithm have of their own.
TASKS: dict[str, dict[str, Any]] = {
    # DeComFL's quickstart without losses and momentum
    "digits": {
        "task": {"name": "digits", "model": "softmax"},
        "algorithm": {"perturbations": 20, "learning_rate": 0.02},
        "participation": {"clients": 50, "cohort": 5},
    },
    # softmax regression on Fashion-MNIST, found by SEEDBUS_DATA
    "fashion": {
        "task": {"name": "fashion-mnist", "model": "softmax"},
        "algorithm": {"perturbations": 20, "learning_rate": 0.003},
        "participation": {"clients": 100, "cohort": 10},
    },
}


def scenario(task: str, algorithm: dict[str, Any], seed: int, rounds: int) -> Scenario:
    """Return a run of the task, divided among its clients by Dirichlet(1), with an algorithm in the task's setting."""
    setting = TASKS[task]
    return Scenario.model_validate(
        {
            "name": task,
            "seed": seed,
            "partition": {"kind": "dirichlet", "alpha": 1.0},
            "evaluation": {"every": rounds},
            "stop": {"rounds": rounds},
            **setting,
            "algorithm": setting["algorithm"] | algorithm,
        }
    )


def accuracy(task: str, rounds: int) -> None:
    """Print accuracy and loss after the last round, for each seed and their mean."""
    kinds: dict[str, dict[str, Any]] = {}
    for directions in ("gaussian", "rademacher"):
        decomfl = {"name": "decomfl", "directions": directions}
        kinds[f"DeComFL, {directions}, float32"] = decomfl
        kinds[f"DeComFL, {directions}, integer"] = decomfl | {"arithmetic": "integer"}
    for pool in POOLS:
        kinds[f"FedKSeed, S {pool:,}, gaussian"] = {"name": "fedkseed", "pool": pool, "estimator": "forward"}
    print(f"{f'{task}, {rounds} rounds':38}" + "".join(f"{f'seed {seed}':>19}" for seed in SEEDS) + f"{'mean':>19}")
    for name, algorithm in kinds.items():
        found = []
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                last = run(scenario(task, algorithm, seed, rounds), Path(folder) / "run").metrics.iloc[-1]
            found.append((100 * float(last["accuracy"]), float(last["loss"])))
        cells = [*found, (fmean(each for each, _ in found), fmean(each for _, each in found))]
        print(f"{name:38}" + "".join(f"{percent:9.2f}% {loss:8.5f}" for percent, loss in cells), flush=True)


def commits_of(algorithm: Any, rounds: int) -> list[Any]:
    """Return the commits of a run of the algorithm on a quadratic, with no bus between clients and server."""
    problem = Quadratic(dimension=100).bind(seed=1, clients=COHORT, partition=Iid())
    replica, state, commits = algorithm.replica(problem.x0()), algorithm.first_state(problem.x0), []
    for round in range(rounds):
        plan = algorithm.plan(round, replica.version, of_directions(1, round))
        objectives = [problem.objective(client, round) for client in range(COHORT)]
        reports = [report for report, _ in algorithm.local_together(replica, [None] * COHORT, plan, objectives)]
        commit, state = algorithm.aggregate(state, plan, dict(enumerate(reports)))
        algorithm.apply(replica, [commit])
        commits.append(commit)
    return commits


def sizes(algorithm: Any, commits: list[Any], lags: Iterable[int]) -> list[int]:
    """Return the bytes of what a client is sent that missed the last commits, as the ledger counts them."""
    return [len(msgpack.packb(algorithm.pack_commits(commits[-lag:]).body)) for lag in lags]


def catch_up(rounds: int) -> None:
    """Print bytes against lag, from which d on they are fewer than a snapshot's, and for how long a lag they are."""
    lags = [lag for lag in LAGS if lag <= rounds]
    settings: dict[str, Any] = {"perturbations": PAIRS, "learning_rate": 0.01}
    kinds: dict[str, Any] = {"DeComFL": DeComFL(arithmetic="integer", **settings)}
    kinds |= {f"FedKSeed, S {pool:,}": FedKSeed(pool=pool, **settings) for pool in POOLS}
    made = {name: (algorithm, commits_of(algorithm, rounds)) for name, algorithm in kinds.items()}
    table = {name: sizes(*each, lags) for name, each in made.items()}
    print(f"{f'K·P {PAIRS}, {COHORT} clients a round; lag':38}" + "".join(f"{lag:>9,}" for lag in lags))
    for name, row in table.items():
        print(f"{name:38}" + "".join(f"{size:>9,}" for size in row))
    print("\nfewer bytes than a snapshot from this d on")
    for name, row in table.items():
        for number, width in SNAPSHOTS.items():
            print(f"{f'{name}, beside {number}':38}" + "".join(f"{size // width + 1:>9,}" for size in row))
    print(f"\n{'':38}" + "".join(f"{model:>18}" for model in MODELS))
    print(f"{'d':38}" + "".join(f"{dimension:>18,}" for dimension in MODELS.values()))
    for number, width in SNAPSHOTS.items():
        print(f"{f'snapshot, {number}, bytes':38}" + "".join(f"{width * each:>18,}" for each in MODELS.values()))
    print("the longest lag with fewer bytes than a snapshot")
    for name, each in made.items():
        for number, width in SNAPSHOTS.items():
            longest = [longest_lag(*each, width * dimension) for dimension in MODELS.values()]
            cells = (f"{lag:,}" if lag < rounds else f"over {rounds:,}" for lag in longest)
            print(f"{f'{name}, beside {number}':38}" + "".join(f"{cell:>18}" for cell in cells))


def longest_lag(algorithm: Any, commits: list[Any], snapshot: int) -> int:
    """Return the longest lag, up to that of all commits, that takes fewer bytes than the snapshot."""
    return bisect_left(
        range(1, len(commits) + 1), True, key=lambda lag: sizes(algorithm, commits, [lag])[0] >= snapshot
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "catch-up"))
    parser.add_argument("--task", choices=tuple(TASKS), default="digits", help="of accuracy; default: digits")
    parser.add_argument("--rounds", type=int, help="default: 300 for accuracy, 10,000 for catch-up")
    arguments = parser.parse_args()
    if arguments.what == "accuracy":
        accuracy(arguments.task, arguments.rounds or 300)
    else:
        catch_up(arguments.rounds or LAGS[-1])


if __name__ == "__main__":
    main()
