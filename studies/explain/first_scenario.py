"""A first scenario from a few choices, as a commented YAML file.

Everything in it comes from the schema: what can be chosen from the kinds of `seedbus.discovery`, the comments from the
fields' descriptions, and the defaults, which are written as comments, from the fields. Where the library has a scenario
of the same task and algorithm, the settings of task, partition and algorithm are its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from textwrap import wrap
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seedbus.discovery import Variants
from seedbus.models.partition import PARTITIONS
from seedbus.models.task import TASKS
from seedbus.scenarios.reporting.words import first_sentence
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.loading import library, validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import parse
from seedbus.scenarios.sentences import is_tag

EVALUATION_S = 0.02  # median seconds of one evaluation of the loss, where clients are slow or fall out
PATIENCE = 5  # a deadline is so many times what the work of a client takes
# of an algorithm without a scenario in the library: good on digits' CNN
_MEASURED = {"fedkseed": {"algorithm": {"name": "fedkseed", "learning_rate": 0.005}, "stop": {"rounds": 1000}}}
_SOURCE = "seedbus init"
WIDTH = 120  # characters of a line; a longer comment stands above its field


Choice = str | dict[str, Any]
"""The name of a variant, or its fields with the name."""


@dataclass(frozen=True)
class Choices:
    """What a user chooses.

    Attributes:
        task: the task.
        algorithm: the algorithm.
        partition: the partition; None: that of the library's scenario, or iid.
        clients: number of clients; None: 50, or as many as the algorithm takes.
        cohort: clients asked a round; None: a tenth of them.
        rounds: number of rounds; None: those of the library's scenario that has the algorithm's fields, or 100.
        dropout: probability that a client drops out of a round.
        stragglers: fraction of the clients that are slow.
    """

    task: Choice = "digits"
    algorithm: Choice = "decomfl"
    partition: Choice | None = None
    clients: int | None = None
    cohort: int | None = None
    rounds: int | None = None
    dropout: float = 0.0
    stragglers: float = 0.0


QUESTIONS = {
    "task": "task",
    "algorithm": "algorithm",
    "partition": "partition of the samples",
    "clients": "number of clients",
    "cohort": "clients asked each round",
    "rounds": "number of rounds",
    "dropout": "probability that a client drops out of a round",
    "stragglers": "fraction of slow clients",
}
"""What to ask for each choice, in this order."""

KINDS = {"task": TASKS, "algorithm": ALGORITHMS, "partition": PARTITIONS}
"""The choices that are variants."""


def completed(choices: Choices) -> Choices:
    """Return the choices with defaults in the place of None.

    Raises:
        ScenarioError: task, algorithm or partition is not valid.
    """
    _, _, similar = _similar(choices)
    usual = similar.get("stop", {}).get("rounds", 100) if isinstance(choices.algorithm, str) else 100
    rounds = usual if choices.rounds is None else choices.rounds
    chosen = replace(choices, partition=choices.partition or similar.get("partition", "iid"), rounds=rounds)
    algorithm = _validated(chosen, {"clients": 1}).algorithm
    clients = min(50, algorithm.facts.most_clients or 50) if choices.clients is None else choices.clients
    cohort = max(1, clients // 10, algorithm.facts.rule.fewest_reports) if choices.cohort is None else choices.cohort
    return replace(chosen, clients=clients, cohort=cohort)


def first_scenario(choices: Choices) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: the choices are no valid scenario.
    """
    chosen = completed(choices)
    participation: dict[str, Any] = {"clients": chosen.clients, "cohort": chosen.cohort}
    document = _document(chosen, participation)
    if chosen.dropout or chosen.stragglers:
        evaluations = _validated(chosen, participation).algorithm.work(0).evaluations
        participation["deadline_s"] = max(1, round(PATIENCE * EVALUATION_S * evaluations))
        document["compute"] = {"evaluation": {"distribution": "lognormal", "median": EVALUATION_S, "sigma": 0.3}}
        document["faults"] = _faults(chosen)
    scenario = validate({"name": "first"} | document, _SOURCE)
    head = "# A scenario for `seedbus run`. Lines with # and no space after it are the defaults.\n"
    return "\n".join([head + _origin(choices), *_lines(scenario, document, "", without=("name",)), ""])


def _origin(choices: Choices) -> str:
    name, parts, similar = _similar(choices)
    origin = f"# Fields of {parts} are set as in {name} (`seedbus list`).\n" if name else ""
    if not isinstance(choices.algorithm, str):
        return origin
    of = f"one for {similar['stop']['rounds']:,} rounds of {name or 'digits'}" if similar else "the default, untuned"
    return f"{origin}# The learning rate is {of}; `tune` of a study finds the best for yours.\n"


