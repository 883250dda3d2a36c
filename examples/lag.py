"""What does lag cost? A client that is asked seldom gets the seeds and scalars of all rounds that it missed.

    python examples/lag.py

Each round asks five clients, of ever more. Whoever is one of many misses more rounds between two of its own.
"""

from __future__ import annotations

from typing import Any

import seedbus


def main() -> None:
    print(f"{'clients':>7}{'median lag':>12}{'bytes down, per plan':>22}{'of that commits':>17}{'accuracy':>10}")
    for clients in (5, 25, 50, 100):
        settings: dict[str, Any] = {"participation.clients": clients, "stop.rounds": 150, "faults": []}
        results = seedbus.run("quickstart", settings=settings | {"evaluation.every": 150})
        traffic = results.summary["traffic"]
        plans, down = traffic["by_kind"]["plan"]["messages"], traffic["down"]["bytes"]
        lag, accuracy = results.summary["lag"]["median"], results.metrics["accuracy"].iloc[-1]
        share = traffic["catchup_bytes"] / down
        print(f"{clients:>7}{lag:>12.0f}{down / plans:>22.0f}{share:>17.1%}{accuracy:>10.1%}")


if __name__ == "__main__":
    main()
