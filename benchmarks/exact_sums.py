"""Exact sums (docs/exact-sums.md): accuracy beside float32, and the bytes that catching up takes by lag.

    python benchmarks/exact_sums.py accuracy [--rounds 300]     digits, three seeds: float, integer, a pool of seeds
    python benchmarks/exact_sums.py catch-up [--rounds 10000]   bytes against lag, counted on the commits of real runs

Rates of replay in both arithmetics are rows of `python benchmarks/replay.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import msgpack

from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import history
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

SEEDS = (1, 2, 3)
LAGS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
POOLS = (1024, 4096)
MODELS = {"MNIST CNN": 28_938, "Fashion CNN": 1_206_590, "OPT-125M": 125_239_296}
COHORT, PAIRS = 5, 10


def digits(algorithm: dict[str, Any], seed: int, rounds: int) -> Scenario:
    """Return DeComFL's quickstart without losses and momentum: 50 clients, 5 a round, Dirichlet(1)."""
    return Scenario.model_validate(
        {
            "name": "digits",
            "seed": seed,
            "task": {"name": "digits", "model": "softmax"},
            "partition": {"kind": "dirichlet", "alpha": 1.0},
            "algorithm": {"perturbations": 20, "learning_rate": 0.02, **algorithm},
            "participation": {"clients": 50, "cohort": 5},
            "evaluation": {"every": rounds},
            "stop": {"rounds": rounds},
        }
    )


def accuracy(rounds: int) -> None:
    """Print accuracy and loss after the last round, for each seed and their mean."""
    kinds: dict[str, dict[str, Any]] = {}
    for directions in ("gaussian", "rademacher"):
        decomfl = {"name": "decomfl", "directions": directions}
        kinds[f"DeComFL, {directions}, float32"] = decomfl
        kinds[f"DeComFL, {directions}, integer"] = decomfl | {"arithmetic": "integer"}
    for pool in POOLS:
        kinds[f"FedKSeed, S {pool:,}, gaussian"] = {"name": "fedkseed", "pool": pool, "estimator": "forward"}
    print(f"digits, {rounds} rounds{'':20}" + "".join(f"{f'seed {seed}':>19}" for seed in SEEDS) + f"{'mean':>19}")
    for name, algorithm in kinds.items():
        found = []
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                last = run(digits(algorithm, seed, rounds), Path(folder) / "run").metrics.iloc[-1]
            found.append((100 * float(last["accuracy"]), float(last["loss"])))
        cells = [*found, (fmean(each for each, _ in found), fmean(each for _, each in found))]
        print(f"{name:38}" + "".join(f"{percent:8.2f} % {loss:8.5f}" for percent, loss in cells), flush=True)


def commits_of(algorithm: dict[str, Any], rounds: int) -> tuple[Any, list[Any]]:
    """Return an algorithm and the commits of a real run of it: its journal, read back."""
    what = Scenario.model_validate(
        {
            "name": "lag",
            "task": {"name": "quadratic", "dimension": 1000},
            "algorithm": {"perturbations": PAIRS, "learning_rate": 0.01, **algorithm},
            "participation": {"clients": COHORT, "cohort": COHORT},
            "evaluation": {"every": rounds},
            "stop": {"rounds": rounds},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        run(what, Path(folder) / "run")
        with closing(Journal.open(Path(folder) / "run", for_writing=False)) as journal:
            return what.algorithm, list(history(what.algorithm, journal))


def sizes(algorithm: Any, commits: list[Any], lags: Iterable[int]) -> list[int]:
    """Return the bytes of what a client is sent that missed the last commits, as the ledger counts them."""
    return [len(msgpack.packb(algorithm.pack_commits(commits[-lag:]).body)) for lag in lags]


def catch_up(rounds: int) -> None:
    """Print bytes against lag, what a snapshot has, and where one takes fewer."""
    lags = [lag for lag in LAGS if lag <= rounds]
    kinds: dict[str, dict[str, Any]] = {"DeComFL, float32": {"name": "decomfl"}}
    kinds["DeComFL, integer"] = {"name": "decomfl", "arithmetic": "integer"}
    for pool in POOLS:
        kinds[f"FedKSeed, S {pool:,}"] = {"name": "fedkseed", "pool": pool}
    table = {name: sizes(*commits_of(algorithm, rounds), lags) for name, algorithm in kinds.items()}
    print(f"K·P {PAIRS}, {COHORT} clients a round; bytes by lag" + "".join(f"{lag:>10,}" for lag in lags))
    for name, row in table.items():
        print(f"{name:42}" + "".join(f"{size:>10,}" for size in row))
    print()
    for model, dimension in MODELS.items():
        where = f"a snapshot of {model}, d {dimension:,}"
        print(f"{where:42}{4 * dimension:>14,} float32{8 * dimension:>16,} integer")
    print()
    for name, row in table.items():
        width = 4 if "float" in name else 8
        for lag in (100, lags[-1]):
            least = row[lags.index(lag)] // width
            print(f"{name:28} lag {lag:>6,}: a snapshot takes fewer bytes below d = {least:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "catch-up"))
    parser.add_argument("--rounds", type=int, help="default: 300 for accuracy, 10,000 for catch-up")
    arguments = parser.parse_args()
    if arguments.what == "accuracy":
        accuracy(arguments.rounds or 300)
    else:
        catch_up(arguments.rounds or LAGS[-1])


if __name__ == "__main__":
    main()
