"""One link's stay at a hub: what it was sent, what it has answered, and its bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import FRAME_LIMIT
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.transport import Answered, Offer, Rights, addresses
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Type
from seedbus.bus.zeromq.server.connections import Connection
from seedbus.bus.zeromq.server.router_socket import MISSED, RouterSocket

BATCH = 16 * 2**10  # bytes of deliveries that are not held back any longer
WINDOW = 2**27  # bytes of deliveries that are not answered: no more is sent before some are
OUTBOX = WINDOW + 2 * FRAME_LIMIT  # bytes that wait for one peer


@dataclass(frozen=True, slots=True)
class Limits:
    """When a peer that lives is gone all the same.

    answer_s: it owes an answer; own_answer_s: the same, of a process of the operator's own; join_s: it was offered
    clients and has not joined.
    """

    heartbeat_s: float = 2.0
    answer_s: float = 300.0
    own_answer_s: float = 3600.0
    join_s: float = 300.0


@dataclass(slots=True)
class Delivery:
    """A frame for an address, and who waits for its answer. tail: the frame's end; is_again: it has been on the wire
    before."""

    address: int
    frame: bytes
    answered: Answered
    tail: bytes = b""
    is_again: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.frame) + len(self.tail)


@dataclass(slots=True)
class Session:
    """id: the eight bytes in its packets; peer: its routing id; connection: what it came over.

    joins: JOINs that wait until the run knows its x₀; has_stalled: it was gone for not answering; is_dismissed: it was
    told that the run is over, and owes a FAREWELL.
    outbox: packets that ZeroMQ would not take yet. silent, stuck: heartbeats since it last said something (with their
    fractions), or took something; pings: PINGs since the last heartbeat.
    up, down: bytes on the wire that belong to no envelope and have no row yet.
    """

    id: bytes
    peer: bytes
    connection: Connection
    offer: Offer
    rights: Rights
    port: RouterSocket
    joins: list[bytes] = field(default_factory=list)
    is_member: bool = False
    is_dismissed: bool = False
    has_stalled: bool = False
    said_farewell: bool = False
    outbox: deque[bytes] = field(default_factory=deque)
    outbox_bytes: int = 0
    silent: float = 0.0
    stuck: int = 0
    pings: int = 0
    up: int = 0
    down: int = 0
    _taken: int = 0
    _came: int = 0
    _has_spoken: bool = False
    _held_back: deque[Delivery] = field(default_factory=deque)
    _held_bytes: int = 0
    _unanswered: deque[Delivery] = field(default_factory=deque)
    _unanswered_bytes: int = 0
    _is_due: bool = False
    _sent: int = 0
    _answered: int = 0
    _waiting_since: float = field(default_factory=wall_seconds)

    @property
    def addresses(self) -> list[int]:
        return addresses(self.offer.spans, self.offer.evaluates)

    # -- what it is sent

    def hold_back(self, delivery: Delivery) -> None:
        """Take a delivery, to be sent with others."""
        self._held_back.append(delivery)
        self._held_bytes += delivery.size
        if self._held_bytes >= BATCH:
            self.send_batch()

    def send_batch(self) -> None:
        """Send what was held back, a batch a packet, as far as the window goes; the rest follows by itself."""
        self._is_due = True
        while self._held_back and self._unanswered_bytes < WINDOW:
            self._send_some()
        self._is_due = bool(self._held_back)

    def _send_some(self) -> None:
        batch, size = list[Delivery](), 0
        while self._held_back and size < BATCH:
            batch.append(self._held_back.popleft())
            size += batch[-1].size
        self._held_bytes -= size
        # an entry that was on the wire before has its bytes in its message's row already: these are the link's
        self.down -= sum(packet.entry_bytes(each.size) for each in batch if not each.is_again)
        parts = packet.deliveries(self._sent, [(each.frame, each.tail) for each in batch])
        self._sent += len(batch)
        if not self._unanswered:
            self._waiting_since = wall_seconds()
        self._unanswered.extend(batch)
        self._unanswered_bytes += size
        self.put(Type.DELIVER, *parts)

    def post(self, frames: Sequence[bytes]) -> None:
        """Send envelopes that nobody answers."""
        if frames:
            content = packet.entries(frames)
            self.down -= len(content)
            self.put(Type.POST, content)

    def put(self, type: Type, *content: bytes) -> None:
        """Send a packet, or let it wait."""
        data = packet.packet(type, self.id, *content)
        self.down += self.connection.wire.bytes_of(len(data))
        self.outbox.append(data)
        self.outbox_bytes += len(data)
        self.drain()

    def drain(self) -> None:
        """Send what waits, as far as it is taken."""
        while self.outbox and self.port.send(self.peer, self.outbox[0]):
            self.outbox_bytes -= len(self.outbox.popleft())
            self.stuck = 0
        self.port.look_again()

    # -- what it answers

    def answer(self, first: int, each: Sequence[Sequence[bytes]]) -> None:
        """Hand answers to those who wait for them. Raises `MalformedPacket` for what is not the next answers."""
        if not each:
            raise MalformedPacket("empty", "an ANSWER to nothing")
        if first != self._answered:
            raise MalformedPacket("out-of-turn", f"answers from delivery {first} on, where {self._answered} is next")
        if len(each) > len(self._unanswered):
            raise MalformedPacket("unasked", f"{len(each)} answers to {len(self._unanswered)} deliveries")
        self._answered += len(each)
        self._waiting_since = wall_seconds()
        for frames in each:
            self.up -= sum(packet.entry_bytes(len(frame)) for frame in frames)
            delivery = self._unanswered.popleft()
            self._unanswered_bytes -= delivery.size
            delivery.answered(list(frames))
        if self._is_due:
            self.send_batch()

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
        self._unanswered_bytes = self._held_bytes = 0
        return left

    # -- whether it stays

    def heard(self) -> None:
        """A whole message has come from it."""
        self.silent, self._has_spoken = 0.0, True

    def is_silent(self, passed: float) -> bool:
        """Whether it has said nothing for too long; passed: heartbeats, or a part of one, since this was last asked."""
        self.silent += passed
        if self.silent < MISSED:
            return False
        came = self.connection.received_bytes
        if came == self._came:
            return True
        self._came, self.silent = came, 0.0
        return False

    def beat(self, limits: Limits) -> str | None:
        """A heartbeat has passed; returns why the peer is gone, if it is."""
        self.pings = 0
        taken, came = self.connection.sent_bytes, self.connection.received_bytes
        if came != self._came and not self._has_spoken:
            self.silent = 0.0  # what moves may be a message that is not whole yet
        self._came, self._has_spoken = came, False
        self.stuck = self.stuck + 1 if self.outbox and taken == self._taken else 0
        self._taken = taken
        if self.stuck > MISSED:
            return f"it took nothing for {MISSED} heartbeats; {self.outbox_bytes:,} bytes wait"
        if self.outbox_bytes > OUTBOX:
            return f"{self.outbox_bytes:,} bytes wait for it"
        if not (self.is_member or self.joins) and self.waited_s() > limits.join_s:
            return f"it lives, and has not joined for {limits.join_s:.0f} s"
        answer_s = limits.own_answer_s if self.rights.is_own else limits.answer_s
        if self.is_member and self.waited_s() > answer_s:
            self.has_stalled = True
            return f"it lives, and has not answered for {answer_s:.0f} s"
        return None
