"""Random scenarios for `seedbus stress`, with every fault, policy and algorithm that needs no download.

A seed determines a scenario: everything is drawn by key, and each part as if there were no others. What does not go
together is found as for any scenario (seedbus/capabilities.py): then one of the two parts is drawn again, or left out.
Faults and links are drawn field by field from the values that their classes accept, so a new fault is included without
a change here.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from seedbus.agents.policies.participation import Participation
from seedbus.bus import Compute, Network
from seedbus.capabilities import Objection
from seedbus.discovery import KINDS
from seedbus.models.errors import DataError
from seedbus.models.partition import PARTITIONS
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.scenario import FEATURES, Scenario
from seedbus.studies.stress.draws import SPAN_S, Chooser, instance
from seedbus.studies.stress.fault_files import followed, follows_file

_DIGITS = {"name": "digits", "model": "softmax", "batch_size": 8}
_UPLINKS = {kind.plural: list(kind.all().values()) for kind in KINDS if kind.plural in ("codecs", "channels")}
_ALGORITHMS: dict[str, Any] = {name: kind() for name, kind in ALGORITHMS.all().items()}
_NEEDED = (
    "name",
    "seed",
    "task",
    "algorithm",
    "participation",
    "evaluation",
    "stop",
    "verify",
    "verify_every",
    "faults",
)
_MOST_CHANGES = 60
HOSTILE = "hostile"


def document(seed: int) -> dict[str, Any]:
    """Return a random scenario as the document that a YAML file would hold, beside the files of its faults."""
    for attempt in count():
        choose = Chooser(seed, f"stress {attempt}")
        drawn = any_document(choose, seed)
        for _ in range(_MOST_CHANGES):
            refusal = _refusal(drawn)
            if refusal is None:
                return drawn
            drawn = _changed(choose, drawn, refusal)
    raise AssertionError


def _refusal(drawn: dict[str, Any]) -> Exception | None:
    """Return why a scenario is not accepted; None: it is."""
    try:
        scenario = Scenario.model_validate(drawn)
        if "partition" in drawn:  # no client is without samples, and no class without a client
            clients = scenario.participation.clients
            scenario.task.division(seed=scenario.seed, clients=clients, partition=scenario.partition)
    except ValidationError as error:
        found = error.errors()[0].get("ctx", {}).get("error")
        return found if isinstance(found, Objection) else error
    except DataError as error:
        return error
    return None


def _changed(choose: Chooser, drawn: dict[str, Any], refusal: Exception) -> dict[str, Any]:
    """Return a scenario with one of the parts that do not go together drawn again or left out, rather a small one."""
    sections = [name for name in drawn if name not in _NEEDED]
    if not isinstance(refusal, Objection):
        return _without(choose, drawn, choose.one((*sections, *["participation", "algorithm"] * (1 + len(sections)))))
    paths = [each.path for each in (refusal.needer, refusal.other) if each is not None]
    again = [path for path in paths if path in _NEEDED]
    small = [path for path in paths if path not in sections]
    return _without(choose, drawn, choose.one((again or small or paths) if choose.chance(0.97) else paths))


def _without(choose: Chooser, drawn: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a scenario without what is at a path, or with another part of that kind if it needs one."""
    name, _, inner = path.partition(".")
    field = inner.partition(".")[0]
    if name == "faults":
        return drawn | {"faults": [each for number, each in enumerate(drawn["faults"]) if str(number) != field]}
    if field and field in drawn.get(name, {}):
        return drawn | {name: {key: value for key, value in drawn[name].items() if key != field}}
    if name == "algorithm":
        return drawn | {name: _algorithm(choose)}
    if name == "participation":
        return drawn | {name: _participation(choose, drawn[name]["clients"])}
    if name == "task":
        return drawn | {name: choose.one((_DIGITS, {"name": "quadratic", "dimension": 50}))}
    rest = {key: value for key, value in drawn.items() if key != name}
    # without a server all but the clients was left out of this
    return (
        rest | {"participation": _participation(choose, drawn["participation"]["clients"])}
        if name in WITHOUT_SERVER
        else rest
    )


