"""An observer that records the names of events."""

from __future__ import annotations

from typing import Any

from seedbus.agents.observer import NullObserver


class EventRecorder(NullObserver):
    """Records the names of all events, oldest first, in `events`."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append(event)
