"""An observer that records the names of events, and refusals."""

from __future__ import annotations

from typing import Any

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Refusal


class EventRecorder(NullObserver):
    """Records the names of all events in `events`, and all refusals in `refusals`, oldest first."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.refusals: list[Refusal] = []

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append(event)
