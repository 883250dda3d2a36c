"""Faults in plain words: what each does, to whom, when and how often."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seedbus.bus.text import counted, listed
from seedbus.scenarios.faults.base import ClientSelector, Fault, MessageSelector, RoundSelector, TrafficSelector
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.words import first_sentence, plain
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.without_effect import of_faults

MAX_NAMED = 8  # clients listed by number
_SELECTORS = (MessageSelector, TrafficSelector, RoundSelector, ClientSelector)


def sentences(scenario: Scenario) -> list[str]:
    """Return for each fault of a scenario a sentence."""
    clients = scenario.participation.clients
    said = []
    whys = of_faults(scenario)
    for (fault, random), why in zip(scenario.faults_with_draws, whys, strict=True):
        chosen = fault.chosen(clients, random) if isinstance(fault, ClientSelector) else None
        said.append(_sentence(fault, chosen, clients) + (f"; it {why}" if why else ""))
    return said


def _sentence(fault: Fault, chosen: Iterable[int] | None, clients: int) -> str:
    does = first_sentence(type(fault))
    name = str(type(fault).model_fields["fault"].default)
    selectors = next((each.model_fields for each in _SELECTORS if isinstance(fault, each)), ())
    said = {"fault", *fault.idle_fields, *selectors}
    own = {each: getattr(fault, each) for each in type(fault).model_fields if each not in said}
    rest = ", ".join(f"{each} {plain(value)}" for each, value in own.items() if value is not None)
    who = [] if chosen is None else [_who(list(chosen), clients)]
    return "; ".join([f"{name}: {does[:1].lower()}{does[1:]}", *who, *_when(fault), *([rest] if rest else [])])


def _who(chosen: Sequence[int], clients: int) -> str:
    if len(chosen) == clients:
        return "all clients"
    named = listed(chosen, MAX_NAMED)
    return f"{len(chosen):,} of {counted(clients, 'client')}" + (f" ({named})" if chosen else "")


def _when(fault: Fault) -> list[str]:
    parts = []
    if isinstance(fault, MessageSelector) and fault.kind is not None:
        parts.append(f"messages of the kind {fault.kind}")
    if isinstance(fault, TrafficSelector) and fault.direction != "both":
        parts.append("to the server" if fault.direction == "up" else "from the server")
    if isinstance(fault, RoundSelector):
        if fault.probability < 1:
            each = " for each message" if isinstance(fault, MessageSelector) else ""
            parts.append(f"with probability {fault.probability:g}{each}")
        parts.append(_span("round", fault.at_round, fault.for_rounds, fault.every_rounds) or "in every round")
    if isinstance(fault, TrafficSelector) and (span := _span("second", fault.at_s, fault.for_s, fault.every_s)):
        parts.append(span)
    return parts


def _span(unit: str, start: float, length: float | None, period: float | None) -> str:
    """Return a window in words; "" if it is always open."""
    if not start and length is None:
        return ""
    many = "" if length is None else f" for {number_text(length)} {unit}s"
    again = "" if period is None else f", again every {number_text(period)}"
    return f"from {unit} {number_text(start)}{many}{again}"
