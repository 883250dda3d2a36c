"""How long the missing runs of a study will take, and how many bytes they will send, roughly and beforehand.

Time is that of a few rounds of one run for each algorithm and task; no learning rate changes it. The bytes of a dense
algorithm are those of these rounds. A scalar-only algorithm sends more as clients miss more commits: its bytes and
rounds are those of a rehearsal, as for `seedbus explain`. So are the rounds of any run with a limit of simulated time.
A budget of bytes or of ε may end a run early.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seedbus.scenarios.planning.forecast import traffic
from seedbus.scenarios.planning.rehearsal import rehearse
from seedbus.scenarios.planning.spending import Spending
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

    def __add__(self, other: Estimate) -> Estimate:
        seconds, size = self.seconds + other.seconds, self.bytes + other.bytes
        return Estimate(seconds, size, self.unknown + other.unknown, self.why or other.why)


def estimate(
    scenarios: Sequence[Scenario], further: Sequence[Scenario], pool: Pool, advance: Callable[[float], None]
) -> tuple[Estimate, Estimate]:
    """Return what runs of these scenarios will cost, and what they will cost with the further ones.

    Args:
        scenarios: one for each run.
        further: one for each run that may follow.
        pool: the processes in which trials are made.
        advance: is told of how many more runs the cost is known.
    """
    alike: dict[str, list[tuple[Scenario, bool]]] = {}
    for is_further, each in enumerate((scenarios, further)):
        for scenario in each:
            alike.setdefault(_decisive(scenario), []).append((scenario, bool(is_further)))
    jobs = [Job("trial", members, {"scenario": members[0][0].resolved()}) for members in alike.values()]
    least, most = Estimate(0.0, 0.0), Estimate(0.0, 0.0)
    for answer in pool.do(jobs):
        members: list[tuple[Scenario, bool]] = answer.job.subject
        if answer.failure is None:
            trial = answer.facts
            extents = _extents([scenario for scenario, _ in members], trial["round_bytes"], advance)
            costs = [_cost(scenario, trial, *extent) for (scenario, _), extent in zip(members, extents, strict=True)]
        else:
            costs = [Estimate(0.0, 0.0, 1, answer.failure)] * len(members)
            advance(len(members))
        for cost, (_, is_further) in zip(costs, members, strict=True):
            least, most = least if is_further else least + cost, most + cost
    return least, most


def _cost(scenario: Scenario, trial: Mapping[str, float], rounds: int, size: float) -> Estimate:
    """Return what a run of so many rounds and bytes costs, as far as a limit of real time lets it come."""
    seconds, limit_s = trial["round_s"] * rounds, scenario.stop.simulated_s
    if scenario.clock == "wall" and limit_s is not None and seconds > limit_s:
        seconds, size = limit_s, size * limit_s / seconds
    return Estimate(trial["start_s"] + seconds, size)


def _decisive(scenario: Scenario) -> str:
    """Return the settings that decide how long a round lasts and how many bytes a dense one sends."""
    fields = scenario.resolved()
    deciding = ("task", "mask", "partition", "participation", "verify")
    algorithm = {name: value for name, value in fields["algorithm"].items() if not name.endswith("learning_rate")}
    return json.dumps({name: fields.get(name) for name in deciding} | {"algorithm": algorithm})


def _extents(
    scenarios: Sequence[Scenario], round_bytes: float, advance: Callable[[float], None]
) -> Iterator[tuple[int, float]]:
    """Yield the rounds and the bytes of each run; those that differ in the seed alone have the same."""
    found: dict[str, tuple[int, float]] = {}
    are_dense = scenarios[0].algorithm.is_dense  # as all of these are
    if are_dense:
        advance(len(scenarios))
    for scenario in scenarios:
        what = json.dumps(scenario.resolved() | {"seed": 0})
        if what not in found:
            found[what] = _dense(scenario, round_bytes) if are_dense else rehearsed(scenario)
        if not are_dense:
            advance(1)
        yield found[what]


def _dense(scenario: Scenario, round_bytes: float) -> tuple[int, float]:
    rounds, budget = scenario.stop.rounds, scenario.stop.bytes
    if scenario.stop.simulated_s is not None and scenario.clock == "virtual":
        rounds, _ = rehearsed(scenario)
    if budget is not None and round_bytes:
        rounds = min(rounds, math.ceil(budget / round_bytes))
    rounds = min(rounds, _affordable(scenario))
    return rounds, round_bytes * rounds


def _affordable(scenario: Scenario) -> int:
    """Return after how many rounds a run ends, as far as that depends on ε."""
    stop, privacy = scenario.stop, scenario.privacy
    return stop.rounds if privacy is None else Spending(scenario, privacy).rounds(stop)


def rehearsed(scenario: Scenario) -> tuple[int, float]:
    """Return the rounds and the bytes of plans and reports of a scalar-only run, from a rehearsal."""
    if not _affordable(scenario):  # nothing can be rehearsed: its first commit could cost more than `stop.epsilon`
        return 0, 0.0
    rounds = min(scenario.stop.rounds, REHEARSED)
    short = scenario.model_copy(update={"stop": scenario.stop.model_copy(update={"rounds": rounds})})
    begun = rehearse(short, REHEARSAL_S)
    is_whole = begun.is_whole and (rounds == scenario.stop.rounds or begun.rounds < rounds)
    found = traffic(scenario, replace(begun, is_whole=is_whole))
    return found.rounds, float(found.up + found.down)
