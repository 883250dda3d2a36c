"""How long the missing runs of a study will take, and how many bytes they will send, roughly and beforehand.

Time is that of a few rounds of one run for each algorithm and task. The bytes of a dense algorithm are those of these
rounds. A scalar-only algorithm sends more as clients miss more commits, but its bytes do not depend on the model: they
are counted in a run of the null task with the same clients, faults and algorithm.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.study.pool import Job, Pool

REHEARSED = 100
"""Rounds of a run of the null task; after these, bytes grow as in their second half."""


@dataclass(frozen=True)
class Estimate:
    """What the runs will cost.

    Attributes:
        seconds: real time in all processes together.
        bytes: of plans and reports.
        unknown: number of runs that are not counted, because their trial failed.
        why: the first of these failures.
    """

    seconds: float
    bytes: float
    unknown: int = 0
    why: str = ""


def estimate(scenarios: Sequence[Scenario], pool: Pool) -> Estimate:
    """Return what runs of these scenarios will cost.

    Args:
        scenarios: one for each run.
        pool: the processes in which trials are made.
    """
    alike: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        fields = scenario.resolved()
        deciding = ("task", "mask", "partition", "algorithm", "participation", "verify")
        parts = {name: fields.get(name) for name in deciding}
        alike.setdefault(json.dumps(parts), []).append(scenario)
    jobs = [Job("trial", members, {"scenario": members[0].resolved()}) for members in alike.values()]
    seconds, sent, unknown, why = 0.0, 0.0, 0, ""
    for answer in pool.do(jobs):
        members: list[Scenario] = answer.job.subject
        if answer.failure is not None:
            unknown, why = unknown + len(members), why or answer.failure
            continue
        trial = answer.facts
        seconds += sum(trial["start_s"] + trial["round_s"] * member.stop.rounds for member in members)
        sent += sum(_bytes(members, trial["round_bytes"], pool.folder))
    return Estimate(seconds, sent, unknown, why)


def _bytes(scenarios: Sequence[Scenario], round_bytes: float, folder: Path) -> list[float]:
    """Return the bytes of each run; those that differ in the seed alone have the same."""
    if scenarios[0].algorithm.is_dense:
        return [round_bytes * scenario.stop.rounds for scenario in scenarios]
    found: dict[str, float] = {}
    sizes = []
    for scenario in scenarios:
        what = json.dumps(scenario.resolved() | {"seed": 0})
        if what not in found:
            found[what] = rehearsed_bytes(scenario, folder)
        sizes.append(found[what])
    return sizes


def rehearsed_bytes(scenario: Scenario, folder: Path) -> float:
    """Return the bytes of plans and reports of a scalar-only run, counted on the null task.

    Args:
        scenario: the run's.
        folder: for temporary files.
    """
    rounds = min(scenario.stop.rounds, REHEARSED)
    half = max(1, rounds // 2)
    changes = {
        "task": {"name": "null", "dimension": 1},
        "mask": None,
        "partition": {"kind": "iid"},
        "evaluation": {"every": half},
        "stop": {"rounds": rounds},
        "expect": {},
        "transport": "memory",
        "clock": "virtual",
    }
    with TemporaryDirectory(dir=folder) as own:
        results = run(validate(scenario.resolved() | changes, "a rehearsal"), Path(own) / "run", progress=False)
        by_rounds = {line["round"] + 1: line["bytes_up"] + line["bytes_down"] for line in results.lines[1:]}
    total = float(by_rounds[rounds])
    growth = (total - by_rounds[half]) / (rounds - half) if rounds > half else total
    return total + growth * (scenario.stop.rounds - rounds)
