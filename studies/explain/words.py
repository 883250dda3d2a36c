"""A scenario in plain words: the model, the data, which clients are asked when, algorithm, faults, lag, and the end.

Nothing is run. Settings that the scenario leaves to their defaults are named as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from seedbus.agents.availability import AvailabilityFault
from seedbus.agents.catch_up.settings import UNSET
from seedbus.agents.feature import Words
from seedbus.agents.policies.participation import Participation
from seedbus.bus.text import counted
from seedbus.models.errors import DataError
from seedbus.models.partitions.own import Own
from seedbus.scenarios.consent.who_sees import SHIFTED
from seedbus.scenarios.reporting import division
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.words import ends, first_sentence, plain
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.without_effect import of_settings
from seedbus.studies.explain.fault_words import sentences as fault_sentences


def words(scenario: Scenario) -> Words:
    """Return what a scenario will do, by topic. Topics without a sentence are left out."""
    said: Words = {
        "model": _model(scenario),
        "data": _data(scenario),
        "clients": _clients(scenario),
        "rounds": _rounds(scenario),
        "algorithm": _algorithm(scenario),
        "privacy": [],
        "links": _links(scenario),
        "faults": fault_sentences(scenario) or ["none: every message arrives, and every client answers"],
        "lag": _lag(scenario),
        "evaluation": _evaluation(scenario),
        "end": _end(scenario),
        "idle": of_settings(scenario),
    }
    for feature in scenario.features:
        said = feature.words(said, _settings(feature.settings))
    if scenario.seed_shift:
        said["privacy"].append(SHIFTED)
    return {topic: sentences for topic, sentences in said.items() if sentences}


def _model(scenario: Scenario) -> list[str]:
    task = scenario.task
    says = first_sentence(type(task))
    said = [f"task {task.name}: {says[:1].lower()}{says[1:]}; d = {task.dimension:,} coordinates"]
    if scenario.mask is not None:
        rule, density = scenario.mask.rule, scenario.mask.density
        said.append(f"a mask trains {scenario.dimension:,} of them: rule {rule}, density {density:g}")
    return [*said, *task.contents(), *task.caveats(), *_settings(task)]


def _data(scenario: Scenario) -> list[str]:
    partition, clients = scenario.partition, scenario.participation.clients
    fields = ", ".join(f"{name} {plain(each)}" for name, each in partition if (name, each) != ("seed", None))
    if isinstance(partition, Own):
        return [f"{counted(clients, 'client')}, each with the samples of its owner, which are not counted here"]
    how = f"divided among {counted(clients, 'client')}: {fields}"
    try:
        divided = scenario.task.division(seed=scenario.seed, clients=clients, partition=partition)
        found = division.summary(scenario, divided)
    except DataError as error:
        return [how, f"its samples are not counted here ({error})"]
    sizes, classes = found["sizes"], found["classes"]
    return [
        how,
        f"a client holds {_spread(sizes)} of the {found['samples']:,} training samples, "
        f"of {_spread(classes)} of {len(found['labels'])} classes",
        *divided.notes,
    ]


def _clients(scenario: Scenario) -> list[str]:
    part = scenario.participation
    if part.is_asynchronous:
        who = "all" if part.size == part.clients else f"{part.size:,} of"
        kind, how = "asynchronous rounds", "fresh or late"
        if part.is_streamed:
            kind, how = "a stream", f"in which a report weighs 1/{part.size:,}"
        each = "each report" if part.wanted == 1 else f"every {part.wanted:,} reports"
        return [
            f"{kind}: {who} {part.clients:,} clients are at work at a time ({plain(part.selection)})",
            f"a commit for {each}, {how}",
        ]
    if part.asked == part.clients:
        said = [
            "each round asks the one client" if part.clients == 1 else f"each round asks all {part.clients:,} clients"
        ]
    else:
        about = "" if part.selection.is_fixed_size else "about "
        said = [f"each round asks {about}{part.asked:,} of {part.clients:,} clients ({plain(part.selection)}): each "
                f"client about every {_between(part.clients, part.asked)} rounds"]  # fmt: skip
    if part.over_selection > 1:
        said.append(f"it wants {counted(part.size, 'report')} and asks {part.over_selection:g} times as many clients")
    return said


def _rounds(scenario: Scenario) -> list[str]:
    part = scenario.participation
    if part.is_streamed:
        return _stream(part)
    ends = f"after {number_text(part.deadline_s)} s at the latest" if part.deadline_s is not None else "never sooner"
    least = "without a usable report" if part.quorum == 1 else f"with fewer than {part.quorum:,} usable reports"
    if part.wanted < part.asked:
        enough = f"{part.wanted:,} report{'s have' if part.wanted > 1 else ' has'} come"
    else:
        enough = "those asked have answered"
    if scenario.has_secret_cohorts:
        said = [
            f"a round is over when {enough}, {ends}; each makes a commit, of noise alone without a report",
            f"a sum is divided by {part.size:,}, whoever reports",
        ]
    else:
        said = [f"a round is over when {enough}, {ends}; {least} it makes no commit"]
    said += _deadline(part)
    if part.every_s is not None:
        said.append(f"the next one is due at the next multiple of {number_text(part.every_s)} s")
    if part.may_be_late:
        said.append(
            "a report that comes too late is discarded"
            if part.late is None
            else f"a late report counts for {counted(part.late.max_staleness, 'more round')}, with the weight "
            f"(1 + τ)^−{part.late.discount:g} after τ commits"
        )
    if part.spares_those_at_work:
        said.append("its client is not asked again while it works on such a report")
    return said


def _deadline(part: Participation) -> list[str]:
    if part.deadline is None:
        return []
    deadline = part.deadline
    return [
        f"its deadline adapts: {number_text(deadline.factor)} times the {deadline.quantile:g} quantile of the last "
        f"{deadline.window:,} answers"
    ]


def _stream(part: Participation) -> list[str]:
    said = ["a round is a commit, and the next one begins at once"]
    if part.deadline_s is not None:
        said.append(
            f"a client that has not answered after {number_text(part.deadline_s)} s may be asked again, and a round "
            "without a report ends then without a commit"
        )
    said += _deadline(part)
    if part.late is not None:
        weight = f", with (1 + τ)^−{part.late.discount:g} of its weight after τ commits" if part.late.discount else ""
        said.append(f"a report counts for {counted(part.late.max_staleness, 'round')} after its own{weight}")
    return said


def _algorithm(scenario: Scenario) -> list[str]:
    algorithm: Any = scenario.algorithm
    says = first_sentence(type(algorithm))
    facts = algorithm.facts
    said = [f"{facts.label}: {says}"]
    exact = "" if facts.knows_evaluations else " at least"
    if getattr(algorithm, "epochs", None) is not None:
        exact = " for each batch of its samples"
    if facts.is_dense:
        size = algorithm.sizes(scenario.dimension, 1).report
        said.append(f"a report holds vectors of {size:,} bytes at most, and a plan the newest model")
    elif not scenario.has_server:
        said.append(f"a commit holds {_scalars(scenario)}, and two numbers from which its seed follows")
    else:
        seed = "a seed and " if facts.is_comparable else ""
        held = f"{_scalars(scenario)} and {facts.beside_scalars}" if facts.beside_scalars else _scalars(scenario)
        said.append(f"a report holds {held}, and a plan {seed}the missed commits")
    who = "client" if scenario.has_server else "node"
    times = _over_rounds(scenario, lambda round: algorithm.work(round).evaluations)
    said.append(f"a {who} evaluates the loss {times} times a round{exact} (a gradient counts 3)")
    return [*said, *_settings(algorithm), *facts.caveats]


def _scalars(scenario: Scenario) -> str:
    algorithm: Any = scenario.algorithm
    count = _over_rounds(scenario, lambda round: algorithm.work(round).scalars)
    return f"{count} {'scalar' if count == '1' else 'scalars'} ({algorithm.facts.scalars_formula})"


def _over_rounds(scenario: Scenario, count: Callable[[int], int]) -> str:
    """Return a count that schedules of the algorithm may change: the least and the most of all rounds."""
    algorithm: Any = scenario.algorithm
    schedules = [value for _, value in algorithm if isinstance(value, dict) and 0 in value]
    counts = [count(round) for round in {0}.union(*schedules) if round < scenario.stop.most_rounds]
    return _range(min(counts), max(counts))


def _settings(model: BaseModel) -> list[str]:
    """Return which fields of a model the scenario sets, and which have their defaults."""
    fields = {name: field for name, field in type(model).model_fields.items() if name != "name"}
    texts = {name: f"{field.alias or name} {plain(getattr(model, name))}" for name, field in fields.items()}
    given = [text for name, text in texts.items() if name in model.model_fields_set]
    told = {name for name, field in fields.items() if "default:" in (field.description or "")}  # what none stands for
    left = [name for name in texts if not (name in told and getattr(model, name) is None)]
    parts = (("set", given), ("default", [texts[name] for name in left if texts[name] not in given]))
    return [f"{which}: {', '.join(each)}" for which, each in parts if each]


def _links(scenario: Scenario) -> list[str]:
    network = {name: value for name, value in scenario.network if value is not None}
    compute = dict(scenario.compute)
    time = "simulated" if scenario.clock == "virtual" else "real"
    return [
        f"{time} time; latency {plain(network.pop('latency'))}"
        + "".join(f", {name} {plain(value)}" for name, value in network.items()),
        "local work: " + ", ".join(f"{name} {plain(value)}" for name, value in compute.items()),
    ]


def _lag(scenario: Scenario) -> list[str]:
    part = scenario.participation
    if scenario.algorithm.facts.is_dense:
        return ["a client catches up at once, however many commits it missed: a plan always holds the newest model"]
    asked, unit = (part.wanted, "commits") if part.is_asynchronous else (part.asked, "rounds")
    every = f"{_between(part.clients, asked)} {unit}"
    causes = [f"participation: a client is asked about every {every}"] if asked < part.clients else []
    away = [number for number, fault in enumerate(scenario.faults) if isinstance(fault, AvailabilityFault)]
    losing = [number for number, fault in enumerate(scenario.faults) if fault.may_lose and number not in away]
    for numbers, effect in ((losing, "messages are lost"), (away, "clients are away")):
        if numbers:
            causes.append(f"fault{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}: {effect}")
    if part.deadline_s is not None and not part.is_streamed:
        causes.append("participation.deadline_s: rounds close without clients that are slower")
    unused = "nothing; a smaller cohort (or fraction), a deadline and faults such as dropout and churn would"
    said = ["what makes clients lag here: " + ("; ".join(causes) or unused)]
    replays = "replays all commits that it missed"
    if scenario.algorithm.facts.most_catch_up_bytes is not None:
        replays += ", or is sent their sum, whichever takes fewer bytes"
    return [*said, f"a client {replays}; {UNSET}"]


def _evaluation(scenario: Scenario) -> list[str]:
    every = "every round" if scenario.evaluation.every == 1 else f"every {scenario.evaluation.every:,} rounds"
    whose = "clients' own" if scenario.evaluation.by == "clients" else "the"
    said = [f"{', '.join(scenario.metrics)} on {whose} {scenario.evaluation.split} split, {every}"]
    if scenario.evaluation.by == "clients" and scenario.shows_sums_alone:
        said.append(
            "clients that report in the next round mask sums and counts with their reports, and the server learns what "
            "these add up to; nobody measures the model of the last round"
        )
    elif scenario.evaluation.by == "clients":
        said.append("all clients that are there are asked, and tell sums and counts; the bytes below leave these out")
    if scenario.verify:
        which = "every version" if scenario.verify_every == 1 else f"every {scenario.verify_every:,} versions"
        said.append(f"the digests of all replicas are compared at {which}, so each client has a replica of its own")
    return said


def _end(scenario: Scenario) -> list[str]:
    first, *others = ends(scenario)
    said = [first, *(f"or {each}" for each in others)]
    if scenario.stop.diverged == "continue":
        said.append("training that diverges goes on all the same")
    if scenario.expect:
        said.append("its results are compared with what it expects: " + ", ".join(scenario.expect))
    return said


def _spread(values: dict[str, float]) -> str:
    low, middle, high = (number_text(values[name]) for name in ("min", "median", "max"))
    return low if low == high else f"{low} to {high} (median {middle})"


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _between(clients: int, asked: int) -> str:
    """Return about how many rounds pass until a client is asked again where each asks so many."""
    rounds = clients / asked
    return f"{rounds:.3g}" if rounds < 100 else f"{rounds:,.0f}"