def any_document(choose: Chooser, seed: int) -> dict[str, Any]:
    """Return a scenario of parts that are drawn each by itself, which may not go together."""
    clients, rounds = choose.whole(1, 16), choose.whole(3, 40)
    drawn: dict[str, Any] = {
        "name": f"stress-{seed}",
        "seed": choose.whole(0, 2**31),
        "task": _DIGITS if choose.chance(0.05) else _quadratic(choose),
        "algorithm": _algorithm(choose),
        "participation": _participation(choose, clients),
        "evaluation": {"every": choose.whole(1, 10)},
        "stop": _stop(choose, rounds),
        "verify": True,
        "verify_every": choose.one((1, 1, 1, 2, 5)),
    }
    kinds = [fault for name, fault in FAULTS.all().items() if name != HOSTILE and not follows_file(fault)]
    chosen = [choose.one(kinds) for _ in range(choose.whole(0, 4))]
    hostile = [FAULTS.all()[HOSTILE]] * choose.chance(0.3)
    faults = (instance(kind, choose, clients, rounds) for kind in [*chosen, *hostile])
    drawn["faults"] = [fault for fault in faults if fault is not None]
    drawn["faults"] += followed(choose, drawn)
    for name, model in (("network", Network), ("compute", Compute)):
        if choose.chance(0.7) and (section := instance(model, choose, clients, rounds)) is not None:
            drawn[name] = section
    for name, chance, draw in SECTIONS:
        if choose.chance(chance):
            drawn[name] = draw(choose, clients)
    if any(FEATURES[name].draws_secrets for name in FEATURES.keys() & drawn.keys()):
        # a damaged share or key makes the sum a random one: no two runs have the same
        drawn["faults"] = [fault for fault in drawn["faults"] if fault["fault"] != "corrupt"]
    return drawn


def _quadratic(choose: Chooser) -> dict[str, Any]:
    return {"name": "quadratic", "dimension": choose.one((1, 2, 50, 300, 5000))}


def _stop(choose: Chooser, rounds: int) -> dict[str, Any]:
    drawn: dict[str, Any] = {"rounds": rounds, "diverged": "continue"}  # a client that lies must not end a run
    if choose.chance(0.15):
        drawn["simulated_s"] = choose.scale(*SPAN_S)
    if choose.chance(0.1):
        drawn["bytes"] = choose.whole(1, 50_000)
    if choose.chance(0.1):  # which most runs reach soon, or never
        limit = {"value": choose.scale(0.1, 1e4), "direction": "below", "smoothed": choose.chance(0.5)}
        drawn["target"] = limit | {"metric": "loss"}
    if choose.chance(0.3):
        drawn["epsilon"] = choose.scale(1, 100)
    return drawn


def _algorithm(choose: Chooser) -> dict[str, Any]:
    """Draw an algorithm and its settings until they are accepted together."""
    while True:
        name = choose.one([name for name, each in _ALGORITHMS.items() if each.facts.is_dense == choose.chance(0.3)])
        own = _ALGORITHMS[name]
        drawn = _dense(choose) if own.facts.is_dense else _scalar_only(choose)
        if (examples := getattr(own, "examples", ())) and choose.chance(0.4):
            drawn |= choose.one(examples)
        fields = type(own).model_fields
        drawn = {"name": name} | {field: value for field, value in drawn.items() if not _is_fixed(fields.get(field))}
        try:
            ALGORITHMS.all()[name].model_validate(drawn)
        except ValidationError:
            continue
        if not own.facts.needs_outputs:  # such networks take long
            return drawn


def _is_fixed(field: Any) -> bool:
    """Whether a field is missing, or accepts one value only."""
    return field is None or (get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1)


