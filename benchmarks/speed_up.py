"""The rounds in which runs reach the first run's best accuracy, as in Table 2 of HiSo (arXiv:2506.02370).

    python benchmarks/speed_up.py runs/lm-minilm-head-decomfl-0.3-s0 runs/lm-minilm-head-hiso-0.1-s0

Accuracy is a moving average with factor 0.9 per round. The first run needs the rounds until it first has its best.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from seedbus.agents.server.stopping import averages as moving
from seedbus.scenarios.reporting.compared import Run


def averages(folder: Path) -> list[tuple[int, float]]:
    """Return (round, moving average of accuracy) of a run's evaluations, oldest first."""
    run = Run.read(folder)
    return list(zip(run.rounds, moving(run.lines, "accuracy"), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("others", type=Path, nargs="+")
    options = parser.parse_args()
    best = max(value for _, value in averages(options.first))
    needed = next(round for round, value in averages(options.first) if value == best)
    print(f"{options.first}: {best:.2%} in {needed} rounds")
    for other in options.others:
        met = next((round for round, value in averages(other) if value >= best), None)
        print(f"{other}: " + ("never" if met is None else f"{met} rounds, {needed / max(met, 1):.1f} times as fast"))


if __name__ == "__main__":
    main()
