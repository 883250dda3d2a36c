"""Classes, values and the end of a scenario in words."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from seedbus.bus.network import Constant
from seedbus.bus.text import counted
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.remaining_time import duration
from seedbus.scenarios.schema.scenario import Scenario


def first_sentence(model: type[BaseModel]) -> str:
    """Return the first sentence of a class's docstring without its full stop, which that of "et al. 2019" is not."""
    return re.split(r"\. (?![\d(a-z])", " ".join((model.__doc__ or "").split()))[0].rstrip(".")


def plain(value: Any) -> str:
    """Return a field's value as text: the fields of a model in brackets after its name."""
    if isinstance(value, Constant):
        return plain(value.value)
    if isinstance(value, BaseModel):
        fields = {name: each for name, each in value.model_dump(mode="json").items() if each is not None}
        words = [str(each) for each in fields.values() if isinstance(each, str)][:1]
        rest = ", ".join(f"{name} {plain(each)}" for name, each in fields.items() if each not in words)
        return " ".join([*words, f"({rest})"]) if rest else "".join(words)
    if isinstance(value, dict):
        if any(isinstance(name, str) for name in value):  # no schedule
            return "{" + ", ".join(f"{name}: {plain(each)}" for name, each in value.items()) + "}"
        return ", ".join(f"{plain(each)} from round {first}" for first, each in value.items())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return number_text(value) if isinstance(value, int | float) else str(value)


def ends(scenario: Scenario) -> list[str]:
    """Return what ends a run, one of which is there at least."""
    stop = scenario.stop
    found = [] if stop.rounds is None else [f"after {counted(stop.rounds, 'round')}"]
    if stop.target is not None:
        found.append(f"when {stop.target.words} is {stop.target.direction} {number_text(stop.target.value)}")
    if stop.bytes is not None:
        found.append(f"past {stop.bytes:,} bytes")
    if stop.simulated_s is not None:
        kind = "simulated" if scenario.clock == "virtual" else "real"
        found.append(f"after the round in which {duration(stop.simulated_s)} of {kind} time are over")
    if stop.epsilon is not None:
        found.append(f"before a commit with which ε could exceed {stop.epsilon:g}")
    return found
