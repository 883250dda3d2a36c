"""Faults of messages that a run does not send."""

from __future__ import annotations

from typing import Any

_FIELDS = {
    "snapshot": "lag",
    "pull": "lag",
    "ask": "secure_aggregation",
    "tell": "secure_aggregation",
    "flood": "topology",
    "have": "topology",
}
"""Kind of message → the field of a scenario without which no such message is sent."""


def why_none_is_sent(scenario: Any, fault: Any) -> str:
    """Return why no message of a fault's kind is ever sent in a run of the scenario; "" if some may be."""
    field = _FIELDS.get(getattr(fault, "kind", None) or "")
    if field is None or getattr(scenario, field) is not None:
        return ""
    return f"without {field} no message of the kind {fault.kind} is sent"


def caveats(scenario: Any) -> list[str]:
    """Return a sentence for each fault of a `Scenario` that can strike no message."""
    reasons = [why_none_is_sent(scenario, fault) for fault in scenario.faults]
    return [f"faults.{number} strikes nothing: {reason}" for number, reason in enumerate(reasons) if reason]
