"""What a client's owner consents to, in ten lines: what is learnt, what leaves her, what is promised and kept.

Each line is made of what the part itself tells: the task, the partition, the algorithm's `Facts`, the features of the
scenario, the evaluation. Texts may be a server's, so what prints them makes them printable.
"""

from __future__ import annotations

from typing import Any

from seedbus.agents import messages
from seedbus.agents.server.stopping import Cadence
from seedbus.bus.codec import encode
from seedbus.bus.envelope import HEADER_LIMIT
from seedbus.capabilities import Fact, Facts
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.scenarios.consent.who_sees import SHIFTED, number_told
from seedbus.scenarios.reporting.words import ends, first_sentence, plain
from seedbus.scenarios.schema.scenario import FEATURES, Scenario

FRAMING = 2
"""Bytes that a transport adds to an envelope of some hundred bytes."""


def consent(scenario: Scenario, memory: str = "") -> dict[str, str]:
    """Return the ten lines: topic → sentence.

    Args:
        scenario: the run's.
        memory: the folder in which this process keeps what its clients remember; "": in its memory.

    Raises:
        DataError: a model that the task names is not on this machine.
    """
    promised = {each.promises: each.promise() for each in scenario.features if each.promises}
    absent = {each.promises: each.without for each in FEATURES.values() if each.promises}
    return {
        "task": _task(scenario),
        "model": _model(scenario),
        "samples": _samples(scenario),
        "algorithm": _algorithm(scenario),
        "sends up": _sent(scenario),
        **(absent | promised),
        "evaluation": _evaluation(scenario.evaluation, in_sums=scenario.shows_sums_alone),
        "kept": _kept(scenario, memory),
        "end": f"{', or '.join(ends(scenario))}; you may stop this process at any time",
    }


def _task(scenario: Scenario) -> str:
    says, part = first_sentence(type(scenario.task)), scenario.participation
    return f"{scenario.task.name}: {says}; {part.clients:,} clients, of which a round asks {part.asked:,}"


def _model(scenario: Scenario) -> str:
    task: Any = scenario.task
    needed = [str(each) for each in task.named_files()]
    needed += [f"{value} (task.{name})" for name, value in task.named()] if isinstance(task, OwnMetrics) else []
    whose = f"of this machine {', '.join(needed)}" if needed else "no file of this machine"
    return f"{scenario.dimension:,} trained coordinates of {task.dimension:,}; it needs {whose}"


def _samples(scenario: Scenario) -> str:
    travels = number_told(scenario)
    return f"{scenario.partition.whose}; their number {f'travels{travels}' if travels else 'does not travel'}"


def _algorithm(scenario: Scenario) -> str:
    algorithm: Any = scenario.algorithm
    fields = {name: getattr(algorithm, name) for name in type(algorithm).model_fields if name != "name"}
    are_on = ", ".join(f"{name} {plain(value)}" for name, value in fields.items() if value)
    return f"{algorithm.facts.label}: {first_sentence(type(algorithm))}; {are_on}"


def _sent(scenario: Scenario) -> str:
    """What a client sends in a round, and what that reveals if nothing hides it."""
    algorithm, facts = scenario.algorithm, Facts(scenario)
    hidden = {"masks": not facts.lacks(Fact.HIDDEN), "noise": not facts.lacks(Fact.NOISE)}
    hiding = " and ".join(name for name, is_there in hidden.items() if is_there)
    exchanged = sum(each.up_bytes for each in scenario.features)
    size = report_bytes(scenario) + exchanged
    beside = f", {exchanged:,} of them for the masks" if exchanged else ""
    without = f"here {hiding} are to prevent that" if hiding else "here neither masks nor noise prevent that"
    shifted = f"; {SHIFTED}" if scenario.seed_shift else ""
    return (
        f"about {size:,} bytes in a round that asks you{beside}: {algorithm.facts.reports}, which can reveal "
        f"{algorithm.facts.reveals}; {without}{shifted}"
    )


def report_bytes(scenario: Scenario) -> int:
    """Return about how many bytes a REPORT has: of scalars as many as an example's, of vectors the most."""
    algorithm: Any = scenario.algorithm.sized(scenario.dimension)
    vectors: int = algorithm.sizes(scenario.dimension, scenario.participation.clients).report
    plan = algorithm.plan(0, 0, 2**63)
    if algorithm.facts.is_dense or not hasattr(algorithm, "example"):
        return vectors + HEADER_LIMIT + FRAMING
    return len(encode(messages.pack_report(algorithm, 0, plan, algorithm.example(plan), {}))[0]) + FRAMING


def _evaluation(evaluation: Cadence, *, in_sums: bool) -> str:
    every = "every round" if evaluation.every == 1 else f"every {evaluation.every:,} rounds"
    if evaluation.by == "clients":
        yours = f"yours measures the model on the {evaluation.split} samples that it holds out, and"
        told = "their number and the sums of the metrics over them"
        if in_sums:
            return (
                f"{every}, by the clients that report next: {yours} masks {told} with its report; the server learns "
                "what these add up to over all that report"
            )
        return f"{every}, by all clients: {yours} sends {told}"
    return f"{every}, by the server, on {evaluation.split} samples; it asks nothing of you"


def _kept(scenario: Scenario, memory: str) -> str:
    where = f"in {memory}" if memory else "until it ends"
    remembered = " and what its clients remember of earlier rounds" * scenario.algorithm.facts.remembers
    return (
        f"this process keeps the model{remembered} {where}; the server keeps all commits, which are made of "
        "reports, who was asked and who reported in each round, and the metrics"
    )