def _similar(choices: Choices) -> tuple[str, str, dict[str, Any]]:
    """Return the library's scenario of the same task and algorithm: its name, the parts that are taken, and these.

    Of several it is one that has the same model, then one that is named after the algorithm, and the one with the
    shortest name. Of a task that the library has not, a small network has the algorithm as digits have it. Without such
    a scenario name and parts are empty, and the fields are what was measured on digits, if anything was.
    """
    task, algorithm = _name(choices.task), _name(choices.algorithm)
    documents = _documents()
    known = [document["task"]["name"] for document in documents.values()]
    wanted = (task if task in known else "digits", algorithm)
    same = [
        name
        for name, document in documents.items()
        if (document["task"]["name"], document["algorithm"]["name"]) == wanted
    ]
    if not same:
        return "", "", _MEASURED.get(algorithm, {})
    model = choices.task.get("model") if isinstance(choices.task, dict) else None

    def distance(name: str) -> tuple[bool, bool, int, str]:
        has_another = model is not None and documents[name]["task"].get("model") != model
        return has_another, not name.rpartition("/")[2].startswith(str(algorithm)), len(name), name

    name = min(same, key=distance)
    found = documents[name]
    if task not in known:
        return name, "algorithm", {part: found[part] for part in ("algorithm", "stop")}
    return name, "task, partition and algorithm", found


@cache
def _documents() -> dict[str, dict[str, Any]]:
    """Return the library's scenarios by name, as their files have them."""
    return {name: parse(item.read_text("utf-8")) for name, item in library().items()}


def _document(chosen: Choices, participation: dict[str, Any]) -> dict[str, Any]:
    model, rounds = _similar(chosen)[2], chosen.rounds or 0
    return {
        "seed": 1,
        **{name: _fields(getattr(chosen, name), model.get(name), kind.tag) for name, kind in KINDS.items()},
        "participation": participation,
        "evaluation": {"every": max(1, rounds // 20)},
        "stop": {"rounds": rounds},
    }


def _validated(chosen: Choices, participation: dict[str, Any]) -> Scenario:
    return validate({"name": "first"} | _document(chosen, participation), _SOURCE)


def _faults(chosen: Choices) -> list[dict[str, Any]]:
    slow = {"distribution": "lognormal", "median": 5, "sigma": 1}
    dropout = {"fault": "dropout", "probability": chosen.dropout}
    straggler = {"fault": "straggler", "fraction": chosen.stragglers, "factor": slow}
    return [*([dropout] if chosen.dropout else []), *([straggler] if chosen.stragglers else [])]


def _name(choice: Choice) -> Any:
    return choice.get("name") if isinstance(choice, dict) else choice


def _fields(choice: Any, model: Any, tag: str) -> dict[str, Any]:
    """Return the fields of a choice; a bare name has the fields that the library's scenario gives it."""
    if isinstance(choice, dict):
        return choice
    return dict(model) if isinstance(model, dict) and model.get(tag) == choice else {tag: choice}


def _lines(model: BaseModel, given: Mapping[str, Any], indent: str, *, without: Iterable[str] = ()) -> Iterator[str]:
    """Yield the lines of a model's fields: those that are given, and the others as comments with their defaults."""
    fields = type(model).model_fields
    defaults = model.model_dump(mode="json", by_alias=True)
    for attribute in sorted(fields, key=lambda name: not is_tag(fields[name])):  # a variant's name comes first
        name = fields[attribute].alias or attribute
        if name in without:
            continue
        value, said = getattr(model, attribute), _description(model, fields[attribute])
        is_section = isinstance(value, BaseModel) and "distribution" not in type(value).model_fields
        if name not in given:
            default = {} if is_section and not any(map(is_tag, type(value).model_fields.values())) else defaults[name]
            yield from _line(f"{indent}#{name}: {_flow(default)}", said, indent)
        elif is_section:
            yield from _line(f"{indent}{name}:", said, indent)
            yield from _lines(value, given[name], indent + "  ")
        elif value and isinstance(value, list) and isinstance(value[0], BaseModel):
            yield from _line(f"{indent}{name}:", said, indent)
            for entry, each in zip(given[name], value, strict=True):
                yield from _line(f"{indent}  - {_flow(entry)}", first_sentence(type(each)), f"{indent}  ")
        else:
            yield from _line(f"{indent}{name}: {_flow(given[name])}", said, indent)


def _line(text: str, comment: str, indent: str) -> Iterator[str]:
    """Yield a line with its comment, which stands above if there is no room."""
    if len(text) + 4 + len(comment) <= WIDTH:
        yield f"{text}  # {comment}"
        return
    margin = f"{indent}# "
    yield from wrap(comment, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    yield text


def _description(model: BaseModel, field: FieldInfo) -> str:
    """Return what a field means; of one that names a variant, what the variant is; and what can be chosen."""
    said = first_sentence(type(model)) if is_tag(field) else field.description or ""
    kind = _kind(field)
    return said if kind is None else f"{said}: {', '.join(kind.all())}"


def _kind(field: FieldInfo) -> Variants | None:
    """Return the kind of variants from which a field selects one."""
    return next((each for each in field.metadata if isinstance(each, Variants)), None)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, dict):
        if value.get("distribution") == "constant":
            return _flow(value["value"])
        return "{" + ", ".join(f"{name}: {_flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9._/-]*", value) and parse(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
