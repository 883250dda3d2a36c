"""Time to replay 100 missed commits of 10 perturbations: dense directions, those of a mask, and those of a low rank.

    python benchmarks/fewer_numbers.py [--rounds 7]

The model is the Fashion CNN (1,206,590 coordinates), on one core. All contenders run in turn in every round, and the
best round of each counts, in this thread's CPU time. A rate is in coordinates of the model per second, times commits.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

from replay import COMMITS, best, ours

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.lozo import LOZO

SHAPES = [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (62, 128), (62,)]
DIMENSION = sum(map(math.prod, SHAPES))


def contenders() -> dict[str, tuple[ScalarOnly, int]]:
    """Return name → the algorithm, and how many coordinates it trains."""
    masks = {f"mask, density {density:g}": density for density in (0.1, 0.01, 0.001)}
    return (
        {"dense": (DeComFL(), DIMENSION)}
        | {name: (DeComFL(), round(density * DIMENSION)) for name, density in masks.items()}
        | {f"lozo, rank {rank}": (LOZO(rank=rank).sized(DIMENSION, SHAPES), DIMENSION) for rank in (1, 2, 8)}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    works: dict[str, tuple[int, Callable[[], object]]] = {
        name: (COMMITS, ours(algorithm, dimension)) for name, (algorithm, dimension) in contenders().items()
    }
    found = best(works, parser.parse_args().rounds)
    for name, seconds in found.items():
        rate = DIMENSION / seconds / 1e6
        sys.stdout.write(f"{name:22} {seconds * COMMITS * 1e3:9.1f} ms  {rate:10,.0f} million coordinates/s\n")


if __name__ == "__main__":
    main()
