"""What a bus has under way: messages, and answers that are still to be given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from seedbus.bus.envelope import SERVER, Envelope, Kind, Tally, ends
from seedbus.bus.ledger import DELIVERED, REFUSED, Fate

Key = tuple[Kind, int, int, int, int]
"""What a message is called: kind, client, round, occurrence, copy (0: the message itself)."""


@dataclass(slots=True, init=False, eq=False)
class InFlightMessage:
    """A message under way: due at a nanosecond, with all that its row needs.

    frame, tail: its bytes, `size` of them; the end of a long one is shared by all that have it. envelope: what they
    hold, where that is known already. is_damaged: whether bits of it flipped on its way.
    is_sure: no rule strikes it, because whoever introduces itself does so until it is heard.
    """

    due_ns: int
    sent_ns: int
    key: Key
    is_upward: bool
    base: int
    header: int
    tally: Tally
    frame: bytes
    is_damaged: bool
    is_sure: bool
    envelope: Envelope | None
    tail: bytes
    size: int

    def __init__(
        self,
        sent_ns: int,
        key: Key,
        base: int,
        header: int,
        tally: Tally,
        frame: bytes,
        is_sure: bool = False,
        envelope: Envelope | None = None,
        tail: bytes = b"",
    ) -> None:
        self.due_ns = self.sent_ns = sent_ns
        self.key, self.is_upward = key, key[0].is_upward
        self.base, self.header, self.tally = base, header, tally
        self.frame, self.tail, self.envelope = frame, tail, envelope
        self.is_sure, self.is_damaged = is_sure, False
        self.size = len(frame) + len(tail)

    def copied(self, number: int) -> InFlightMessage:
        """Its copy of that number."""
        return InFlightMessage(
            self.sent_ns,
            (*self.key[:4], number),
            self.base,
            self.header,
            self.tally,
            self.frame,
            self.is_sure,
            self.envelope,
            self.tail,
        )

    @property
    def whole(self) -> bytes:
        return self.frame + self.tail

    def pack(self) -> list[Any]:
        """For a checkpoint."""
        how = [self.is_damaged, self.is_sure]
        return [self.due_ns, self.sent_ns, *self.key, self.base, self.header, list(self.tally), self.whole, *how]

    @staticmethod
    def unpack(packed: list[Any]) -> InFlightMessage:
        due_ns, sent_ns, kind, client, round, occurrence, copy, base, header, tally, frame, *how = packed
        key = (Kind(kind), client, round, occurrence, copy)
        flight = InFlightMessage(sent_ns, key, base, header, Tally(*tally), frame)
        flight.due_ns, (flight.is_damaged, flight.is_sure) = due_ns, how
        return flight

    def flip(self, places: Iterable[float]) -> None:
        """Flip the bits at these fractions of the frame; one that is flipped twice is as it was. Of a frame that is
        empty, as a liar's may be, there is none."""
        bits = bytearray(self.whole)
        for place in places if bits else ():
            byte, bit = divmod(int(place * 8 * len(bits)), 8)
            bits[byte] ^= 1 << bit
        if bits != self.whole:
            self.frame, self.tail, self.is_damaged, self.envelope = bytes(bits), b"", True, None

    @property
    def ends(self) -> tuple[int, int]:
        return ends(*self.key[:2])

    def row(self, fate: Fate, now_ns: int, framing_bytes: int) -> tuple[int, ...]:
        """The numbers of its `Row`, now that its fate is known. framing_bytes: what it has if it was carried."""
        kind, client, round, _, copy = self.key
        scalars, seeds, catchup_bytes, digest_bytes = self.tally
        is_upward, header = self.is_upward, self.header
        has_arrived = fate is DELIVERED or fate is REFUSED
        # what travels up has come over the wire, once, before a rule says anything; what travels down has not
        is_carried = copy == 0 if is_upward else fate is DELIVERED
        return (
            self.sent_ns,
            now_ns if has_arrived else -1,
            round,
            kind,
            client if is_upward else SERVER,
            SERVER if is_upward else client,
            header,
            self.size - header,
            framing_bytes if is_carried else 0,
            digest_bytes,
            catchup_bytes,
            scalars,
            seeds,
            fate,
        )


@dataclass(slots=True, eq=False)
class Answer:
    """What a follower says to a message: it counts as sent at `due_ns`, and may not be there before."""

    due_ns: int
    key: Key
    base: int
    frames: list[bytes] | None = None
    is_late: bool = False
    """True while simulated time stands still for it."""

    def pack(self) -> list[Any]:
        """For a checkpoint."""
        return [self.due_ns, *self.key, self.base, self.frames]

    @staticmethod
    def unpack(packed: list[Any]) -> Answer:
        due_ns, kind, client, round, occurrence, copy, base, frames = packed
        return Answer(due_ns, (Kind(kind), client, round, occurrence, copy), base, frames)


def next_key(occurrences: dict[tuple[Kind, int, int], int], kind: Kind, client: int, round: int) -> Key:
    """The name of the next message of a kind, client and round."""
    name = (kind, client, round)
    occurrence = occurrences.get(name, 0)
    occurrences[name] = occurrence + 1
    return kind, client, round, occurrence, 0


def drawn_by(key: Key) -> tuple[int | str, ...]:
    """What a message's fortune is drawn by; a copy has its own, and the message itself none that copies change."""
    kind, client, round, occurrence, copy = key
    return (client, kind.name, round, occurrence, copy) if copy else (client, kind.name, round, occurrence)
