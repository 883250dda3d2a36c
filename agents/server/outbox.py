"""The coordinator's one way to send: every message that it or one of its parts wants sent, in order."""

from __future__ import annotations

from collections.abc import Iterable

from seedbus.agents.messages import Outgoing
from seedbus.bus import Envelope
from seedbus.bus.envelope import NO_TALLY


class Outbox:
    """Messages to be sent.

    Attributes:
        messages: the messages, oldest first.
    """

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []

    def put(self, envelope: Envelope) -> None:
        """Add a message that carries no scalars or seeds of the algorithm."""
        self.messages.append((envelope, NO_TALLY))

    def extend(self, messages: Iterable[Outgoing]) -> None:
        self.messages += messages

    def take(self) -> list[Outgoing]:
        """Return all messages and empty the outbox."""
        taken, self.messages = self.messages, []
        return taken
