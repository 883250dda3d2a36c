"""Small scenarios for the tests of whole runs, and the comparison of two runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seedbus.agents.journal.digests import SEAL, seal_of
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.verify import verify
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.check.runs import end_of

DECOMFL: dict[str, Any] = {
    "name": "decomfl",
    "perturbations": 3,
    "learning_rate": 0.01,
    "momentum": 0.5,
    "dampening": False,
}
TWICE = {"at_round": 2, "for_rounds": 2, "every_rounds": 4}
BARE: dict[str, Any] = {"fault": "crash", "fraction": 0.5, "returns": "without-state"} | TWICE
HISO: dict[str, Any] = {"name": "hiso", "perturbations": 5, "local_steps": 2, "learning_rate": 0.001}
TINY: dict[str, Any] = {
    "name": "tiny",
    "task": {"name": "quadratic", "dimension": 20},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 4, "cohort": 3},
    "stop": {"rounds": 2},
}
"""The scenario of a study whose runs take no time."""


def scenario(**changes: Any) -> Scenario:
    """Return a scenario: a quadratic, eight clients, three asked a round, links with a lognormal latency."""
    document: dict[str, Any] = {
        "name": "small",
        "task": {"name": "quadratic", "dimension": 300},
        "algorithm": DECOMFL,
        "participation": {"clients": 8, "cohort": 3},
        "network": {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 1.0}},
        "evaluation": {"every": 5},
        "stop": {"rounds": 20},
        "verify": True,
    }
    return validate(document | changes, "a test")


def lossy(probability: float = 0.3, **changes: Any) -> Scenario:
    """Return the same scenario with messages lost and a deadline that many answers miss."""
    faults = [{"fault": "drop", "probability": probability}]
    participation = {"clients": 8, "cohort": 3, "deadline_s": 0.5}
    return scenario(**({"faults": faults, "participation": participation} | changes))


def outcome(results: Results) -> tuple[Any, ...]:
    """Return the parts of the results that must be equal in two equal runs: the summary and the metrics."""
    return end_of(results.summary), (results.folder / "metrics.jsonl").read_text()


def holds(results: Results) -> bool:
    """Whether the journal and the ledger give all that the results say, and no replica diverged."""
    found = verify(results.folder)
    is_replayed = "a replay of the model" not in found.unchecked
    return is_replayed and not found.differences and "diverged" not in results.summary["refusals"]


def go(folder: Path, what: Scenario, **options: Any) -> Results:
    return run(what, folder, **options)


def stop_after(patch: pytest.MonkeyPatch, round: int) -> None:
    """Interrupt a run, as Ctrl-C does, once a round is durable."""
    append = Journal.append

    def stop(self: Journal, entry: Entry) -> None:
        append(self, entry)
        if entry.round == round:
            raise KeyboardInterrupt

    patch.setattr(Journal, "append", stop)


def reopened(folder: Path, facts: dict[str, str]) -> None:
    """Turn a finished run into an unfinished one, with other facts in its journal."""
    with_facts(folder, facts, without="outcome")
    os.unlink(folder / "results.json")


def with_facts(folder: Path, facts: dict[str, str], *, without: str) -> None:
    """Give a run's journal other facts, and take one away."""
    journal = Journal.open(folder)
    others = {name: value for name, value in (journal.facts() | facts).items() if name != without}
    journal._database.execute("DELETE FROM facts")
    sealed = (others | {SEAL: seal_of(others)}).items()
    journal._database.executemany("INSERT INTO facts VALUES (?, ?)", sealed)
    journal._database.commit()
    journal.close()
