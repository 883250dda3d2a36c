"""Settings that other settings leave without effect: they are refused; but faults, and slowness, are told."""

from __future__ import annotations

from typing import Any

from seedbus.bus.envelope import Kind
from seedbus.bus.network import Constant

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


def refuse_idle(scenario: Any) -> None:
    """Raise `ValueError` if a `Scenario` with a server has a setting that cannot change anything in its run."""
    who = scenario.participation
    if who.over_selection > 1 and who.size == who.clients:
        raise ValueError(
            f"participation.over_selection is {who.over_selection:g}, and a cohort is already all {who.clients:,} "
            "clients; set a smaller cohort, or leave over_selection out"
        )
    if who.selection.policy != "uniform" and who.asked == who.clients:
        raise ValueError(
            f"participation.selection: {who.selection.policy} has no choice, because each round asks all "
            f"{who.clients:,} clients; set a smaller cohort, or leave selection out"
        )
    if who.late is not None and not (who.may_be_late or who.is_asynchronous):
        raise ValueError(
            "participation.late: no report is late, because each round waits for all that it asks; set deadline_s "
            "too, or over_selection or buffer, or leave late out"
        )
    if not scenario.verify and scenario.verify_every != 1:
        raise ValueError(
            f"verify_every is {scenario.verify_every}, and without verify no digests are compared; set verify: true, "
            "or leave verify_every out"
        )


def why_idle(scenario: Any, fault: Any) -> str:
    """Return why a fault can strike nothing in a run of the scenario; "" if it may strike something."""
    kind, direction = getattr(fault, "kind", None), getattr(fault, "direction", "both")
    field = _FIELDS.get(kind or "")
    if field is not None and getattr(scenario, field) is None:
        return f"without {field} no message of the kind {kind} is sent"
    if kind is not None and direction != "both":
        goes = "up" if Kind[kind.upper()].is_upward else "down"
        return "" if direction == goes else f"messages of the kind {kind} go {goes}, and direction is {direction}"
    return _NO_WORK if fault.only_multiplies and _takes_no_time(scenario) else ""


def caveats(scenario: Any) -> list[str]:
    """Return a sentence for each fault of a `Scenario` that can strike nothing, and for slowness of no work."""
    reasons = [why_idle(scenario, fault) for fault in scenario.faults]
    said = [f"faults.{number} strikes nothing: {reason}" for number, reason in enumerate(reasons) if reason]
    is_slow = scenario.compute.slowness != type(scenario.compute).model_fields["slowness"].default
    return [*said, f"compute.slowness has no effect: {_NO_WORK}"] if is_slow and _takes_no_time(scenario) else said


def _takes_no_time(scenario: Any) -> bool:
    return all(each == Constant() for each in (scenario.compute.evaluation, scenario.compute.replay))
