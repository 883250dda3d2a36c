"""The coordinator's one way to send: every message that it or one of its parts wants sent, in order."""

from __future__ import annotations

from collections.abc import Iterable

from seedbus.agents.messages import Outgoing
from seedbus.bus import Envelope
from seedbus.bus.envelope import NO_TALLY


class Outbox:
    """Messages to be sent, oldest first."""

    def __init__(self) -> None:
        self._messages: list[Outgoing] = []

    def put(self, envelope: Envelope) -> None:
        """Add a message that carries no scalars or seeds of the algorithm."""
        self._messages.append((envelope, NO_TALLY))

    def extend(self, messages: Iterable[Outgoing]) -> None:
        self._messages += messages

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def take(self) -> list[Outgoing]:
        """Return all messages and empty the outbox."""
        taken, self._messages = self._messages, []
        return taken
