"""Random scenarios for `seedbus stress`: every fault, policy and algorithm that needs no network, out of their schemas.

A seed is a scenario: everything is drawn by key. Faults and links are drawn field by field from what their classes
accept, so a new fault takes part without a word here.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seedbus.bus import Compute, Network
from seedbus.bus.keyed_random import KeyedRandom, below
from seedbus.scenarios.schema.discovery import algorithms, faults

_SHARES = (0.0, 0.05, 0.2, 0.5, 0.9, 1.0)
_SCALES = {"shape": (1.0, 5.0), "sigma": (0.01, 1.5)}  # tails that do not reach the end of simulated time
_TRIES = 40
HOSTILE = "hostile"
SCALAR = ("decomfl", "hiso")


class Chooser:
    """Draws by key; each question is another draw."""

    def __init__(self, seed: int, what: str = "stress") -> None:
        self._random, self._seed, self._what, self._count = KeyedRandom(seed, 0, what), seed, what, 0

    def number(self) -> float:
        self._count += 1
        return self._random.draw(self._count)

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        self._count += 1
        return low + below(high - low + 1, self._seed, self._what, self._count)

    def one(self, choices: typing.Sequence[Any]) -> Any:
        return choices[self.whole(0, len(choices) - 1)]

    def chance(self, probability: float) -> bool:
        return self.number() < probability

    def scale(self, low: float, high: float) -> float:
        """Log-uniform, three digits."""
        return float(f"{low * (high / low) ** self.number():.3g}")


def document(seed: int) -> dict[str, Any]:
    """A whole scenario, as a file would say it."""
    choose = Chooser(seed)
    clients, rounds = choose.whole(1, 16), choose.whole(3, 40)
    algorithm = _algorithm(choose)
    found = {
        "name": f"stress-{seed}",
        "seed": choose.whole(0, 2**31),
        "task": _task(choose),
        "algorithm": algorithm,
        "participation": _participation(choose, clients, takes_late=algorithm["name"] != "hiso"),
        "evaluation": {"every": choose.whole(1, 10)},
        "stop": {"rounds": rounds},
        "verify": True,
        "verify_every": choose.one((1, 1, 1, 2, 5)),
    }
    known = [fault for name, fault in faults().items() if name != HOSTILE and not _needs_text(fault)]
    struck = [_instance(choose.one(known), choose, clients, rounds) for _ in range(choose.whole(0, 4))]
    found["faults"] = [fault for fault in struck if fault is not None]
    for name, model in (("network", Network), ("compute", Compute)):
        if choose.chance(0.7) and (drawn := _instance(model, choose, clients, rounds)) is not None:
            found[name] = drawn
    if not _is_dense(algorithm["name"]) and choose.chance(0.4):
        found["lag"] = _lag(choose)
    liars = Chooser(seed, HOSTILE)  # apart: what else a seed has stays as it is
    if liars.chance(0.3) and (lie := _instance(faults()[HOSTILE], liars, clients, rounds)) is not None:
        found["faults"].append(lie)
    return found


def _is_dense(name: str) -> bool:
    kind: Any = algorithms()[name]
    return bool(kind().is_dense)


def _task(choose: Chooser) -> dict[str, Any]:
    if choose.chance(0.05):
        return {"name": "digits", "model": "softmax", "batch_size": 8}
    return {"name": "quadratic", "dimension": choose.one((1, 2, 50, 300, 5000))}


def _algorithm(choose: Chooser) -> dict[str, Any]:
    if choose.chance(0.3):
        return _dense(choose)
    found: dict[str, Any] = {
        "name": choose.one(SCALAR),
        "perturbations": choose.whole(2, 5),
        "local_steps": choose.whole(1, 3),
        "learning_rate": choose.scale(1e-4, 1e-2),
        "estimator": choose.one(("forward", "central")),
    }
    if choose.chance(0.3):
        found["perturbations"] = {0: choose.whole(2, 5), choose.whole(1, 20): choose.whole(2, 5)}
    if found["name"] == "decomfl":
        found |= {"momentum": choose.one((0.0, 0.5, 0.9)), "directions": choose.one(("gaussian", "rademacher"))}
    return found


def _dense(choose: Chooser) -> dict[str, Any]:
    made: list[Any] = [kind() for name, kind in algorithms().items() if name not in SCALAR]
    able = [algorithm for algorithm in made if algorithm.is_dense and not algorithm.needs_outputs]
    found: dict[str, Any] = {
        "name": choose.one([algorithm.name for algorithm in able]),
        "learning_rate": choose.scale(1e-3, 0.1),
        "local_steps": choose.whole(1, 3),
        "momentum": choose.one((0.0, 0.9)),
        "clip": choose.one((None, 1.0)),
    }
    if choose.chance(0.3):
        found["aggregation"] = choose.one(("median", "trimmed-mean", "krum", "clipped"))
    return found


def _participation(choose: Chooser, clients: int, *, takes_late: bool) -> dict[str, Any]:
    cohort = choose.whole(1, clients)
    found: dict[str, Any] = {
        "clients": clients,
        "cohort": cohort,
        "quorum": choose.whole(1, cohort) if choose.chance(0.5) else 1,
        "deadline_s": choose.scale(0.3, 20),
        "selection": {"policy": choose.one(("uniform", "uniform", "rarest", "power-of-choice"))},
    }
    if choose.chance(0.3):
        found["over_selection"] = choose.one((1.3, 2.0))
    if choose.chance(0.3):
        found["deadline"] = {"quantile": choose.one((0.5, 0.9)), "window": choose.whole(1, 20)}
    if takes_late and choose.chance(0.5):
        found["late"] = {"discount": choose.one((0.0, 0.5, 2.0)), "max_staleness": choose.whole(1, 20)}
        if choose.chance(0.5) and "over_selection" not in found:
            found["buffer"] = choose.whole(int(found["quorum"]), cohort)
    return found


def _lag(choose: Chooser) -> dict[str, Any]:
    """Snapshots of many chunks, even of small tasks."""
    found: dict[str, Any] = {
        "source": choose.one(("evaluator", "peer")),
        "chunk_bytes": choose.one((64, 256, 4096)),
        "window": choose.whole(1, 8),
    }
    if choose.chance(0.7):
        found["snapshot_after_commits"] = choose.whole(1, 20)
    if choose.chance(0.3) or "snapshot_after_commits" not in found:
        found["snapshot_after_bytes"] = choose.whole(1, 2000)
    return found


def _instance(model: type[BaseModel], choose: Chooser, clients: int, rounds: int) -> dict[str, Any] | None:
    """Fields that the model accepts together; None if none were found."""
    for _ in range(_TRIES):
        drawn = {}
        for name, field in model.model_fields.items():
            if field.default is PydanticUndefined or get_origin(field.annotation) is Literal or choose.chance(0.4):
                drawn[name] = _value(field.annotation, name, field, choose, clients, rounds)
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
    """True of faults that are about a file."""
    return any(field.annotation is str for field in fault.model_fields.values())
