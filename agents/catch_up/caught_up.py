"""What a process tells its user once it is where the run is: after it has joined late, or has come back.

It looks at messages only until then, which is in the first round that asks clients of the process. So a round that does
not ask a client for a while is not told as an absence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from seedbus.agents.catch_up.client import Replicas
from seedbus.bus import EVALUATOR, Envelope, Kind, MalformedEnvelope, decode
from seedbus.bus.text import counted
from seedbus.bus.transport import hosted, merged
from seedbus.pieces import Frame

_CATCHES_UP = frozenset({Kind.PLAN, Kind.MEASURE, Kind.SNAPSHOT})


class Followers(Protocol):
    """What is asked of a process's followers (`agents/client/worker.py`)."""

    host: Any
    longest: int

    def join(self, host: int, nonce: bytes = b"") -> list[Frame]: ...

    def welcome(self, frame: Frame) -> None: ...

    def handle_all(self, frames: Sequence[Frame]) -> Iterator[list[Frame]]: ...


class _Reached(NamedTuple):
    """How a client got to a version: how many commits it had missed, by what, and in how many bytes."""

    missed: int
    by: str
    size: int


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
        self._reached: dict[int, _Reached] = {}
        self._round = 0  # in which these were asked

    def join(self, host: int, nonce: bytes) -> list[Frame]:
        self._held = {client: self._replicas.version(client) for client in self._followers.host.clients}
        self._of_snapshots.clear()
        self._reached.clear()
        return self._followers.join(host, nonce)

    def welcome(self, frame: Frame) -> None:
        self._followers.welcome(frame)  # raises where it is a refusal
        newest = decode(frame).base
        is_back, self._has_joined = self._has_joined, True
        self._of_welcome = len(frame)
        self._waits = bool(self._held) and newest > min(self._held.values())
        if is_back and self._held and not self._waits:
            is_one = len(self._held) == 1
            back = "is back, and has" if is_one else "are back, and have"
            self._note("caught-up", what=f"{_named(self._held)} {back} missed no commit")

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
        if self._reached and envelope.round > self._round:
            self._tell()
        elif envelope.kind is Kind.SNAPSHOT:
            self._of_snapshots[client] += size
        elif self._replicas.version(client) == envelope.base and client not in self._reached:
            self._reached[client], self._round = self._how(envelope, before, size), envelope.round
            if len(self._reached) == len(self._held):
                self._tell()

    def _how(self, envelope: Envelope, before: int, size: int) -> _Reached:
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
        return _Reached(envelope.base - held, " and ".join(ways), from_snapshot + size)

    def _tell(self) -> None:
        """Tell of all clients that the first round has asked; of others, that it has not."""
        self._waits = False
        reached, is_one = self._reached.values(), len(self._reached) == 1
        least, most = min(each.missed for each in reached), max(each.missed for each in reached)
        missed = counted(most, "commit") if least == most else f"{least:,} to {counted(most, 'commit')}"
        if most:
            ways = dict.fromkeys(each.by for each in reached if each.by)
            size = self._of_welcome + sum(each.size for each in reached)
            by = " or ".join(ways) + ("" if is_one or len(ways) > 1 else " each")
            what = f"missed {missed}{'' if is_one else ' each'}, and caught up by {by}, in {size:,} bytes"
        else:
            what = "missed no commit"
        others = len(self._held) - len(reached)
        waiting = f"; {counted(others, 'other')} of this process {'was' if others == 1 else 'were'} not asked yet"
        who = f"{_named(self._reached)} {'is' if is_one else 'are'} at round {self._round}"
        told = f"{who}: {'it' if is_one else 'they'} had {what}{waiting if others else ''}"
        self._note("caught-up", what=told)


def _named(clients: Iterable[int]) -> str:
    return hosted(merged([(client, client) for client in clients]), evaluates=False)
