"""The cost of a round as the number of clients grows: it should depend on the cohort only.

Rounds of the null task with a cohort of fifty, all in memory, while clients join and leave. Ratios are to the run with
the fewest clients; they are not exactly one, because a client that is asked for the first time is sent the whole log.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from rows import Row

from seedbus.agents.observer import NullObserver
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

COHORT = 50
LONG = {"distribution": "exponential", "mean": 36_000.0}
CHURN = {"fault": "churn", "stays": LONG, "away": LONG, "initially": 0.5}
DIURNAL = {"fault": "diurnal", "low": 0.2, "zones": 24}
REPLACEMENT = {"fault": "replacement", "active": 500, "every_rounds": 20}
WORLDS: dict[str, list[dict[str, Any]]] = {
    "everybody": [],
    "churn": [CHURN],
    "diurnal": [DIURNAL],
    "replacement": [REPLACEMENT],
    "all three": [CHURN, DIURNAL, REPLACEMENT | {"fraction": 0.5}],
}


class Watch(NullObserver):
    """Records the CPU time at which rounds close."""

    def __init__(self) -> None:
        self.closed_s: list[float] = []

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.closed_s.append(time.process_time())


def measure(clients: int, faults: list[dict[str, Any]], rounds: int) -> dict[str, float]:
    """Return CPU milliseconds of the start and of a round (median and mean), joins, and peak memory so far in MB."""
    document = {
        "name": "scale",
        "task": {"name": "null"},
        "algorithm": {"name": "decomfl", "perturbations": 5},
        "participation": {"clients": clients, "cohort": COHORT},
        "network": {"latency": {"distribution": "exponential", "mean": 0.1}},
        "faults": faults,
        "evaluation": {"every": 10},
        "stop": {"rounds": rounds},
    }
    watch, began_s = Watch(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        traffic = run(validate(document, "scale"), Path(folder) / "run", observer=watch).summary["traffic"]
    times = [1e3 * (after - before) for before, after in pairwise(watch.closed_s)]
    return {
        "clients": clients,
        "start_ms": 1e3 * (watch.closed_s[0] - began_s),
        "round_ms": statistics.median(times),
        "mean_ms": statistics.mean(times),
        "joins": traffic["by_kind"].get("join", {}).get("messages", 0),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


AIM = 1.2  # times a round of fewer members, of whom each cohort is new too


def rows(is_quick: bool) -> Iterator[Row]:
    """Measure CPU time.

    Of a hundred members half are asked in each round, so they have missed almost nothing. Of many thousands each one
    asked is new and is sent the whole log. This, and not their number, makes the first of the two steps.
    """
    rounds, turns, sizes = 40 if is_quick else 100, 2 if is_quick else 3, (100, 10_000, 100_000)
    measure(COHORT * 20, [], 3)
    best = {size: min(measure(size, [], rounds)["mean_ms"] for _ in range(turns)) for size in sizes}
    few, many, most = sizes
    yield Row(f"members: a round of {many:,}", "ms", best[many], best[few], f"of {few:,}")
    yield Row(f"members: a round of {most:,}", "ms", best[most], best[many], f"of {many:,}", aim=AIM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    measure(COHORT * 20, [], 3)  # imports and compilation are not part of a round
    found = {
        name: [measure(clients, faults, arguments.rounds) for clients in sorted(arguments.clients)]
        for name, faults in WORLDS.items()
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{arguments.rounds} rounds of the null task, a cohort of {COHORT}; CPU milliseconds")
    for name, lines in found.items():
        for line in lines:
            ratio = line["mean_ms"] / lines[0]["mean_ms"]
            print(
                f"{name:12} {line['clients']:8,} clients   a round {line['round_ms']:6.1f} (median)"
                f" {line['mean_ms']:6.1f} (mean) {ratio:5.2f} times   start {line['start_ms']:7.0f}"
                f"   {line['joins']:5} joins   {line['rss_mb']:5.0f} MB at most"
            )


if __name__ == "__main__":
    main()
