"""Random scenarios for `seedbus stress`, with every fault, policy and algorithm that needs no download.

A seed determines a scenario: everything is drawn by key. Faults and links are drawn field by field from the values that
their classes accept, so a new fault is included without a change here.
"""

from __future__ import annotations

import types
import typing
from importlib.util import find_spec
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seedbus.agents.client.relabelling import Relabel
from seedbus.agents.server.collusion import Collude
from seedbus.algorithms.shaped import Shaped
from seedbus.bus import Compute, Network
from seedbus.bus.keyed_random import KeyedRandom, below
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS

_SHARES = (0.0, 0.05, 0.2, 0.5, 0.9, 1.0)
_SCALES = {"shape": (1.0, 5.0), "sigma": (0.01, 1.5)}  # such tails stay within simulated time
_MAX_TRIES = 40
_DIGITS = {"name": "digits", "model": "softmax", "batch_size": 8}
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


class Chooser:
    """A sequence of keyed random draws.

    Args:
        seed: the key.
        purpose: a second key, for independent sequences of one seed.
    """

    def __init__(self, seed: int, purpose: str = "stress") -> None:
        self._random = KeyedRandom(seed, 0, purpose)
        self._seed = seed
        self._purpose = purpose
        self._count = 0

    def number(self) -> float:
        """Draw a number from [0, 1)."""
        self._count += 1
        return self._random.draw(self._count)

    def whole(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        self._count += 1
        return low + below(high - low + 1, self._seed, self._purpose, self._count)

    def one(self, choices: typing.Sequence[Any]) -> Any:
        return choices[self.whole(0, len(choices) - 1)]

    def chance(self, probability: float) -> bool:
        return self.number() < probability

    def scale(self, low: float, high: float) -> float:
        """Draw a log-uniform number from low to high, rounded to three significant digits."""
        return float(f"{low * (high / low) ** self.number():.3g}")


def document(seed: int) -> dict[str, Any]:
    """Return a random scenario as the document that a YAML file would hold."""
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
        for field in ("late", "buffer"):
            drawn["participation"].pop(field, None)
    kinds = [fault for name, fault in FAULTS.all().items() if name != HOSTILE and not _needs_text(fault)]
    chosen = [_instance(choose.one(kinds), choose, clients, rounds) for _ in range(choose.whole(0, 4))]
    drawn["faults"] = [fault for fault in chosen if fault is not None]
    if not getattr(ALGORITHMS.all()[algorithm["name"]], "has_round_seeds", True):
        drawn["faults"] = _each_by_itself(drawn)
    if any(issubclass(FAULTS.all()[fault["fault"]], Relabel) for fault in drawn["faults"]):
        drawn["task"] = _DIGITS  # its samples have classes
    for name, model in (("network", Network), ("compute", Compute)):
        if choose.chance(0.7) and (section := _instance(model, choose, clients, rounds)) is not None:
            drawn[name] = section
    if not _is_dense(algorithm["name"]) and choose.chance(0.4):
        drawn["lag"] = _lag(choose)
    choose_hostile = Chooser(seed, HOSTILE)  # separate draws, which leave all other draws of a seed unchanged
    if choose_hostile.chance(0.3):
        hostile = _instance(FAULTS.all()[HOSTILE], choose_hostile, clients, rounds)
        if hostile is not None:
            drawn["faults"].append(hostile)
    choose_arithmetic = Chooser(seed, "bfloat16")
    if _takes_bfloat16(algorithm) and choose_arithmetic.chance(0.3):
        drawn["algorithm"] = algorithm | {"arithmetic": "bfloat16"}
    choose_secure = Chooser(seed, "secure aggregation")
    if clients > 3 and choose_secure.chance(0.15) and find_spec("cryptography") is not None:
        drawn |= _secure(choose_secure, drawn)
        if _is_dense(drawn["algorithm"]["name"]):
            drawn.pop("lag", None)
        return drawn
    choose_stream = Chooser(seed, "stream")
    if choose_stream.chance(0.15):
        drawn |= _stream(choose_stream, drawn)
    return drawn


def _stream(choose: Chooser, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what changes where reports commit as they come."""
    policy = {name: drawn["participation"][name] for name in ("clients", "deadline_s", "selection")}
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
    algorithm: dict[str, Any] = {
        "name": "decomfl",
        "perturbations": choose.whole(2, 5),
        "learning_rate": choose.scale(1e-4, 1e-2),
        "arithmetic": "integer",
        "precision": "int32",
    }
    if choose.chance(0.3):
        algorithm = {
            "name": choose.one(("fedavg", "fedacg", "feddyn", "fedadam")),
            "local_steps": choose.whole(1, 3),
            "learning_rate": choose.scale(1e-3, 1e-1),
            "compression": "fixed-point",
            "weighting": "uniform",
        }
    return {
        "secure_aggregation": {
            "threshold": choose.one((0.5, 0.6, 0.8)),
            "neighbours": choose.one(("all", "all", 2, 4)),
        },
        "algorithm": algorithm,
        "participation": policy | {"cohort": cohort, "quorum": choose.whole(2, cohort)},
        "faults": [fault for fault in _each_by_itself(drawn) if fault["fault"] != "corrupt"],
    }


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
        "selection": {"policy": choose.one(("uniform", "uniform", "rarest", "power-of-choice"))},
    }
    if choose.chance(0.3):
        drawn["over_selection"] = choose.one((1.3, 2.0))
    if choose.chance(0.3):
        drawn["deadline"] = {"quantile": choose.one((0.5, 0.9)), "window": choose.whole(1, 20)}
    if takes_late and choose.chance(0.5):
        drawn["late"] = {"discount": choose.one((0.0, 0.5, 2.0)), "max_staleness": choose.whole(1, 20)}
        if choose.chance(0.5) and "over_selection" not in drawn:
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


def _instance(model: type[BaseModel], choose: Chooser, clients: int, rounds: int) -> dict[str, Any] | None:
    """Draw fields until the model accepts them together; None if it accepts none of `_MAX_TRIES` draws."""
    for _ in range(_MAX_TRIES):
        drawn = {}
        for name, field in model.model_fields.items():
            if field.default is PydanticUndefined or get_origin(field.annotation) is Literal or choose.chance(0.4):
                drawn[name] = _value(field.annotation, name, field, choose, clients, rounds)
        if not {"active", "start"}.isdisjoint(drawn):  # numbers of all clients, and a selection may have fewer
            drawn = {name: value for name, value in drawn.items() if name not in ("clients", "fraction")}
        try:
            return model.model_validate(drawn).model_dump(mode="json")
        except ValidationError:
            continue
    return None


def _value(annotation: Any, name: str, field: FieldInfo, choose: Chooser, clients: int, rounds: int) -> Any:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return choose.one(parts)
    if origin is typing.Annotated:
        return _value(parts[0], name, field, choose, clients, rounds)
    if origin in (Union, types.UnionType):
        return _value(choose.one(parts), name, field, choose, clients, rounds)
    if annotation is type(None):
        return None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _instance(annotation, choose, clients, rounds)
    if origin in (list, tuple):
        if name == "clients":
            return sorted({choose.whole(0, clients - 1) for _ in range(choose.whole(1, clients))})
        if origin is tuple and Ellipsis not in parts:
            return [_value(part, name, field, choose, clients, rounds) for part in parts]
        inner = [part for part in parts if part is not Ellipsis]
        return [_value(choose.one(inner), name, field, choose, clients, rounds) for _ in range(choose.whole(1, 3))]
    if annotation is bool:
        return choose.chance(0.5)
    if annotation is int:
        return _whole(name, field, choose, clients, rounds)
    return _real(name, field, choose)


def _whole(name: str, field: FieldInfo, choose: Chooser, clients: int, rounds: int) -> int:
    low, high = _bounds(field, 0, 8)
    if "round" in name:
        return choose.whole(int(low), max(int(low), rounds))
    if name in ("active", "target", "start"):
        return choose.whole(int(low), clients)
    return choose.whole(int(low), int(min(high, low + 8)))


def _real(name: str, field: FieldInfo, choose: Chooser) -> float:
    low, high = _bounds(field, 0.0, 1e6)
    if high <= 1:
        return float(choose.one([share for share in _SHARES if low <= share <= high]))
    if name in _SCALES:
        return choose.scale(*_SCALES[name])
    if name.endswith("mbps"):
        return choose.scale(1e-3, 10)
    if choose.chance(0.1):
        return float(low)
    return min(high, max(low, choose.scale(0.01, 5)))


def _bounds(field: FieldInfo, low: float, high: float) -> tuple[float, float]:
    for rule in field.metadata:
        low = max(low, getattr(rule, "ge", None) or getattr(rule, "gt", None) or low)
        high = min(high, getattr(rule, "le", None) or getattr(rule, "lt", None) or high)
    return low, high


def _needs_text(fault: type[BaseModel]) -> bool:
    """Whether a fault has a text field: such a fault reads a file, which cannot be drawn."""
    return any(field.annotation is str for field in fault.model_fields.values())
