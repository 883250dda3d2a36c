"""How long the missing runs of a study will take, and how many bytes they will send, roughly and beforehand.

Time is that of a few rounds, of an evaluation, and of a piece of each instrument's work, in one run for each algorithm
and task; no learning rate changes it. Language models are not loaded: their time follows from the floating-point
operations of their passes (`Task.pass_cost`) and from what this machine computes in a second (`rates`), without what
loading takes. The bytes of a dense algorithm are those of the rounds that were tried. A scalar-only algorithm sends
more as clients miss more commits: its bytes and rounds are those of a rehearsal, as for `seedbus explain`. So are the
rounds of any run with a limit of simulated time. A budget of bytes or of ε may end a run early.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents.feature import foreseen
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.models.task import SPLITS, PassCost
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.explain.forecast import Disk, traffic
from seedbus.studies.explain.rehearsal import rehearse
from seedbus.studies.study.pool import Answer, Job, Pool

REHEARSED = 100
"""Rounds of a rehearsal; after these, bytes grow as in their second half."""
REHEARSAL_S = 10.0
"""Processor seconds after which a rehearsal ends sooner."""
Extent = tuple[int, float]
"""The rounds of a run, and its bytes."""
DRAWN = 3  # times that a round draws its directions: for the points, for the clients' replica and for the evaluator's


class Wanted(NamedTuple):
    """A run that is to be made.

    Attributes:
        scenario: what is run.
        parts: what is measured of its last model, as `Ask.parts` has it; nothing of a trial's.
    """

    scenario: Scenario
    parts: Sequence[str] = ()


@dataclass(frozen=True)
class Estimate:
    """What the runs will cost.

    Attributes:
        seconds: real time in all processes together.
        bytes: of plans and reports.
        disk: bytes of what clients remember, after these runs.
        unknown: number of runs that are not counted, because their trial failed.
        why: the first of these failures.
        flops: floating-point operations a second that stand for a trial of some of them; 0: all were tried.
    """

    seconds: float
    bytes: float
    unknown: int = 0
    why: str = ""
    flops: float = 0.0
    disk: float = 0.0

    def __add__(self, other: Estimate) -> Estimate:
        seconds, size = self.seconds + other.seconds, self.bytes + other.bytes
        unknown, flops = self.unknown + other.unknown, max(self.flops, other.flops)
        return Estimate(seconds, size, unknown, self.why or other.why, flops, self.disk + other.disk)


def estimate(
    runs: Sequence[Wanted], further: Sequence[Wanted], pool: Pool, advance: Callable[[float], None]
) -> tuple[Estimate, Estimate]:
    """Return what these runs will cost, and what they will cost with the further ones.

    Args:
        runs: those that will be made.
        further: those that may follow.
        pool: the processes in which trials are made.
        advance: is told of how many more runs the cost is known.
    """
    alike: dict[str, list[tuple[Wanted, bool]]] = {}
    for is_further, each in enumerate((runs, further)):
        for wanted in each:
            alike.setdefault(_decisive(wanted.scenario), []).append((wanted, bool(is_further)))
    jobs, untried = [], []
    for members in alike.values():
        scenario, parts = members[0][0].scenario, max((wanted.parts for wanted, _ in members), key=len)
        if (cost := scenario.task.pass_cost()) is None:
            jobs.append(Job("trial", [(members, None)], {"scenario": scenario.resolved(), "parts": parts}))
        else:
            untried.append((members, cost))
    if untried:
        jobs.insert(0, Job("rates", untried, {}))
    least, most, known = Estimate(0.0, 0.0), Estimate(0.0, 0.0), dict[str, Extent]()
    for answer in pool.do(jobs):
        for members, cost in answer.job.subject:
            found = _costs(members, cost, answer, known, advance)
            for one, (_, is_further) in zip(found, members, strict=True):
                least, most = least if is_further else least + one, most + one
    return least, most


def _costs(
    members: list[tuple[Wanted, bool]],
    cost: PassCost | None,
    answer: Answer,
    known: dict[str, Extent],
    advance: Callable[[float], None],
) -> Iterator[Estimate]:
    """Yield what each of some runs that differ in little costs.

    Args:
        members: the runs.
        cost: of their passes; None: they were tried.
        answer: to the job: the facts of a trial, or rates.
        known: the rounds and bytes of runs, by what decides them; it is added to.
        advance: is told of each.
    """
    if answer.failure is not None:
        advance(len(members))
        yield from [Estimate(0.0, 0.0, 1, answer.failure)] * len(members)
        return
    first, parts = members[0][0].scenario, max((wanted.parts for wanted, _ in members), key=len)
    trial = answer.facts if cost is None else _from_flops(first, cost, answer.facts, parts)
    extents = _extents([wanted.scenario for wanted, _ in members], trial["round_bytes"], known, advance)
    for (wanted, _), extent in zip(members, extents, strict=True):
        yield _cost(wanted, trial, *extent)


def _cost(wanted: Wanted, trial: Mapping[str, Any], rounds: int, size: float) -> Estimate:
    """Return what a run of so many rounds and bytes costs, as far as a limit of real time lets it come."""
    scenario = wanted.scenario
    evaluations = 1 + -(-rounds // scenario.evaluation.every)
    seconds, limit_s = trial["round_s"] * rounds + trial["evaluation_s"] * evaluations, scenario.stop.simulated_s
    if scenario.clock == "wall" and limit_s is not None and seconds > limit_s:
        seconds, size = limit_s, size * limit_s / seconds
    if wanted.parts:
        at_end, a_round = trial["parts"]
        seconds += at_end + a_round * rounds
    disk = Disk.of(scenario, trial.get("remembered", 0)).end
    return Estimate(trial["start_s"] + seconds, size, flops=trial.get("flops", 0.0), disk=disk)


def _from_flops(scenario: Scenario, cost: PassCost, rates: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """Return what a trial would find, from the work of a round and of an evaluation.

    Args:
        scenario: what is run.
        cost: of its passes.
        rates: the fields of `rates.Rates`.
        parts: what is measured of its last model.
    """
    algorithm, who, task = scenario.algorithm, scenario.participation, scenario.task
    some = np.unique(np.linspace(0, scenario.stop.most_rounds - 1, 100).astype(np.int64)).tolist()
    evaluations, scalars = np.mean([algorithm.work(round) for round in some], axis=0).tolist()
    passes = who.asked * evaluations
    drawn = scalars * scenario.dimension / rates["coordinates"]
    drawn_s = DRAWN * drawn if isinstance(algorithm, ScalarOnly) else 0.0
    a_sample = cost.evaluated_flops / rates["flops"] + cost.generated_flops / rates["alone"]
    names = [part.partition(":")[0] for part in parts]
    samples = sum(name in SPLITS for name in names) * cost.evaluated
    if "fairness" in names:
        samples += min(cost.trained, who.clients * Effort().client_samples) + cost.evaluated
    return {
        "start_s": 0.0,
        "round_s": passes * getattr(task, "batch_size", 1) * cost.flops / rates["flops"] + drawn_s,
        "evaluation_s": cost.evaluated * a_sample,
        "round_bytes": None,
        "parts": (samples * a_sample, drawn_s / DRAWN if parts else 0.0),  # the last model is made anew
        "flops": rates["flops"],
    }


def _decisive(scenario: Scenario) -> str:
    """Return the settings that decide how long a round lasts and how many bytes a dense one sends."""
    fields = scenario.resolved()
    deciding = ("task", "mask", "partition", "participation", "verify")
    return json.dumps({name: fields.get(name) for name in deciding} | {"algorithm": _without_rates(scenario)})


def _without_rates(scenario: Scenario) -> dict[str, Any]:
    """Return the fields of its algorithm but for learning rates."""
    fields = scenario.resolved()["algorithm"].items()
    return {name: value for name, value in fields if not name.endswith("learning_rate")}


def _extents(
    scenarios: Sequence[Scenario], round_bytes: float | None, known: dict[str, Extent], advance: Callable[[float], None]
) -> Iterator[Extent]:
    """Yield the rounds and the bytes of each run; those that differ in the seed or in a rate alone have the same.

    Args:
        scenarios: the runs, of one algorithm and task.
        round_bytes: of a round; None: it was not tried.
        known: by what decides them; it is added to.
        advance: is told of each.
    """
    is_known = scenarios[0].algorithm.facts.is_dense and round_bytes is not None
    if is_known:
        advance(len(scenarios))
    for scenario in scenarios:
        same = {"seed": 0, "name": "", "description": "", "algorithm": _without_rates(scenario)}
        if not scenario.algorithm.facts.is_dense and not scenario.sends_replicas:
            same["task"] = ""  # no message grows with the model
        what = json.dumps(scenario.resolved() | same)
        if what not in known:
            known[what] = _dense(scenario, round_bytes or 0.0) if is_known else rehearsed(scenario)
        if not is_known:
            advance(1)
        yield known[what]


def _dense(scenario: Scenario, round_bytes: float) -> tuple[int, float]:
    rounds, budget = scenario.stop.most_rounds, scenario.stop.bytes
    if scenario.stop.simulated_s is not None and scenario.clock == "virtual":
        rounds, _ = rehearsed(scenario)
    if budget is not None and round_bytes:
        rounds = min(rounds, math.ceil(budget / round_bytes))
    rounds = min(rounds, _affordable(scenario))
    return rounds, round_bytes * rounds


def _affordable(scenario: Scenario) -> int:
    """Return after how many rounds a run ends, as far as that depends on ε."""
    spending = foreseen(scenario)
    return scenario.stop.most_rounds if spending is None else spending.rounds(scenario.stop)


def rehearsed(scenario: Scenario) -> tuple[int, float]:
    """Return the rounds and the bytes of plans and reports of a run, from a rehearsal."""
    if not _affordable(scenario):  # nothing can be rehearsed: its first commit could cost more than `stop.epsilon`
        return 0, 0.0
    if scenario.clock == "wall":  # whose limit of time `_cost` applies
        stop = scenario.stop.model_copy(update={"rounds": scenario.stop.most_rounds})
        scenario = scenario.model_copy(update={"stop": stop})
    rounds = min(scenario.stop.most_rounds, REHEARSED)
    short = scenario.model_copy(update={"stop": scenario.stop.model_copy(update={"rounds": rounds})})
    begun = rehearse(short, REHEARSAL_S)
    is_whole = begun.is_whole and (rounds == scenario.stop.most_rounds or begun.rounds < rounds)
    found = traffic(scenario, replace(begun, is_whole=is_whole))
    return found.rounds, float(found.up + found.down)
