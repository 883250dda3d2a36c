"""Random draws for `seedbus stress`: by key, and field by field of what a settings' class accepts."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seedbus.bus.keyed_random import KeyedRandom, below

_SHARES = (0.0, 0.05, 0.2, 0.5, 0.9, 1.0)
_SCALES = {"shape": (1.0, 5.0), "sigma": (0.01, 1.5)}  # such tails stay within simulated time
_MAX_TRIES = 40
SPAN_S = (0.02, 100.0)
"""Runs without a deadline that waits last for milliseconds, others for minutes."""


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


def instance(model: type[BaseModel], choose: Chooser, clients: int, rounds: int) -> dict[str, Any] | None:
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
        return instance(annotation, choose, clients, rounds)
    if origin in (list, tuple):
        if name == "clients":
            return sorted({choose.whole(0, clients - 1) for _ in range(choose.whole(1, clients))})
        if origin is tuple and Ellipsis not in parts:
            return [_value(part, name, field, choose, clients, rounds) for part in parts]
        inner = [part for part in parts if part is not Ellipsis]
        return [_value(choose.one(inner), name, field, choose, clients, rounds) for _ in range(choose.whole(1, 3))]
    if annotation is bool:
        return choose.chance(0.5)
    if annotation is str:
        return name
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
