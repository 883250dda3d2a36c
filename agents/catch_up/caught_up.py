"""What a process tells its user once it is where the run is: after it has joined late, or has come back.

It looks at messages only until then. So a round that does not ask a client for a while is not told as an absence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from seedbus.agents.catch_up.client import Replicas
from seedbus.bus import EVALUATOR, Envelope, Kind, MalformedEnvelope, decode
from seedbus.bus.text import counted
from seedbus.pieces import Frame

_CATCHES_UP = frozenset({Kind.PLAN, Kind.MEASURE, Kind.SNAPSHOT})


class Followers(Protocol):
    """What is asked of a process's followers (`agents/client/worker.py`)."""

    host: Any
    longest: int

    def join(self, host: int, nonce: bytes = b"") -> list[Frame]: ...

    def welcome(self, frame: Frame) -> None: ...

    def handle_all(self, frames: Sequence[Frame]) -> Iterator[list[Frame]]: ...


class TellsCaughtUp:
    """A process's followers, and one line about how they got to the newest version, each time that they join.

    Args:
        followers: the followers.
        note: is told "caught-up", with a sentence.

    Attributes:
        longest: as of the followers.
    """

    def __init__(self, followers: Followers, note: Callable[..., None]) -> None:
        self.longest = followers.longest
        self._followers = followers
        self._note = note
        self._has_joined = False
        self._waits = False
        self._held: dict[int, int] = {}  # client → version when it joined
        self._of_snapshots = Counter[int]()  # client → bytes
        self._of_welcome = 0  # bytes

    def join(self, host: int, nonce: bytes) -> list[Frame]:
        self._held = {client: self._replicas.version(client) for client in self._followers.host.clients}
        self._of_snapshots.clear()
        return self._followers.join(host, nonce)

    def welcome(self, frame: Frame) -> None:
        self._followers.welcome(frame)  # raises where it is a refusal
        newest = decode(frame).base
        is_back, self._has_joined = self._has_joined, True
        self._of_welcome = len(frame)
        self._waits = bool(self._held) and newest > min(self._held.values())
        if is_back and self._held and not self._waits:
            self._note("caught-up", what=f"{self._who(min(self._held))} is back, and has missed no commit")

    def handle(self, frame: Frame) -> list[Frame]:
        (answers,) = self.handle_all([frame])
        return answers

    def handle_all(self, frames: Sequence[Frame]) -> Iterator[list[Frame]]:
        if not self._waits:
            yield from self._followers.handle_all(frames)
            return
        read = [self._read(frame) for frame in frames]
        before = {each.client: self._replicas.version(each.client) for each in read if each is not None}
        for frame, envelope, answers in zip(frames, read, self._followers.handle_all(frames), strict=True):
            if envelope is not None and self._waits:
                self._handled(envelope, len(frame), before[envelope.client])
            yield answers

    @property
    def _replicas(self) -> Replicas:
        replicas: Replicas = self._followers.host.replicas
        return replicas

    def _read(self, frame: Frame) -> Envelope | None:
        """Return a message that brings a client nearer to the newest version; None of all others."""
        try:
            envelope = decode(frame)
        except MalformedEnvelope:
            return None
        is_for_client = envelope.client != EVALUATOR and envelope.client in self._held
        return envelope if envelope.kind in _CATCHES_UP and is_for_client else None

    def _handled(self, envelope: Envelope, size: int, before: int) -> None:
        client = envelope.client
        if envelope.kind is Kind.SNAPSHOT:
            self._of_snapshots[client] += size
        elif self._replicas.version(client) == envelope.base:
            self._waits = False
            self._tell(envelope, before, size)

    def _tell(self, envelope: Envelope, before: int, size: int) -> None:
        client, held = envelope.client, self._held[envelope.client]
        facts = self._followers.host.algorithm.facts
        from_snapshot, last = self._of_snapshots[client], envelope.base - before
        ways = []
        if before > held and not from_snapshot:  # in simulated time all that is missed comes with the WELCOME
            last = envelope.base - held
        if from_snapshot:
            ways.append("a snapshot that the server got from another process")
        if last and facts.is_dense:
            ways.append("the model from the server")
        elif last:
            is_sum = last > 1 and facts.most_catch_up_bytes is not None
            ways.append(f"{'the sum of ' if is_sum else ''}{counted(last, 'commit')} from the server")
        missed = envelope.base - held
        how = f", and caught up by {' and '.join(ways)}, in {self._of_welcome + from_snapshot + size:,} bytes"
        what = f"missed {counted(missed, 'commit')}{how}" if missed else "missed no commit"
        self._note("caught-up", what=f"{self._who(client)} is at round {envelope.round}: it had {what}")

    def _who(self, client: int) -> str:
        others = len(self._held) - 1
        return f"client {client}" + (f" (with {counted(others, 'other')} of this process)" if others else "")
