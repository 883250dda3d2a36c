"""Scenarios in which clients leave and return, for tests of whole runs."""

from __future__ import annotations

from typing import Any

from worlds import DECOMFL, HISO, lossy

from seedbus.scenarios.schema.scenario import Scenario

Faults = list[dict[str, Any]]


def exponential(mean: float) -> dict[str, Any]:
    return {"distribution": "exponential", "mean": mean}


def churn(stays: float = 1.0, away: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"fault": "churn", "stays": exponential(stays), "away": exponential(away), **fields}


def ramp(start: int, *stages: tuple[int, int], **fields: Any) -> dict[str, Any]:
    documents = [{"rounds": rounds, "target": target} for rounds, target in stages]
    return {"fault": "ramp", "start": start, "stages": documents, **fields}


FAULTS: dict[str, Faults] = {
    "crash": [
        {"fault": "crash", "fraction": 0.5, "at_round": 3, "for_rounds": 2, "every_rounds": 3, "probability": 0.8}
    ],
    "crash without state": [
        {"fault": "crash", "at_round": 2, "for_rounds": 3, "every_rounds": 6, "returns": "without-state"}
    ],
    "churn": [churn()],
    "churn without a word": [churn(announced=False, returns="without-state")],
    "churn from another run": [churn(0.7, 0.7, returns="from-another-run", initially=0.5)],
    "late joiners": [{"fault": "late-joiners", "fraction": 0.7, "at_round": 2, "spread_rounds": 12}],
    "nobody at first": [{"fault": "late-joiners", "at_round": 3, "spread_rounds": 4}],
    "replacement": [{"fault": "replacement", "active": 4, "every_rounds": 2, "returns": "without-state"}],
    "ramp": [ramp(0, (5, 8), (6, 0), (3, 5), returns="from-another-run")],
    "diurnal": [{"fault": "diurnal", "low": 0.0, "high": 0.9, "period_s": 3.0, "zones": 2}],
    "all at once": [
        churn(),
        {"fault": "diurnal", "low": 0.3, "period_s": 4.0, "returns": "without-state"},
        {"fault": "crash", "clients": [1, 5], "at_round": 4, "for_rounds": 2, "returns": "from-another-run"},
        ramp(2, (4, 8)),
        {"fault": "drop", "probability": 0.1},
    ],
}


def availability_scenario(name: str, **changes: Any) -> Scenario:
    """Return a scenario with the faults `FAULTS[name]`, on links so slow that a JOIN sometimes outlasts a round."""
    document: dict[str, Any] = {
        "algorithm": DECOMFL if len(name) % 2 else HISO,
        "faults": FAULTS[name],
        "network": {"latency": {"distribution": "lognormal", "median": 0.15, "sigma": 1.0}},
        "stop": {"rounds": 25},
    }
    return lossy(**(document | changes))
