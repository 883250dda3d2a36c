"""What is in flight on a bus: messages that have not arrived, and answers that have not been sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from seedbus.bus.codec import decode, decode_parts
from seedbus.bus.envelope import REFUSE, SERVER, Envelope, Kind, Tally, ends
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.ledger import DELIVERED, REFUSED, Fate
from seedbus.bus.records import Count, Whole
from seedbus.pieces import Frame, restored, stored

Key = tuple[Kind, int, int, int, int]
"""The identity of a message: kind, client, round, occurrence (its number among those), copy (0: the original)."""
Address = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
"""Hosts, the evaluator and nobody are below 0."""
StoredFrame = bytes | list[bytes]
"""A frame, as `pieces.stored` returned it."""


class MessageState(NamedTuple):
    """What a checkpoint stores of an `InFlightMessage`; its frame is whole."""

    due_ns: Count
    sent_ns: Count
    kind: Kind
    client: Address
    round: Whole  # what a hostile client says may be any number that an envelope has room for
    occurrence: Count
    copy: Count
    base: Whole
    header_bytes: Count
    tally: Tally
    frame: StoredFrame
    is_damaged: bool
    is_exempt: bool


AnswerState = tuple[Count, Kind, Address, Whole, Count, Count, Whole, list[StoredFrame]]
"""What a checkpoint stores of an `Answer` that has come: when it is due, the key's parts, base and frames."""


@dataclass(slots=True, init=False, eq=False)
class InFlightMessage:
    """A message that has been sent and has not arrived, with everything that its ledger row needs.

    Attributes:
        due_ns: when it arrives.
        sent_ns: when it was sent.
        key: its identity.
        sender: its address.
        recipient: its address.
        peer: the node that it is sent to by another; `SERVER` if one end is the server.
        base: the model version it refers to.
        header_bytes: bytes of its header.
        tally: what the ledger records of its payload.
        frame: its bytes, without `tail`.
        is_damaged: whether bits have flipped on its way.
        is_exempt: whether no fault applies to it, because it is part of a join, which is retried until it succeeds.
        envelope: its content, if that has been decoded already.
        tail: the end of a long frame, which many messages may share.
        size: bytes of frame and tail.
    """

    due_ns: int
    sent_ns: int
    key: Key
    sender: int
    recipient: int
    peer: int
    base: int
    header_bytes: int
    tally: Tally
    frame: Frame
    is_damaged: bool
    is_exempt: bool
    envelope: Envelope | None
    tail: Frame
    size: int

    def __init__(
        self,
        sent_ns: int,
        key: Key,
        base: int,
        header_bytes: int,
        tally: Tally,
        frame: Frame,
        envelope: Envelope | None = None,
        tail: Frame = b"",
    ) -> None:
        self.due_ns = self.sent_ns = sent_ns
        self.key = key
        kind, client, _, _, _ = key
        self.sender, self.recipient = ends(kind, client, base)
        self.peer = base if kind.is_between else SERVER
        self.base = base
        self.header_bytes = header_bytes
        self.tally = tally
        self.frame = frame
        self.tail = tail
        self.envelope = envelope
        self.is_exempt = kind is REFUSE
        self.is_damaged = False
        self.size = len(frame) + len(tail)

    def copied(self, number: int) -> InFlightMessage:
        """Return its duplicate number `number`, counted from 1."""
        sizes = self.base, self.header_bytes, self.tally
        copy = InFlightMessage(self.sent_ns, (*self.key[:4], number), *sizes, self.frame, self.envelope, self.tail)
        copy.is_exempt = self.is_exempt
        return copy

    @property
    def billed_size(self) -> int:
        """Its bytes without the digests with which a run is verified: what links and budgets of bytes know of it."""
        return self.size - self.tally.digest_bytes

    @property
    def full_frame(self) -> Frame:
        return self.frame + self.tail if len(self.tail) else self.frame

    def content(self, report_limit: int) -> Envelope:
        """Return its envelope when it has arrived; report_limit: maximum bytes of a frame from a follower.

        Raises:
            MalformedEnvelope: the frame is malformed, names another client than its key, or is of a kind that travels
                in the other direction.
        """
        if self.envelope is not None:
            return self.envelope
        kind, client = self.key[:2]
        envelope = decode(self.full_frame, self.sender, most=report_limit if kind.is_upward else None)
        if envelope.client != client:
            raise MalformedEnvelope(f"is {envelope.client}, which did not send it", "the client", client)
        if envelope.kind.is_upward != kind.is_upward:
            raise MalformedEnvelope(f"is {envelope.kind.name}, which travels the other way", "the kind", client)
        return envelope

    def pack(self) -> MessageState:
        """Return what a checkpoint keeps of it."""
        sizes = (self.base, self.header_bytes, self.tally)
        return MessageState(
            self.due_ns, self.sent_ns, *self.key, *sizes, stored(self.full_frame), self.is_damaged, self.is_exempt
        )

    @staticmethod
    def unpack(state: MessageState) -> InFlightMessage:
        key = (state.kind, state.client, state.round, state.occurrence, state.copy)
        sizes = state.base, state.header_bytes, state.tally
        message = InFlightMessage(state.sent_ns, key, *sizes, restored(state.frame))
        message.due_ns, message.is_damaged, message.is_exempt = state.due_ns, state.is_damaged, state.is_exempt
        return message

    def flip(self, positions: Iterable[float]) -> None:
        """Flip the bits at these positions, given as fractions of the frame's length; two flips of a bit cancel.

        An empty frame, which a malicious follower may send, stays empty.
        """
        whole = bytes(self.full_frame)
        data = bytearray(whole)
        for position in positions if data else ():
            byte, bit = divmod(int(position * 8 * len(data)), 8)
            data[byte] ^= 1 << bit
        if data != whole:
            self.frame = bytes(data)
            self.tail = b""
            self.is_damaged = True
            self.envelope = None

    def row(self, fate: Fate, now_ns: int, framing_bytes: int, repeated: int = 0, fault: int = -1) -> tuple[int, ...]:
        """Return the fields of its `Row`.

        Args:
            fate: what became of it.
            now_ns: the current time, at which its fate was decided.
            framing_bytes: bytes that the transport adds to it, if the transport carried it.
            repeated: how many of its seeds are of commits that its recipient did not fold.
            fault: number of the fault that dropped it; −1: none did.
        """
        kind, _, round, _, copy = self.key
        recipient = self.recipient
        scalars, seeds, catchup_bytes, digest_bytes, _, _ = self.tally
        header_bytes = self.header_bytes
        has_arrived = fate is DELIVERED or fate is REFUSED
        # An upward message crosses the wire once, before any fault applies to it; a downward one after all faults.
        is_carried = copy == 0 if recipient == SERVER else fate is DELIVERED
        return (
            self.sent_ns,
            now_ns if has_arrived else -1,
            round,
            kind,
            self.sender,
            recipient,
            header_bytes,
            self.size - header_bytes,
            framing_bytes if is_carried else 0,
            digest_bytes,
            catchup_bytes,
            scalars,
            seeds,
            fate,
            repeated,
            fault,
        )


