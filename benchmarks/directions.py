"""Coordinates of directions per second on one core: the NumPy reference, Numba, and torch's reseeded generator.

    python benchmarks/directions.py [--rounds 7] [--json]

`laplace` is a law as a plug-in would give it. All backends run in turn in every round and the best round of each
counts, so that a busy machine slows all alike. `torch` is `torch.randn` from a generator that is reseeded for each
direction, then `add_`, as in public zeroth-order code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from seedbus.algorithms.directions import Directions, Law, directions, for_blocks, law_of, reference

PERTURBATIONS = 10
COEFFICIENTS = np.linspace(-1, 1, PERTURBATIONS, dtype=np.float32)
RATE, COUNT = np.float32(1e-3), np.float32(PERTURBATIONS)


class Laplace(Law):
    """Double exponential coordinates."""

    law: Literal["laplace"] = "laplace"

    def quantiles(self, probabilities: Any) -> Any:
        return -np.log(2 * (1 - probabilities)) / np.sqrt(2)


@dataclass(frozen=True)
class Case:
    """One kind of work on a vector.

    Attributes:
        name: what is done.
        dimension: coordinates of the vector.
        directions: number of directions that are drawn.
        ours: returns the work of a backend, as a function without arguments.
        torchs: returns the same work in plain torch.
    """

    name: str
    dimension: int
    directions: int
    ours: Callable[[Directions, int], Callable[[], None]]
    torchs: Callable[[int], Callable[[], None]]


def accumulate(source: Directions, dimension: int) -> Callable[[], None]:
    out = np.zeros(dimension, np.float32)

    def work(block: slice) -> None:
        source.accumulate(out[block], COEFFICIENTS, seed=7, step=0, start=block.start)

    return lambda: for_blocks(dimension, work)


def perturb(source: Directions, dimension: int) -> Callable[[], None]:
    x, out = np.ones(dimension, np.float32), np.empty(dimension, np.float32)

    def work(block: slice) -> None:
        source.perturb(out[block], x[block], 1e-3, seed=7, step=0, perturbation=0, start=block.start)

    return lambda: for_blocks(dimension, work)


def replay(commits: int) -> Callable[[Directions, int], Callable[[], None]]:
    """Fold missed commits of P scalars into x, block by block, all commits for each block."""

    def of(source: Directions, dimension: int) -> Callable[[], None]:
        x = np.ones(dimension, np.float32)

        def work(block: slice) -> None:
            delta = np.empty(block.stop - block.start, np.float32)
            for seed in range(commits):
                source.accumulate(delta, COEFFICIENTS, seed=seed, step=0, start=block.start)
                delta /= COUNT
                delta *= RATE
                x[block] -= delta

        return lambda: for_blocks(dimension, work)

    return of


def torch_sum(directions: int) -> Callable[[int], Callable[[], None]]:
    def of(dimension: int) -> Callable[[], None]:
        generator, out, z = torch.Generator(), torch.zeros(dimension), torch.empty(dimension)

        def work() -> None:
            for seed in range(directions):
                generator.manual_seed(seed)
                torch.randn(dimension, generator=generator, out=z)
                out.add_(z, alpha=0.1)

        return work

    return of


CASES = (
    Case("accumulate, P 10, in cache", 16_384, PERTURBATIONS, accumulate, torch_sum(PERTURBATIONS)),
    Case("replay, L 100, P 10, in cache", 16_384, 100 * PERTURBATIONS, replay(100), torch_sum(100 * PERTURBATIONS)),
    Case("accumulate, P 10, in memory", 10_000_000, PERTURBATIONS, accumulate, torch_sum(PERTURBATIONS)),
    Case("perturb, in memory", 10_000_000, 1, perturb, torch_sum(1)),
)


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Return millions of coordinates per second, the best of the rounds; of NumPy, which is slow, one round."""
    laws = (law_of("gaussian"), law_of("rademacher"), Laplace())
    contenders = {f"numba {law.law}": case.ours(directions(law), case.dimension) for law in laws}
    contenders["torch"] = case.torchs(case.dimension)
    slow = {f"numpy {law.law}": case.ours(reference(law), case.dimension) for law in laws}
    for work in contenders.values():
        work()
    repeats = max(1, 2_000_000 // (case.dimension * case.directions))
    best = {name: seconds(work, 1) for name, work in slow.items()}
    for _ in range(rounds):
        for name, work in contenders.items():
            best[name] = min(best.get(name, float("inf")), seconds(work, repeats))
    return {name: case.dimension * case.directions / best[name] / 1e6 for name in sorted(best)}


def seconds(work: Callable[[], None], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - started) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = {case.name: measure(case, arguments.rounds) for case in CASES}
    if arguments.json:
        print(json.dumps({"unit": "million coordinates per second", "figures": figures}, indent=2))
        return
    print(f"{'million coordinates per second, one core':44}{'backend':20}{'M/s':>8}{'× torch':>9}")
    for case, rates in figures.items():
        for backend, rate in rates.items():
            print(f"{case:44}{backend:20}{rate:8.0f}{rate / rates['torch']:9.1f}")


if __name__ == "__main__":
    main()
