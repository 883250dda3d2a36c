"""Runs without a server (docs/gossip.md) beside one with a server: accuracy, and the bytes that a node sends.

python benchmarks/gossip.py [--rounds 100]     digits, sixteen nodes, three seeds
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

SEEDS = (1, 2, 3)
NODES = 16
LOSSES = [
    {"fault": "drop", "probability": 0.3},
    {"fault": "partition", "clients": [0, 1, 2, 3], "at_s": 30, "for_s": 40},
]
GRAPHS = {graph: {"topology": {"kind": "gossip", "graph": graph}} for graph in ("ring", "torus", "regular", "complete")}


def digits(seed: int, rounds: int, fields: dict[str, Any]) -> Scenario:
    """Return a scenario in which each round asks all clients, or each node makes a step."""
    base = {
        "name": "digits",
        "seed": seed,
        "task": {"name": "digits", "model": "softmax"},
        "partition": {"kind": "dirichlet", "alpha": 1.0},
        "algorithm": {"name": "decomfl", "arithmetic": "integer", "perturbations": 10, "learning_rate": 0.05},
        "participation": {"clients": NODES},
        "network": {"latency": 0.05},
        "evaluation": {"every": 10},
        "stop": {"rounds": rounds},
        "verify": True,
    }
    return Scenario.model_validate(base | fields)


def row(name: str, rounds: int, fields: dict[str, Any]) -> None:
    """Print a row: accuracy after the last round for each seed; and means of them, of bytes and of lacking commits."""
    found = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            results = run(digits(seed, rounds, fields), Path(folder) / "run")
        lines, traffic = results.metrics, results.summary["traffic"]
        assert not results.summary["refusals"].get("diverged"), results.summary["refusals"]
        lacking = float(lines["lacking"].max()) if "lacking" in lines else 0.0
        accuracy = 100 * float(lines.iloc[-1]["accuracy"])
        found.append((accuracy, traffic["bytes_per_client"] / 1e3, 100 * traffic["catchup_share"], lacking))
    accuracies = "".join(f"{each[0]:8.2f} %" for each in found)
    mean, sent, catch_up, lacking = (fmean(each) for each in zip(*found, strict=True))
    print(f"{name:22}{accuracies}{mean:8.2f} %{sent:11.1f} kB{catch_up:9.1f} %{lacking:10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    seeds = "".join(f"{f'seed {seed}':>10}" for seed in SEEDS)
    print(f"digits, {NODES} nodes{'':6}{seeds}{'mean':>10}{'per node':>14}{'catch-up':>11}{'lacking':>10}")
    rows: dict[str, dict[str, Any]] = {"server": {}} | GRAPHS
    for name, fields in rows.items():
        row(name, rounds, fields)
    print("… 30% of all messages lost, nodes 0 to 3 cut off from second 30 to 70")
    for name, fields in rows.items():
        deadline = {} if "topology" in fields else {"participation": {"clients": NODES, "deadline_s": 1}}
        row(name, rounds, fields | deadline | {"faults": LOSSES})


if __name__ == "__main__":
    main()
