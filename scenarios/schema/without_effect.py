"""Settings without effect, and gaps in files. They are told, and not refused: a study may vary the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from seedbus.agents.availability import AvailabilityFault
from seedbus.algorithms.aggregation.rules import Mean
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.schedule import values
from seedbus.bus.envelope import Kind
from seedbus.bus.network import Constant
from seedbus.capabilities import idle
from seedbus.models.errors import DataError
from seedbus.scenarios.faults.base import MessageSelector, RoundSelector, TrafficSelector
from seedbus.scenarios.faults.crash import Crash
from seedbus.scenarios.faults.server_crash import ServerCrash
from seedbus.scenarios.faults.trace_file import FollowsFile

NO_TIME = "no simulated time passes; network.latency or compute.evaluation lets it pass"
_MAY_TAKE_TIME = ("judge", "mbps", "speeds", "slows", "factors", "outage_ns")
"""The hooks of faults by which a round may last longer."""


def all_caveats(scenario: Any) -> list[str]:
    """Return what the reader of a `Scenario` is to know of its task, data, algorithm and other settings; sentences.

    Raises:
        DataError: a model of one's own cannot be built.
    """
    return [*scenario.task.caveats(), *_of_owners(scenario), *scenario.algorithm.facts.caveats, *caveats(scenario)]


def _of_owners(scenario: Any) -> Sequence[str]:
    """Return what is to know of the owners of samples where they are clients; nothing if their data is not here."""
    if scenario.partition.is_by_owner:
        clients = scenario.participation.clients
        with suppress(DataError):  # the run tells of it
            found = scenario.task.division(seed=scenario.seed, clients=clients, partition=scenario.partition)
            return cast("Sequence[str]", found.notes)
    return []


def caveats(scenario: Any) -> list[str]:
    """Return a sentence for each fault and each other setting of a `Scenario` that changes nothing in its run."""
    said = [f"faults.{number} {why}" for number, why in enumerate(of_faults(scenario)) if why]
    return [*said, *of_settings(scenario), *(caveat for each in scenario.features for caveat in each.caveats())]


def of_settings(scenario: Any) -> list[str]:
    """Return a sentence for each setting but faults that changes nothing in a run of a `Scenario`."""
    return [f"{field} has no effect: {reason}" for field, reason in _idle(scenario)]


def of_faults(scenario: Any) -> list[str]:
    """Return for each fault why it strikes nothing in a run of a `Scenario`, as a predicate; "" if it may strike.

    Of a fault with a file that may strike, it is what that may not have been meant to say.
    """
    waiting = _waiting(scenario) or {}
    kinds = {path: why for path, why in idle(scenario) if path.startswith("faults.")}
    whys = [
        kinds.get(f"faults.{number}.kind") or _why_idle(scenario, fault) for number, fault in enumerate(scenario.faults)
    ]
    files = _of_files(scenario)
    return [
        f"strikes nothing: {why}" if why else waiting.get(number) or files.get(number, "")
        for number, why in enumerate(whys)
    ]


def _of_files(scenario: Any) -> dict[int, str]:
    """Return by number, as a predicate, what the lines of a file may not have been meant to say."""
    clients = scenario.participation.clients
    return {
        number: ", and ".join(
            words.format(_clients(whose)) for words, whose in fault.oddities(clients, random) if whose
        )
        for number, (fault, random) in enumerate(scenario.faults_with_draws)
        if isinstance(fault, FollowsFile)
    }


def _clients(clients: list[int]) -> str:
    first = ", ".join(map(str, clients[:5]))
    return f"client{'s' * (len(clients) > 1)} {first}" + (f" and {len(clients) - 5:,} more" if len(clients) > 5 else "")


def _why_idle(scenario: Any, fault: Any) -> str:
    if isinstance(fault, MessageSelector) and (kind := fault.kind) is not None:
        goes = "up" if Kind[kind.upper()].is_upward else "down"
        if fault.direction not in ("both", goes):
            return f"messages of the kind {kind} go {goes}, and direction is {fault.direction}"
    rounds = scenario.stop.most_rounds
    if isinstance(fault, RoundSelector | Crash | ServerCrash) and fault.at_round >= rounds:
        if scenario.has_server:  # without a server nodes go on, to repair
            return f"it begins at round {fault.at_round:,}, and the last one is {rounds - 1:,}"
    return _no_work(scenario) if fault.only_multiplies else ""


def no_time_passes(scenario: Any) -> bool:
    """Whether it is certain that no simulated time passes in a run of a `Scenario`."""
    return _waiting(scenario) is not None


def _waiting(scenario: Any) -> dict[int, str] | None:
    """Return by number what is to be told of faults that wait for simulated time if none passes; None: it passes."""
    who, network = scenario.participation, scenario.network
    links = (network.up_mbps, network.down_mbps, network.shared_up_mbps, network.shared_down_mbps)
    is_timed = network.latency != Constant() or any(each is not None for each in links) or not _no_work(scenario)
    if is_timed or who.every_s is not None or scenario.clock == "wall" or not scenario.has_server:
        return None
    said, away = dict[int, str](), set[int]()
    for number, (fault, random) in enumerate(scenario.faults_with_draws):
        if isinstance(fault, AvailabilityFault):
            schedule = fault.schedule(who.clients, random)
            schedule.advance(0, 0)
            if schedule.is_by_rounds:
                return None  # rounds may wait for clients that leave unannounced
            away |= schedule.absent
            if not schedule.is_over:
                said[number] = f"{'stays as at second 0' if schedule.absent else 'strikes nothing'}: {NO_TIME}"
        elif isinstance(fault, TrafficSelector) and fault.at_s > 0:
            said[number] = f"strikes nothing: {NO_TIME}"
        elif not fault.only_multiplies and (fault.may_lose or any(hasattr(fault, hook) for hook in _MAY_TAKE_TIME)):
            return None
    return said if who.clients - len(away) >= who.quorum else None  # else the server waits for their return


def _idle(scenario: Any) -> Iterator[tuple[str, str]]:
    """Yield fields that are set, and why each has no effect."""
    who, compute, task = scenario.participation, scenario.compute, scenario.task
    is_timeless = no_time_passes(scenario)
    if _is_set(compute, "slowness") and (reason := _no_work(scenario)):
        yield "compute.slowness", reason
    yield from (each for each in idle(scenario) if not each[0].startswith("faults."))
    if scenario.has_server:
        if who.over_selection > 1 and who.size == who.clients:
            yield "participation.over_selection", f"a cohort is already all {who.clients:,} clients"
        if who.selection.policy != "uniform" and who.asked == who.clients and not scenario.has_secret_cohorts:
            yield "participation.selection", f"each round asks all {who.clients:,} clients"
        algorithm = scenario.algorithm
        leaves_out = algorithm.aggregation.rule in ("median", "trimmed-mean") and not algorithm.facts.is_dense
        if who.most_asked <= 2 and leaves_out:
            yield "algorithm.aggregation", "of at most two reports it leaves none out, and takes their mean"
        if who.deadline_s is not None and is_timeless:
            yield "participation.deadline_s", NO_TIME
        if who.late is not None and not who.counts_late:
            yield (
                "participation.late",
                "each round waits for all that it asks; deadline_s or over_selection ends it earlier",
            )
    if scenario.stop.simulated_s is not None and is_timeless:
        yield "stop.simulated_s", NO_TIME
    for feature in scenario.features:
        yield from feature.idle()
    if getattr(task, "test_file", None) is not None and _is_set(task, "test"):
        yield "task.test", "the rows of task.test_file are the test set"
    yield from _idle_in_algorithm(scenario.algorithm, has_samples=task.has_samples)
    if not scenario.verify and scenario.verify_every != 1:
        yield "verify_every", "without verify no digests are compared"


def _idle_in_algorithm(algorithm: Any, *, has_samples: bool) -> Iterator[tuple[str, str]]:
    """Yield fields of the algorithm that are set, and why each has no effect."""
    if isinstance(algorithm, ScalarOnly):
        if _is_set(algorithm, "dampening") and not getattr(algorithm, "momentum", None):
            yield "algorithm.dampening", "without momentum nothing is dampened"
        if _is_set(algorithm, "smoothing") and set(values(algorithm.estimator)) <= set(algorithm.derivatives):
            taken = " and ".join(algorithm.derivatives)
            yield "algorithm.smoothing", f"estimator: {taken} takes derivatives, and no finite differences"
        if getattr(algorithm, "nu", None) == 0:
            for field in ("hessian_step", "epsilon"):
                if _is_set(algorithm, field):
                    yield f"algorithm.{field}", "with nu: 0 H never changes"
        elif _is_set(algorithm, "hessian_step") and set(values(algorithm.local_steps)) == {1}:
            yield "algorithm.hessian_step", "the only local step is the last"
    if isinstance(algorithm, FedAvg):
        if _is_set(algorithm, "momentum") and algorithm.local_steps == 1:
            yield "algorithm.momentum", "it starts at 0 in every round, which has one local step"
        if _is_set(algorithm, "weighting"):
            if not isinstance(algorithm.aggregation, Mean):
                yield "algorithm.weighting", f"aggregation: {algorithm.aggregation.rule} weighs all clients equally"
            elif algorithm.channel is not None:
                yield "algorithm.weighting", f"channel: {algorithm.channel.kind} weighs all clients equally"
            elif not has_samples:
                yield "algorithm.weighting", "no client has more samples than another"


def _is_set(settings: Any, field: str) -> bool:
    """Whether settings have a field, and not at its default."""
    fields = type(settings).model_fields
    return field in fields and getattr(settings, field) != fields[field].default


def _no_work(scenario: Any) -> str:
    """Return why what multiplies the time of local work changes nothing; "" if local work takes time."""
    compute, is_dense = scenario.compute, scenario.algorithm.facts.is_dense
    if compute.evaluation != Constant() or not (is_dense or compute.replay == Constant()):
        return ""
    zero = "compute.evaluation is 0" if is_dense else "compute.evaluation and compute.replay are 0"
    return f"it multiplies the time of local work, and {zero}"
