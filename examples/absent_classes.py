"""Clients with some classes are seldom there: what does each algorithm make of it, and for how many bytes?

    python examples/absent_classes.py

Twenty clients hold two classes of handwritten digits each. One whose lower class is 0 answers 5% of the rounds, one
whose lower class is 8 answers 89%, and those between in proportion. FedAvg hears the higher digits most. MIFA's
server keeps the last update of every client and takes the mean of all; SCAFFOLD corrects each client's steps, for
twice the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import seedbus

CLIENTS, ROUNDS = 20, 150
LEAST = 0.05
"""Of the rounds, the share that a client answers whose lower class is 0."""


def absences(scenario: seedbus.Scenario) -> list[dict[str, Any]]:
    """Return a fault for each lower class: its clients drop out of a round, with a probability of their own."""
    division = scenario.task.division(seed=scenario.seed, clients=CLIENTS, partition=scenario.partition)
    lowest = [int(np.asarray(division.labels)[part].min()) for part in division.parts]
    return [
        {
            "fault": "dropout",
            "clients": [client for client in range(CLIENTS) if lowest[client] == digit],
            "probability": (1 - LEAST) * (1 - digit / 9),
        }
        for digit in sorted(set(lowest))
    ]


def scenario_of(algorithm: str) -> seedbus.Scenario:
    fields: dict[str, Any] = {
        "name": f"absent-{algorithm}",
        "task": {"name": "digits", "model": "cnn", "batch_size": 16},
        "partition": {"kind": "pathological", "classes": 2},
        "algorithm": {"name": algorithm, "local_steps": 5, "learning_rate": 0.05, "weighting": "uniform"},
        "participation": {"clients": CLIENTS, "deadline_s": 1.0},
        "evaluation": {"every": 10},
        "stop": {"rounds": ROUNDS},
    }
    return seedbus.load(fields | {"faults": absences(seedbus.load(fields))})


def main() -> None:
    print(f"{'algorithm':<10}{'50 rounds':>11}{'100 rounds':>12}{'150 rounds':>12}{'MB up':>8}{'MB down':>9}")
    for algorithm in ("fedavg", "mifa", "scaffold"):
        results = seedbus.run(scenario_of(algorithm))
        accuracy = results.metrics.set_index("version")["accuracy"]
        traffic = results.summary["traffic"]
        reached = "".join(f"{accuracy[rounds]:>{width}.1%}" for rounds, width in ((50, 11), (100, 12), (150, 12)))
        up, down = (traffic[way]["bytes"] / 1e6 for way in ("up", "down"))
        print(f"{algorithm:<10}{reached}{up:>8.2f}{down:>9.2f}")


if __name__ == "__main__":
    main()
