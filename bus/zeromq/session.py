"""One link's stay at a hub: what it was sent, what it has answered, and its bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import MalformedParcel
from seedbus.bus.transport import Answered, Offer, addresses
from seedbus.bus.zeromq import parcel
from seedbus.bus.zeromq.connections import Connection
from seedbus.bus.zeromq.parcel import Type


@dataclass(slots=True)
class Delivery:
    """A frame for an address, and who waits for its answer. is_again: it has been on the wire before."""

    address: int
    frame: bytes
    answered: Answered
    is_again: bool = False


@dataclass(slots=True)
class Session:
    """id: the eight bytes in its parcels; peer: its routing id; connection: what it came over.

    outbox: parcels that ZeroMQ would not take yet. silent, stuck: heartbeats since it last said or took something;
    pings: PINGs since the last heartbeat.
    up, down: bytes on the wire that belong to no envelope and have no row yet.
    """

    id: bytes
    peer: bytes
    connection: Connection
    offer: Offer
    is_member: bool = False
    said_farewell: bool = False
    outbox: deque[bytes] = field(default_factory=deque)
    outbox_bytes: int = 0
    silent: int = 0
    stuck: int = 0
    pings: int = 0
    up: int = 0
    down: int = 0
    _held_back: list[Delivery] = field(default_factory=list)
    _held_bytes: int = 0
    _unanswered: deque[Delivery] = field(default_factory=deque)
    _sent: int = 0
    _answered: int = 0
    _waiting_since: float = field(default_factory=wall_seconds)

    @property
    def addresses(self) -> list[int]:
        return addresses(self.offer.spans, self.offer.evaluates)

    def hold_back(self, delivery: Delivery) -> int:
        """Take a delivery, to be sent with others; returns the bytes that wait so."""
        self._held_back.append(delivery)
        self._held_bytes += len(delivery.frame)
        return self._held_bytes

    def batch(self) -> bytes | None:
        """What was held back, as one parcel."""
        if not self._held_back:
            return None
        batch, self._held_back, self._held_bytes = self._held_back, [], 0
        # an entry that was on the wire before has its bytes in its message's row already: these are the link's
        self.down -= sum(len(parcel.entry(each.frame)) for each in batch if not each.is_again)
        content = parcel.deliveries(self._sent, [each.frame for each in batch])
        self._sent += len(batch)
        if not self._unanswered:
            self._waiting_since = wall_seconds()
        self._unanswered.extend(batch)
        return parcel.parcel(Type.DELIVER, self.id, content)

    def answer(self, first: int, each: Sequence[Sequence[bytes]]) -> None:
        """Hand answers to those who wait for them. Raises `MalformedParcel` for what is not the next answers."""
        if not each:
            raise MalformedParcel("empty", "an ANSWER to nothing")
        if first != self._answered:
            raise MalformedParcel("out-of-turn", f"answers from delivery {first} on, where {self._answered} is next")
        if len(each) > len(self._unanswered):
            raise MalformedParcel("unasked", f"{len(each)} answers to {len(self._unanswered)} deliveries")
        self._answered += len(each)
        self._waiting_since = wall_seconds()
        for frames in each:
            self.up -= sum(len(parcel.entry(frame)) for frame in frames)
            self._unanswered.popleft().answered(list(frames))

    def waited_s(self) -> float:
        """For how long it has owed an answer, or its JOIN, and given none."""
        return wall_seconds() - self._waiting_since if self._unanswered or not self.is_member else 0.0

    def leave(self) -> list[Delivery]:
        """What it leaves unanswered, in order."""
        for delivery in self._unanswered:
            delivery.is_again = True
        left = [*self._unanswered, *self._held_back]
        self._unanswered.clear()
        self._held_back.clear()
        return left