def _scalar_only(choose: Chooser) -> dict[str, Any]:
    count = choose.whole(2, 5)
    return {
        "perturbations": {0: count, choose.whole(1, 20): choose.whole(2, 5)} if choose.chance(0.3) else count,
        "local_steps": choose.whole(1, 3),
        "learning_rate": choose.scale(1e-4, 1e-2),
        "estimator": choose.one(("forward", "central")),
        "momentum": choose.one((0.0, 0.0, 0.5, 0.9)),
        "directions": choose.one(("gaussian", "rademacher")),
        "arithmetic": choose.one(("float", "float", "bfloat16")),
        "pool": choose.one((1, 7, 64, 4096)),
    }


def _dense(choose: Chooser) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "learning_rate": choose.scale(1e-3, 0.1),
        "local_steps": choose.whole(1, 3),
        "momentum": choose.one((0.0, 0.9)),
        "clip": choose.one((None, 1.0)),
    }
    if choose.chance(0.3):
        drawn["aggregation"] = choose.one(("median", "trimmed-mean", "krum", "clipped"))
    match choose.one(("plain", "plain", "plain", "codec", "codec", "channel", "nnm")):
        case "codec":
            codec = instance(choose.one(_UPLINKS["codecs"]), choose, 0, 0)
            drawn |= {"compression": codec, "error_feedback": choose.chance(0.3)}
        case "channel":
            drawn["channel"] = instance(choose.one(_UPLINKS["channels"]), choose, 0, 0)
        case "nnm":
            drawn["aggregation"] = {"rule": "nnm", "then": choose.one(("median", "trimmed-mean", "krum"))}
    return drawn


def _participation(choose: Chooser, clients: int) -> dict[str, Any]:
    """Draw who takes part until it is accepted; a round has a deadline, so that no lost message stops a run."""
    while True:
        cohort = choose.whole(1, clients)
        selection = choose.one(("uniform", "uniform", "rarest", "power-of-choice", "oort", "poisson", "poisson"))
        drawn: dict[str, Any] = {
            "clients": clients,
            "cohort": cohort,
            "quorum": choose.whole(1, cohort) if choose.chance(0.5) else 1,
            "deadline_s": choose.scale(0.3, 20),
            "selection": {"policy": selection},
        }
        late = {"discount": choose.one((0.0, 0.5, 2.0)), "max_staleness": choose.whole(1, 40)}
        deadline = {"quantile": choose.one((0.5, 0.9)), "window": choose.whole(1, 20)}
        for field, chance, value in (
            ("mode", 0.4, "stream"),
            ("over_selection", 0.2, choose.one((1.3, 2.0))),
            ("deadline", 0.3, deadline),
            ("late", 0.3, late),
            ("buffer", 0.3, choose.whole(1, cohort)),
            ("every_s", 0.15, choose.scale(0.3, 20)),
        ):
            if choose.chance(chance):
                drawn[field] = value
        try:
            Participation.model_validate(drawn)
        except ValidationError:
            continue
        return drawn


def _mask(choose: Chooser, clients: int) -> dict[str, Any]:
    rule = choose.one(("largest", "smallest", "random", "gradient"))
    return {"rule": rule, "density": choose.one((0.01, 0.5, 0.9))}


def _division(choose: Chooser, clients: int) -> dict[str, Any]:
    kinds = [kind for kind in PARTITIONS.all().values() if kind.by == "labels"]
    return instance(choose.one(kinds), choose, clients, 0) or {"kind": "iid"}


def _groups(choose: Chooser, clients: int) -> dict[str, Any]:
    members = [choose.whole(0, clients - 1) for _ in range(choose.whole(1, max(1, clients - 1)))]
    return {"some": members, "first": [0]}


WITHOUT_SERVER = {name for name, feature in FEATURES.items() if not feature.has_server}
SECTIONS = (
    *((name, feature.chance, feature.drawn) for name, feature in FEATURES.items() if name not in WITHOUT_SERVER),
    ("mask", 0.1, _mask),
    ("partition", 0.05, _division),
    ("client_groups", 0.15, _groups),
    *((name, FEATURES[name].chance, FEATURES[name].drawn) for name in FEATURES if name in WITHOUT_SERVER),
)
"""Sections that a random scenario may have: name, chance of being there, and what draws it."""
