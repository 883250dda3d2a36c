"""Scenarios of whole runs in which some feature, policy or fault has to be remembered, for tests of several files."""

from __future__ import annotations

from typing import Any

from worlds import DECOMFL, HISO, lossy, scenario

from seedbus.scenarios.schema.scenario import Scenario

STRAGGLERS = [
    {"fault": "drop", "probability": 0.15},
    {"fault": "delay", "by": {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}, "probability": 0.4},
]
SLOW = {"fault": "straggler", "clients": [0, 1, 2, 3, 4, 5], "factor": 20}
CHANGING = DECOMFL | {
    "perturbations": {0: 3, 5: 5, 10: 2, 14: 4, 20: 2, 25: 3},
    "local_steps": {0: 1, 15: 2},
    "learning_rate": {0: 0.01, 12: 0.005},
}
POLICIES: dict[str, dict[str, Any]] = {
    "late": {"cohort": 4, "deadline_s": 0.5, "late": {"discount": 0.5, "max_staleness": 4}},
    "everything": {
        "cohort": 3,
        "over_selection": 1.5,
        "selection": {"policy": "rarest"},
        "quorum": 3,
        "deadline_s": 3,
        "deadline": {"quantile": 0.8, "factor": 1.2, "window": 20},
        "late": {"max_staleness": 3},
    },
    "scarce": {"cohort": 8, "quorum": 4, "deadline_s": 1.5, "late": {"max_staleness": 3}},
    "buffer": {"cohort": 6, "buffer": 3, "quorum": 3, "deadline_s": 4, "late": {"max_staleness": 5}},
    "buffer of two": {
        "cohort": 8,
        "buffer": 2,
        "quorum": 2,
        "deadline_s": 4,
        "selection": {"policy": "power-of-choice"},
        "late": {"max_staleness": 2},
    },
}


def with_policy(policy: str, **changes: Any) -> Scenario:
    """Return a scenario of ten clients that lag, with schedules of K, P and η."""
    said = {
        "participation": {"clients": 10} | POLICIES[policy],
        "algorithm": CHANGING,
        "faults": [*STRAGGLERS, *([SLOW] if policy == "scarce" else [])],
        "compute": {"evaluation": {"distribution": "exponential", "mean": 0.02}},
        "stop": {"rounds": 80 if policy == "scarce" else 30},
    }
    return scenario(**(said | changes))


STREAMS: dict[str, dict[str, Any]] = {
    "decomfl": {"name": "decomfl", "arithmetic": "integer", "perturbations": 3, "learning_rate": 0.01},
    "fedkseed": {"name": "fedkseed", "pool": 64, "perturbations": 3, "learning_rate": 0.01},
}
ROUGH_LINKS = [
    {"fault": "straggler", "clients": [0, 1], "factor": 20},
    {"fault": "drop", "probability": 0.1},
    {"fault": "duplicate", "probability": 0.2},
    {"fault": "reorder", "probability": 0.2, "window_s": 2},
    {"fault": "delay", "by": {"distribution": "pareto", "minimum": 0.2, "shape": 1.2}, "probability": 0.2},
    {
        "fault": "churn",
        "stays": {"distribution": "exponential", "mean": 8},
        "away": {"distribution": "exponential", "mean": 2},
    },
    {"fault": "server-crash", "at_round": 20, "phase": "gathering", "down_s": 1},
]


def stream(kind: str = "decomfl", **changes: Any) -> Scenario:
    """Return a stream of six clients of eight on bad links, which pull snapshots after a lag of 25 commits."""
    said = {
        "algorithm": STREAMS[kind],
        "participation": {"mode": "stream", "clients": 8, "cohort": 6, "deadline_s": 4},
        "compute": {"evaluation": {"distribution": "exponential", "mean": 0.02}},
        "faults": ROUGH_LINKS,
        "lag": {"snapshot_after_commits": 25},
        "stop": {"rounds": 120},
    }
    return scenario(**(said | changes))


LIARS = [
    {"fault": "byzantine", "attack": "scale", "fraction": 0.25, "probability": 0.5},
    {"fault": "byzantine", "attack": "nan", "clients": [7], "probability": 0.3},
    {"fault": "drop", "probability": 0.2},
]


def robust(**changes: Any) -> Any:
    """Return a scenario whose clients lie, decline, lag and lose messages, and whose rule remembers norms."""
    algorithm = {**HISO, "aggregation": {"rule": "clipped", "window": 5}, "precision": "float16", **changes}
    participation = {"clients": 8, "cohort": 6, "quorum": 3, "deadline_s": 0.5}
    return lossy(algorithm=algorithm, participation=participation, faults=LIARS, stop={"rounds": 30})


MASKABLE: dict[str, Any] = DECOMFL | {"momentum": 0.0, "arithmetic": "integer", "precision": "int32", "local_steps": 2}
HALF: dict[str, Any] = {"threshold": 0.5}  # for runs that lose many messages
CROWD: dict[str, Any] = {"clients": 12, "cohort": 8, "quorum": 2, "deadline_s": 60.0}


def secure(settings: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    return scenario(**({"algorithm": MASKABLE, "participation": CROWD, "secure_aggregation": settings or {}} | changes))


CRASH_PHASES = ["asking", "gathering", "committing", "publishing"]


def crashing(phase: str, **changes: Any) -> Scenario:
    fault = {"fault": "server-crash", "at_round": 3, "every_rounds": 4, "phase": phase, "down_s": 2.5}
    return scenario(faults=[fault], **changes)
