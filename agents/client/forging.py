"""Clients that break the protocol: their answers are replaced, before they are sent, by frames that a fault makes.

Tampering changes the values of a report that is otherwise in order; a forged answer need not be a valid message at all.
The process itself stays honest: it folds, trains and keeps its state, and its notes to the simulation are true. So a
process that replaces a dead one forges the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from seedbus.agents.client.worker import Followers
from seedbus.bus import Envelope, Kind, MalformedEnvelope, decode
from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import ADVANCES
from seedbus.bus.keyed_random import KeyedRandom, ordered
from seedbus.pieces import Frame

_NOTE, _JOIN = first_bytes(Kind.WAKE), first_bytes(Kind.JOIN)


class Occasion(NamedTuple):
    """What a client was sent, and its honest answer.

    Attributes:
        asked: the message that it was sent.
        answers: what it would answer.
        proofs: name → proof that its process shows.
        has_digests: whether a report in answer must have digests.
    """

    asked: Envelope
    answers: list[Envelope]
    proofs: Mapping[str, bytes]
    has_digests: bool


@runtime_checkable
class Forge(Protocol):
    """Implemented by faults that break the protocol.

    The `repr` of such a fault keys its random draws, so it must state all of the fault's settings and nothing else.
    """

    def forge(self, occasion: Occasion, random: KeyedRandom) -> list[Frame] | None:
        """Return the frames that the client answers with; None if the fault does not apply."""
        ...


class Forging:
    """A process's followers, whose answers faults may replace.

    At most one fault replaces an answer: the first, in the order of their `repr`, that applies to it.

    Attributes:
        longest: as that of `Followers`.
    """

    def __init__(self, honest: Followers, faults: Sequence[Any], *, seed: int, clients: int, verify_every: int) -> None:
        """Wrap followers.

        Args:
            honest: the followers.
            faults: a scenario's faults, of which those that implement `Forge` are taken.
            seed: the scenario's.
            clients: N.
            verify_every: reports at every so many versions have digests; 0: none have.
        """
        self._honest = honest
        self.longest = honest.longest
        self._verify_every = verify_every
        self._proofs = honest.host.member_proof
        self._forges: list[tuple[Forge, KeyedRandom]] = ordered(faults, Forge, seed, clients)

    def try_first_round(self, cohort: int) -> None:
        """As `Followers.try_first_round`."""
        self._honest.try_first_round(cohort)

    def join(self, host: int, nonce: bytes = b"") -> list[Frame]:
        """As `Followers.join`."""
        frames = self._honest.join(host, nonce)
        self._proofs = self._honest.host.member_proof
        return frames

    def welcome(self, frame: Frame) -> None:
        """As `Followers.welcome`."""
        self._honest.welcome(frame)

    def handle(self, frame: Frame) -> list[Frame]:
        """As `Followers.handle`."""
        (answers,) = self.handle_all([frame])
        return answers

    def handle_all(self, frames: Sequence[Frame]) -> Iterator[list[Frame]]:
        """As `Followers.handle_all`."""
        for frame, answers in zip(frames, self._honest.handle_all(frames), strict=True):
            yield self._forged(frame, answers)

    def _forged(self, frame: Frame, answers: list[Frame]) -> list[Frame]:
        try:
            asked = decode(frame)
        except MalformedEnvelope:
            return answers
        messages = [answer for answer in answers if answer[:2] != _NOTE]
        notes = [answer for answer in answers if answer[:2] == _NOTE]
        reveals_version = asked.kind in ADVANCES and any(message[:2] == _JOIN for message in messages)
        if asked.client < 0 or not messages or reveals_version:
            return answers
        has_digests = self._verify_every > 0 and asked.base % self._verify_every == 0
        occasion = Occasion(asked, [decode(message) for message in messages], self._proofs, has_digests)
        for fault, random in self._forges:
            forged = fault.forge(occasion, random)
            if forged is not None:
                return forged + notes
        return answers


def forges(faults: Sequence[Any]) -> bool:
    """Whether any of these faults breaks the protocol."""
    return any(isinstance(fault, Forge) for fault in faults)
