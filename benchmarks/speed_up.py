"""The rounds in which two runs reach what both reach, and the rounds in which each reaches the other's best.

    python benchmarks/speed_up.py runs/lm-minilm-head-decomfl-0.3-s0 runs/lm-minilm-head-hiso-0.1-s0

Table 2 of HiSo (arXiv:2506.02370) counts the rounds to the first run's best accuracy alone, which favours the other:
a run is at its best late. Each evaluation counts by itself; a moving average would add its own lag to both.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from seedbus.studies.study.runs import Run


def rounds_to(run: Run, target: float) -> int | None:
    """Return the round of a run's first evaluation with an accuracy of at least the target; None without such."""
    values = zip(run.rounds, run.values("accuracy"), strict=True)
    return next((round for round, value in values if value >= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("others", type=Path, nargs="+")
    options = parser.parse_args()
    first = Run.read(options.first)
    for other in map(Run.read, options.others):
        bests = {"first's best": max(first.values("accuracy")), "other's best": max(other.values("accuracy"))}
        print(f"{options.first} beside {other.folder}")
        for what, target in {**bests, "what both reach": min(bests.values())}.items():
            rounds = [rounds_to(run, target) for run in (first, other)]
            said = " and ".join("never" if each is None else f"{each} rounds" for each in rounds)
            ratio = f", {rounds[0] / rounds[1]:.2f} times as fast" if rounds[0] and rounds[1] else ""
            print(f"  {target:.2%}, {what}: {said}{ratio}")


if __name__ == "__main__":
    main()
