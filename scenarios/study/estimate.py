"""How long the missing runs of a study will take, and how many bytes they will send, roughly and beforehand.

Time is that of a few rounds of one run for each algorithm and task. The bytes of a dense algorithm are those of these
rounds. A scalar-only algorithm sends more as clients miss more commits, and a budget of bytes or of ε may end a run
early: its bytes and rounds are those of a rehearsal, as for `seedbus explain`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seedbus.scenarios.planning.forecast import traffic
from seedbus.scenarios.planning.rehearsal import rehearse
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.study.pool import Job, Pool

REHEARSED = 100
"""Rounds of a rehearsal; after these, bytes grow as in their second half."""
REHEARSAL_S = 10.0
"""Processor seconds after which a rehearsal ends sooner."""


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


def estimate(scenarios: Sequence[Scenario], pool: Pool, advance: Callable[[float], None]) -> Estimate:
    """Return what runs of these scenarios will cost.

    Args:
        scenarios: one for each run.
        pool: the processes in which trials are made.
        advance: is told of how many more runs the cost is known.
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
            advance(len(members))
            continue
        trial = answer.facts
        extents = list(_extents(members, trial["round_bytes"], advance))
        seconds += sum(trial["start_s"] + trial["round_s"] * rounds for rounds, _ in extents)
        sent += sum(size for _, size in extents)
    return Estimate(seconds, sent, unknown, why)


def _extents(
    scenarios: Sequence[Scenario], round_bytes: float, advance: Callable[[float], None]
) -> Iterator[tuple[int, float]]:
    """Yield the rounds and the bytes of each run; those that differ in the seed alone have the same."""
    found: dict[str, tuple[int, float]] = {}
    for scenario in scenarios:
        what = json.dumps(scenario.resolved() | {"seed": 0})
        if what not in found:
            found[what] = _dense(scenario, round_bytes) if scenario.algorithm.is_dense else rehearsed(scenario)
        advance(1)
        yield found[what]


def _dense(scenario: Scenario, round_bytes: float) -> tuple[int, float]:
    rounds, budget = scenario.stop.rounds, scenario.stop.bytes
    if budget is not None and round_bytes:
        rounds = min(rounds, math.ceil(budget / round_bytes))
    return rounds, round_bytes * rounds


def rehearsed(scenario: Scenario) -> tuple[int, float]:
    """Return the rounds and the bytes of plans and reports of a scalar-only run, from a rehearsal."""
    rounds = min(scenario.stop.rounds, REHEARSED)
    short = scenario.model_copy(update={"stop": scenario.stop.model_copy(update={"rounds": rounds})})
    begun = rehearse(short, REHEARSAL_S)
    is_whole = begun.is_whole and (rounds == scenario.stop.rounds or begun.rounds < rounds)
    found = traffic(scenario, replace(begun, is_whole=is_whole))
    return found.rounds, float(found.up + found.down)