@dataclass(slots=True, eq=False)
class Answer:
    """A follower's answer to a message.

    Attributes:
        due_ns: when it counts as sent.
        key: identity of the message that it answers.
        base: the model version of that message.
        frames: its frames; None until the transport has brought them.
        is_late: whether it is due and has not come, so that simulated time stands still.
        decoded: what `decode` returned for each frame, if that has been called already.
    """

    due_ns: int
    key: Key
    base: int
    frames: list[Frame] | None = None
    is_late: bool = False
    decoded: list[tuple[Envelope | None, int]] | None = None

    def decode(self, frame: Frame, report_limit: int) -> tuple[Envelope | None, int]:
        """Return envelope and header bytes of one of its frames, or (None, 0) if it will be refused.

        Args:
            frame: the frame.
            report_limit: maximum bytes of a frame.
        """
        client = self.key[1]
        try:
            envelope, header_bytes = decode_parts(frame, client, report_limit)
            kind, named_client, _, _, _ = envelope
            return (envelope, header_bytes) if named_client == client and kind.is_upward else (None, 0)
        except MalformedEnvelope:
            return None, 0

    @staticmethod
    def unpack(state: AnswerState) -> Answer:
        due_ns, kind, client, round, occurrence, copy, base, frames = state
        return Answer(due_ns, (kind, client, round, occurrence, copy), base, [restored(frame) for frame in frames])


def next_key(occurrences: dict[tuple[Kind, int, int], int], kind: Kind, client: int, round: int) -> Key:
    """Return the key of the next message of a kind, client and round, and count it in `occurrences`."""
    group = (kind, client, round)
    occurrence = occurrences.get(group, 0)
    occurrences[group] = occurrence + 1
    return kind, client, round, occurrence, 0


def random_key(key: Key) -> tuple[int | str, ...]:
    """Return the key of a message's random draws. Duplicates have draws of their own; the original's do not change."""
    kind, client, round, occurrence, copy = key
    return (client, kind.name, round, occurrence, copy) if copy else (client, kind.name, round, occurrence)
