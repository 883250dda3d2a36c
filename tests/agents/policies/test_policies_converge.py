"""The losses that policies reach under stragglers, printed from whole runs.

Forty clients whose messages take 0.4 s in the median and much longer now and then. `python -m pytest -m soak -s`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

TASKS: dict[str, dict[str, Any]] = {
    "quadratic": {
        "task": {"name": "quadratic", "dimension": 200},
        "algorithm": {"name": "decomfl", "perturbations": 5, "learning_rate": 0.02},
    },
    "digits": {
        "task": {"name": "digits", "model": "softmax"},
        "partition": {"kind": "dirichlet", "alpha": 1.0},
        "algorithm": {
            "name": "decomfl",
            "perturbations": 20,
            "learning_rate": 0.01,
            "momentum": 0.5,
            "dampening": False,
        },
    },
}
POLICIES: dict[str, dict[str, Any]] = {
    "wait for all": {"cohort": 8},
    "deadline 1 s": {"cohort": 8, "deadline_s": 1},
    "…, late": {"cohort": 8, "deadline_s": 1, "late": {}},
    "4 of 8, late": {"cohort": 4, "over_selection": 2, "late": {}},
    "buffer 4 of 8": {"cohort": 8, "buffer": 4, "late": {}},
}
SEEDS = (1, 2, 3)


def losses(folder: Path, task: str, policy: str) -> list[float]:
    """The losses after 200 rounds, one for each seed; prints them."""
    final_losses, seconds, sent = list[float](), 0.0, 0
    for seed in SEEDS:
        document = TASKS[task] | {
            "name": "stragglers",
            "seed": seed,
            "participation": {"clients": 40} | POLICIES[policy],
            "network": {"latency": {"distribution": "lognormal", "median": 0.4, "sigma": 1.0}},
            "evaluation": {"every": 200},
            "stop": {"rounds": 200},
        }
        summary = run(validate(document, "a test"), folder / f"{task} {policy} {seed}").summary
        final_losses.append(summary["metrics"]["loss"])
        seconds += summary["simulated_s"] / len(SEEDS)
        sent += summary["traffic"]["bytes"] // len(SEEDS)
    figures = "  ".join(f"{loss:8.4f}" for loss in final_losses)
    print(f"{task:10}{policy:15}loss {figures}   {seconds:4.0f} s simulated  {sent:10,} bytes")
    return final_losses


@pytest.mark.soak
@pytest.mark.parametrize("task", TASKS)
def test_late_terms_are_better_than_discarded_reports_under_stragglers(tmp_path: Path, task: str) -> None:
    of = {policy: losses(tmp_path, task, policy) for policy in POLICIES}
    for late, discarded in zip(of["…, late"], of["deadline 1 s"], strict=True):
        assert late < discarded
    for policy in POLICIES:
        assert max(of[policy]) < 1.6 * min(of["wait for all"]), f"{policy} does not go astray"
