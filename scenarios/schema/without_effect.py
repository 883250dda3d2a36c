"""Settings that others leave without effect. They are told, and not refused: a study may vary the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seedbus.bus.envelope import Kind
from seedbus.bus.network import Constant
from seedbus.scenarios.faults.base import MessageSelector

_FIELDS = {
    "snapshot": "lag",
    "pull": "lag",
    "ask": "secure_aggregation",
    "tell": "secure_aggregation",
    "flood": "topology",
    "have": "topology",
}
"""Kind of message → the field of a scenario without which no such message is sent."""
_NO_WORK = "it multiplies the time of local work, and compute.evaluation and compute.replay are 0"


def why_idle(scenario: Any, fault: Any) -> str:
    """Return why a fault can strike nothing in a run of the scenario; "" if it may strike something."""
    if isinstance(fault, MessageSelector) and (kind := fault.kind) is not None:
        field = _FIELDS.get(kind)
        if field is not None and getattr(scenario, field) is None:
            return f"without {field} no message of the kind {kind} is sent"
        goes = "up" if Kind[kind.upper()].is_upward else "down"
        if fault.direction not in ("both", goes):
            return f"messages of the kind {kind} go {goes}, and direction is {fault.direction}"
    return _NO_WORK if fault.only_multiplies and _takes_no_time(scenario) else ""


def caveats(scenario: Any) -> list[str]:
    """Return a sentence for each fault and each other setting of a `Scenario` that changes nothing in its run."""
    reasons = [why_idle(scenario, fault) for fault in scenario.faults]
    said = [f"faults.{number} strikes nothing: {reason}" for number, reason in enumerate(reasons) if reason]
    return said + [f"{field} has no effect: {reason}" for field, reason in _idle(scenario)]


def _idle(scenario: Any) -> Iterator[tuple[str, str]]:
    """Yield fields that are set, and why each has no effect."""
    who = scenario.participation
    if scenario.compute.slowness != type(scenario.compute).model_fields["slowness"].default and _takes_no_time(
        scenario
    ):
        yield "compute.slowness", _NO_WORK
    if scenario.topology is None:
        if who.over_selection > 1 and who.size == who.clients:
            yield "participation.over_selection", f"a cohort is already all {who.clients:,} clients"
        if who.selection.policy != "uniform" and who.asked == who.clients:
            yield "participation.selection", f"each round asks all {who.clients:,} clients"
        if who.late is not None and not (who.may_be_late or who.is_asynchronous):
            yield (
                "participation.late",
                "each round waits for all that it asks; deadline_s or over_selection ends it earlier",
            )
    if not scenario.verify and scenario.verify_every != 1:
        yield "verify_every", "without verify no digests are compared"


def _takes_no_time(scenario: Any) -> bool:
    return all(each == Constant() for each in (scenario.compute.evaluation, scenario.compute.replay))
