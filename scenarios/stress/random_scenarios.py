"""Random scenarios for `seedbus stress`, with every fault, policy and algorithm that needs no download.

A seed determines a scenario: everything is drawn by key. Faults and links are drawn field by field from the values that
their classes accept, so a new fault is included without a change here.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from seedbus.agents.client.relabelling import Relabel
from seedbus.agents.server.collusion import Collude
from seedbus.algorithms.shaped import Shaped
from seedbus.bus import Compute, Network
from seedbus.discovery import KINDS
from seedbus.models.errors import DataError
from seedbus.models.partition import PARTITIONS, Partition
from seedbus.models.task import TASKS
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.stress.draws import SPAN_S, Chooser, instance
from seedbus.scenarios.stress.fault_files import followed, follows_file
from seedbus.scenarios.stress.gossip_scenarios import without_server

_DIGITS = {"name": "digits", "model": "softmax", "batch_size": 8}
_UPLINKS = {kind.plural: list(kind.all().values()) for kind in KINDS if kind.plural in ("codecs", "channels")}
HOSTILE = "hostile"
_ALGORITHMS: list[Any] = [algorithm() for algorithm in ALGORITHMS.all().values()]
SCALAR = tuple(  # the task drawn has no layers
    each.name
    for each in _ALGORITHMS
    if not each.is_dense and each.most_clients is None and not isinstance(each, Shaped)
)
_TAKE_SINGLE = frozenset(  # on which a rule that combines reports has no effect
    each.name for each in _ALGORITHMS if each.is_dense and any(method.uses_reports for method in each.methods)
)
_TAKE_LATE = frozenset(each.name for each in _ALGORITHMS if each.takes_late)


def document(seed: int) -> dict[str, Any]:
    """Return a random scenario as the document that a YAML file would hold, beside the files of its faults."""
    choose = Chooser(seed)
    clients, rounds = choose.whole(1, 16), choose.whole(3, 40)
    algorithm = _algorithm(choose)
    drawn: dict[str, Any] = {
        "name": f"stress-{seed}",
        "seed": choose.whole(0, 2**31),
        "task": _task(choose),
        "algorithm": algorithm,
        "participation": _participation(choose, clients, takes_late=algorithm["name"] in _TAKE_LATE),
        "evaluation": {"every": choose.whole(1, 10)},
        "stop": {"rounds": rounds, "diverged": "continue"},  # a client that lies must not decide when a run is over
        "verify": True,
        "verify_every": choose.one((1, 1, 1, 2, 5)),
    }
    if "aggregation" in algorithm:  # a rule that compares reports takes no late ones
        _leave_out_late(drawn)
    kinds = [fault for name, fault in FAULTS.all().items() if name != HOSTILE and not follows_file(fault)]
    chosen = [instance(choose.one(kinds), choose, clients, rounds) for _ in range(choose.whole(0, 4))]
    drawn["faults"] = [fault for fault in chosen if fault is not None]
    if not getattr(ALGORITHMS.all()[algorithm["name"]], "has_round_seeds", True):
        drawn["faults"] = _each_by_itself(drawn)
    if any(issubclass(FAULTS.all()[fault["fault"]], Relabel) for fault in drawn["faults"]):
        drawn["task"] = _DIGITS  # its samples have classes
    for name, model in (("network", Network), ("compute", Compute)):
        if choose.chance(0.7) and (section := instance(model, choose, clients, rounds)) is not None:
            drawn[name] = section
    if not _is_dense(algorithm["name"]) and choose.chance(0.4):
        drawn["lag"] = _lag(choose)
    # what follows has draws of its own, which leave all other draws of a seed unchanged
    choose_hostile = Chooser(seed, HOSTILE)
    if choose_hostile.chance(0.3):
        hostile = instance(FAULTS.all()[HOSTILE], choose_hostile, clients, rounds)
        if hostile is not None:
            drawn["faults"].append(hostile)
    drawn["faults"] += followed(Chooser(seed, "files"), drawn)
    choose_arithmetic = Chooser(seed, "bfloat16")
    if _takes_bfloat16(algorithm) and choose_arithmetic.chance(0.3):
        drawn["algorithm"] = algorithm | {"arithmetic": "bfloat16"}
    choose_updates = Chooser(seed, "updates")
    if _is_dense(algorithm["name"]) and choose_updates.chance(0.5):
        _change_updates(choose_updates, drawn)
    choose_secure, choose_stream = Chooser(seed, "secure aggregation"), Chooser(seed, "stream")
    if clients > 3 and choose_secure.chance(0.15) and find_spec("cryptography") is not None:
        drawn |= _secure(choose_secure, drawn)
    elif choose_stream.chance(0.15):
        drawn |= _stream(choose_stream, drawn)
    choose_privacy = Chooser(seed, "privacy")
    if "mode" not in drawn["participation"] and choose_privacy.chance(0.15) and find_spec("dp_accounting") is not None:
        _make_private(choose_privacy, drawn)
    if _is_dense(drawn["algorithm"]["name"]):
        drawn.pop("lag", None)
    _choose_data(Chooser(seed, "data"), drawn)
    choose_end = Chooser(seed, "end")
    if choose_end.chance(0.15):
        drawn["stop"]["simulated_s"] = choose_end.scale(*SPAN_S)
    if choose_end.chance(0.1):
        drawn["stop"]["bytes"] = choose_end.whole(1, 50_000)
    if choose_end.chance(0.1):  # which most runs reach soon, or never
        limit = {"value": choose_end.scale(0.1, 1e4), "direction": "below", "smoothed": choose_end.chance(0.5)}
        drawn["stop"]["target"] = limit | {"metric": "loss"}
    if drawn.get("privacy", {}).get("cohorts") == "secret":
        _leave_out_telling(drawn)
    choose_pace = Chooser(seed, "pace")
    if not {"buffer", "mode"} & set(drawn["participation"]) and choose_pace.chance(0.15):
        drawn["participation"]["every_s"] = choose_pace.scale(0.3, 20)
    choose_groups = Chooser(seed, "groups")
    if clients > 1 and choose_groups.chance(0.15):
        members = [choose_groups.whole(0, clients - 1) for _ in range(choose_groups.whole(1, clients - 1))]
        drawn["client_groups"] = {"some": members, "first": [0]}
    choose_gossip = Chooser(seed, "gossip")
    return without_server(choose_gossip, drawn) if choose_gossip.chance(0.1) else drawn


def _change_updates(choose: Chooser, drawn: dict[str, Any]) -> None:
    """Draw how the updates of a dense algorithm travel, or are mixed."""
    algorithm = drawn["algorithm"]
    takes_sums = "aggregation" not in algorithm and algorithm["name"] not in _TAKE_SINGLE
    how = choose.one(("codec", "codec", "channel", "nnm"))
    if how == "codec":
        codec = instance(choose.one(_UPLINKS["codecs"]), choose, 0, 0)
        drawn["algorithm"] = algorithm | {"compression": codec, "error_feedback": choose.chance(0.3)}
    elif takes_sums and how == "channel":
        channel = instance(choose.one(_UPLINKS["channels"]), choose, 0, 0)
        drawn["algorithm"] = algorithm | {"channel": channel}
        _leave_out_late(drawn)
    elif takes_sums:
        then = choose.one(("median", "trimmed-mean", "krum"))
        drawn["algorithm"] = algorithm | {"aggregation": {"rule": "nnm", "then": then}}
        _leave_out_late(drawn)


def _leave_out_late(drawn: dict[str, Any]) -> None:
    for field in ("late", "buffer"):
        drawn["participation"].pop(field, None)


def _choose_data(choose: Chooser, drawn: dict[str, Any]) -> None:
    """Draw how samples are divided, and which coordinates are trained."""
    if drawn["task"] == _DIGITS and choose.chance(0.5):
        kinds = [kind for kind in PARTITIONS.all().values() if kind.by == "labels"]
        kind = choose.one(kinds)
        partition = instance(kind, choose, drawn["participation"]["clients"], 0)
        if partition is not None and _divides(kind.model_validate(partition), drawn):
            drawn["partition"] = partition
    if choose.chance(0.1):
        rules = ("largest", "smallest", "random", *(["gradient"] if drawn["task"] == _DIGITS else []))
        drawn["mask"] = {"rule": choose.one(rules), "density": choose.one((0.01, 0.5, 0.9))}


def _divides(partition: Partition, drawn: dict[str, Any]) -> bool:
    """Whether a partition leaves no client of the run without samples, and no class without a client."""
    try:
        task = TASKS.all()["digits"].model_validate(drawn["task"])
        task.division(seed=drawn["seed"], clients=drawn["participation"]["clients"], partition=partition)
    except DataError:
        return False
    return True


def _make_private(choose: Chooser, drawn: dict[str, Any]) -> None:
    """Draw noise, and leave out what shows more of a client than the noise hides."""
    if "secure_aggregation" not in drawn:
        drawn["algorithm"] = _summed(choose)
        drawn["faults"] = _each_by_itself(drawn)
        _leave_out_late(drawn)
        drawn["participation"]["selection"] = {"policy": "uniform"}
    elif drawn["algorithm"]["name"] == "feddyn":  # its clients remember what is not clipped
        drawn["algorithm"] = drawn["algorithm"] | {"name": "fedavg"}
    mechanism = choose.one(("central", "distributed")) if "secure_aggregation" in drawn else "central"
    is_secret = mechanism == "central" and choose.chance(0.5) and "secure_aggregation" not in drawn
    if is_secret:  # all clients may be drawn
        drawn["faults"] = [fault for fault in drawn["faults"] if not hasattr(FAULTS.all()[fault["fault"]], "schedule")]
        drawn["participation"]["quorum"] = 1
        if choose.chance(0.5):
            drawn["participation"] |= {"selection": {"policy": "poisson"}}
            drawn["participation"].pop("over_selection", None)
    drawn["privacy"] = {
        "mechanism": mechanism,
        "clip": choose.whole(100, 2**20),
        "noise_multiplier": choose.scale(0.3, 10),
        "cohorts": "secret" if is_secret else "public",
    }
    if choose.chance(0.3):
        drawn["stop"]["epsilon"] = choose.scale(1, 100)


def _leave_out_telling(drawn: dict[str, Any]) -> None:
    """Leave out what would tell of secret cohorts."""
    for section, fields in (
        ("participation", ("deadline",)),
        ("network", ("shared_up_mbps", "shared_down_mbps")),
        ("stop", ("bytes", "simulated_s")),
    ):
        for field in fields:
            drawn.get(section, {}).pop(field, None)


def _stream(choose: Chooser, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what changes where reports commit as they come."""
    policy = {name: drawn["participation"][name] for name in ("clients", "deadline_s", "selection")}
    if policy["selection"]["policy"] == "poisson":
        policy["selection"] = {"policy": "uniform"}
    cohort = choose.whole(1, policy["clients"])
    policy |= {"mode": "stream", "cohort": cohort, "quorum": 1}
    if choose.chance(0.3):
        policy["buffer"] = choose.whole(1, cohort)
    if choose.chance(0.3):
        policy["late"] = {"discount": choose.one((0.0, 0.5)), "max_staleness": choose.whole(1, 40)}
    algorithm: dict[str, Any] = {
        "perturbations": choose.whole(2, 5),
        "local_steps": choose.whole(1, 2),
        "learning_rate": choose.one((0.003, {0: 0.003, 10: 0.001})),
    }
    if choose.chance(0.5):
        algorithm |= {"name": "fedkseed", "pool": choose.one((7, 1024))}
    else:
        algorithm |= {"name": "decomfl", "arithmetic": "integer", "precision": choose.one(("float32", "int32"))}
    return {"algorithm": algorithm, "participation": policy, "faults": _each_by_itself(drawn)}


