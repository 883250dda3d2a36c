"""Gates that hold followers up at a given round, so that a test and a run do not race."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from seedbus.bus import Kind, decode
from seedbus.bus.transport import Follower


class Gate:
    """Lets a run go on up to a round, and no further.

    Attributes:
        pace_s: the least seconds that each wait takes.
    """

    def __init__(self) -> None:
        self.pace_s = 0.0
        self._limit = 0
        self._changed = threading.Condition()

    def open_to(self, limit: int) -> None:
        """Let the rounds below `limit` pass."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait(self, round: int) -> None:
        time.sleep(self.pace_s)
        with self._changed:
            self._changed.wait_for(lambda: round < self._limit)


@dataclass
class Gated:
    """A follower that handles messages of a kind only once its gate is open to their rounds."""

    follower: Follower
    gate: Gate
    kind: Kind

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return self.follower.join(host, nonce)

    def welcome(self, frame: bytes) -> None:
        self.follower.welcome(frame)

    def handle(self, frame: bytes) -> list[bytes]:
        envelope = decode(frame)
        if envelope.kind is self.kind:
            self.gate.wait(envelope.round)
        return self.follower.handle(frame)
