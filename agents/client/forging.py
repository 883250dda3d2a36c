"""Clients that lie in the protocol: what they answer is replaced, on its way out, by what a scenario has them say.

Tampering changes the numbers of a report that is otherwise in order; a forged answer need not even be one. What a
process is, it stays: it folds, trains and remembers as if it were honest, and tells the simulation the truth about
that. So a process that takes a dead one's place tells the same lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from seedbus.agents.client.worker import Followers
from seedbus.bus import Envelope, Kind, MalformedEnvelope, decode
from seedbus.bus.codec import first_bytes
from seedbus.bus.keyed_random import KeyedRandom, with_random

_NOTES, _JOINS = first_bytes(Kind.WAKE), first_bytes(Kind.JOIN)
_TRUTHS = frozenset({Kind.PLAN, Kind.SNAPSHOT})  # a JOIN in answer to these tells the simulation where the client is


class Occasion(NamedTuple):
    """What a client was sent, and what it would answer. proofs: its process's; has_digests: whether its report is to
    have them."""

    asked: Envelope
    frame: bytes
    answers: list[Envelope]
    proofs: Mapping[str, bytes]
    has_digests: bool


@runtime_checkable
class Forge(Protocol):
    """Implemented by faults that are about how clients keep to the protocol. Its repr keys its draws: all that it is,
    and no more."""

    def forge(self, occasion: Occasion, random: KeyedRandom) -> list[bytes] | None:
        """The frames that the client answers with; None where this does not strike."""
        ...


class Forging:
    """A process's followers, of whom some clients lie. At most one of the forges strikes an answer: the first, in the
    order of what they say, that has something to say of it."""

    def __init__(self, good: Followers, things: Sequence[Any], *, seed: int, clients: int, verify_every: int) -> None:
        self._good, self._verify_every, self._proofs = good, verify_every, good.host.member_proof
        forges = [thing for thing in things if isinstance(thing, Forge)]
        self._forges = sorted(with_random(forges, seed, clients), key=lambda forge: repr(forge[0]))

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        frames = self._good.join(host, nonce)
        self._proofs = self._good.host.member_proof
        return frames

    def welcome(self, frame: bytes) -> None:
        self._good.welcome(frame)

    def handle(self, frame: bytes) -> list[bytes]:
        (answers,) = self.handle_all([frame])
        return answers

    def handle_all(self, frames: Sequence[bytes]) -> Iterator[list[bytes]]:
        for frame, answers in zip(frames, self._good.handle_all(frames), strict=True):
            yield self._said(frame, answers)

    def _said(self, frame: bytes, answers: list[bytes]) -> list[bytes]:
        try:
            asked = decode(frame)
        except MalformedEnvelope:
            return answers
        words = [answer for answer in answers if answer[:2] != _NOTES]
        is_truth = asked.kind in _TRUTHS and any(word[:2] == _JOINS for word in words)
        if asked.client < 0 or not words or is_truth:
            return answers
        has_digests = self._verify_every > 0 and asked.base % self._verify_every == 0
        occasion = Occasion(asked, frame, [decode(word) for word in words], self._proofs, has_digests)
        for forge, random in self._forges:
            said = forge.forge(occasion, random)
            if said is not None:
                return said + [answer for answer in answers if answer[:2] == _NOTES]
        return answers


def forges(things: Sequence[Any]) -> bool:
    """Whether anybody is to lie in the protocol."""
    return any(isinstance(thing, Forge) for thing in things)