def _each_by_itself(drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the faults that do not compare reports."""
    return [fault for fault in drawn["faults"] if not issubclass(FAULTS.all()[fault["fault"]], Collude)]


def _secure(choose: Chooser, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what changes where reports are masked.

    No message is damaged: a damaged share or key makes the sum a random one, so that no two runs have the same bits.
    """
    policy = {name: drawn["participation"][name] for name in ("clients", "deadline_s")}
    cohort = choose.whole(3, policy["clients"])
    algorithm = _summed(choose, "feddyn")
    return {
        "secure_aggregation": {
            "threshold": choose.one((0.5, 2 / 3, 0.8)),
            "neighbours": choose.one(("all", "all", 2, 4)),
        },
        "algorithm": algorithm,
        "participation": policy | {"cohort": cohort, "quorum": choose.whole(2, cohort)},
        "faults": [fault for fault in _each_by_itself(drawn) if fault["fault"] != "corrupt"],
    }


def _summed(choose: Chooser, *others: str) -> dict[str, Any]:
    """Return an algorithm that adds whole numbers up; others: further dense ones."""
    algorithm: dict[str, Any] = {
        "name": "decomfl",
        "perturbations": choose.whole(2, 5),
        "learning_rate": choose.scale(1e-4, 1e-2),
        "arithmetic": "integer",
        "precision": "int32",
    }
    if choose.chance(0.3):
        algorithm = {
            "name": choose.one(("fedavg", "fedacg", *others, "fedadam")),
            "local_steps": choose.whole(1, 3),
            "learning_rate": choose.scale(1e-3, 1e-1),
            "compression": "fixed-point",
            "weighting": "uniform",
        }
    return algorithm


def _is_dense(name: str) -> bool:
    kind: Any = ALGORITHMS.all()[name]
    return bool(kind().is_dense)


def _takes_bfloat16(drawn: dict[str, Any]) -> bool:
    """Whether an algorithm with float32 coordinates can have coordinates in bfloat16 instead."""
    field = ALGORITHMS.all()[drawn["name"]].model_fields.get("arithmetic")
    return field is not None and "bfloat16" in get_args(field.annotation) and drawn.get("arithmetic") != "integer"


def _task(choose: Chooser) -> dict[str, Any]:
    if choose.chance(0.05):
        return _DIGITS
    return {"name": "quadratic", "dimension": choose.one((1, 2, 50, 300, 5000))}


def _algorithm(choose: Chooser) -> dict[str, Any]:
    if choose.chance(0.3):
        return _dense(choose)
    drawn: dict[str, Any] = {
        "name": choose.one(SCALAR),
        "perturbations": choose.whole(2, 5),
        "local_steps": choose.whole(1, 3),
        "learning_rate": choose.scale(1e-4, 1e-2),
        "estimator": choose.one(("forward", "central")),
    }
    if choose.chance(0.3):
        drawn["perturbations"] = {0: choose.whole(2, 5), choose.whole(1, 20): choose.whole(2, 5)}
    if drawn["name"] == "decomfl":
        drawn |= {"momentum": choose.one((0.0, 0.5, 0.9)), "directions": choose.one(("gaussian", "rademacher"))}
        if not drawn["momentum"]:
            drawn["arithmetic"] = choose.one(("float", "integer"))
    if drawn["name"] == "fedkseed":
        drawn["pool"] = choose.one((1, 7, 64, 4096))
    fields = ALGORITHMS.all()[drawn["name"]].model_fields
    return {name: value for name, value in drawn.items() if name == "name" or not _is_fixed(fields[name])}


def _is_fixed(field: FieldInfo) -> bool:
    """Whether a field accepts one value only."""
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def _dense(choose: Chooser) -> dict[str, Any]:
    suitable = [algorithm for algorithm in _ALGORITHMS if algorithm.is_dense and not algorithm.needs_outputs]
    drawn: dict[str, Any] = {
        "name": choose.one([algorithm.name for algorithm in suitable]),
        "learning_rate": choose.scale(1e-3, 0.1),
        "local_steps": choose.whole(1, 3),
        "momentum": choose.one((0.0, 0.9)),
        "clip": choose.one((None, 1.0)),
    }
    if choose.chance(0.3) and drawn["name"] not in _TAKE_SINGLE:
        drawn["aggregation"] = choose.one(("median", "trimmed-mean", "krum", "clipped"))
    return drawn


def _participation(choose: Chooser, clients: int, *, takes_late: bool) -> dict[str, Any]:
    cohort = choose.whole(1, clients)
    drawn: dict[str, Any] = {
        "clients": clients,
        "cohort": cohort,
        "quorum": choose.whole(1, cohort) if choose.chance(0.5) else 1,
        "deadline_s": choose.scale(0.3, 20),
        "selection": {"policy": choose.one(("uniform", "rarest", "power-of-choice", "oort", "poisson"))},
    }
    is_fixed_size = drawn["selection"]["policy"] != "poisson"
    if is_fixed_size and choose.chance(0.3):
        drawn["over_selection"] = choose.one((1.3, 2.0))
    if choose.chance(0.3):
        drawn["deadline"] = {"quantile": choose.one((0.5, 0.9)), "window": choose.whole(1, 20)}
    if takes_late and choose.chance(0.5):
        drawn["late"] = {"discount": choose.one((0.0, 0.5, 2.0)), "max_staleness": choose.whole(1, 20)}
        if is_fixed_size and choose.chance(0.5) and "over_selection" not in drawn:
            drawn["buffer"] = choose.whole(int(drawn["quorum"]), cohort)
    return drawn


def _lag(choose: Chooser) -> dict[str, Any]:
    """Draw snapshot settings with small chunks, so that snapshots of small models have many of them too."""
    drawn: dict[str, Any] = {
        "source": choose.one(("evaluator", "peer")),
        "chunk_bytes": choose.one((64, 256, 4096)),
        "window": choose.whole(1, 8),
    }
    if choose.chance(0.7):
        drawn["snapshot_after_commits"] = choose.whole(1, 20)
    if choose.chance(0.3) or "snapshot_after_commits" not in drawn:
        drawn["snapshot_after_bytes"] = choose.one(("snapshot", choose.whole(1, 2000)))
    return drawn
