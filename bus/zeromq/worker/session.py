"""A link's session: the state of one connection on the worker's side. It does no I/O."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence

from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.checksums import Checksums
from seedbus.bus.zeromq.packet import NO_SESSION, Packet, Type
from seedbus.bus.zeromq.parts import Inbox, Outbox
from seedbus.bus.zeromq.sockets import MOST_DOWN
from seedbus.pieces import Bytes, Frame

PACKET_BYTES = 60_000  # bytes at which a packet of JOINs or ANSWERs is full; a hub accepts a little more
DELIVERY_BYTES = 33  # bytes of memory that a delivery takes beside its frame


class Phase(enum.Enum):
    """How far a worker has come in a session."""

    GREETING = enum.auto()
    """It awaits an OFFER."""
    JOINING = enum.auto()
    """It has an OFFER, and awaits the answer to its JOINs."""
    ANSWERED = enum.auto()
    """It is a member; or it was refused, which ends the process."""


class WorkerSession:
    """The state of one connection. Each new connection gets a new session.

    Attributes:
        id: the session's bytes in packets; `NO_SESSION` until an OFFER names it, and after a REFUSE.
        phase: how far the worker has come.
        is_over: a BYE has come.
        outbox: packets to send, in order.
        next_delivery: number of the delivery that must come next.
        unanswered: bytes of memory that each delivery without an answer takes, in order.
        unanswered_bytes: their sum.
        checksums: of the packets in both directions.
        inbox: the long packet that is coming in.
    """

    def __init__(self, has_checksums: bool = False) -> None:
        self.checksums = Checksums(has_checksums)
        self.id = NO_SESSION
        self.phase = Phase.GREETING
        self.is_over = False
        self.outbox = Outbox(self.checksums)
        self.inbox = Inbox(MOST_DOWN)
        self.next_delivery = 0
        self.unanswered: deque[int] = deque()
        self.unanswered_bytes = 0
        self._next_answer = 0

    def put(self, type: Type, *content: Bytes) -> None:
        """Put a packet of this session into the outbox."""
        self.outbox.put(type, self.id, *content)

    def ping(self) -> None:
        """Put a PING into the outbox, before all that waits there."""
        self.outbox.put_first(Type.PING, self.id)

    def assembled(self, received: Packet) -> Packet | None:
        """Return the packet to act upon: this one, or of parts the whole once it is there; raises `MalformedPacket`."""
        if received.type is Type.LONG:
            self.inbox.open(received)
        elif received.type is Type.TAKEN:
            self.outbox.taken(received.content)
        elif received.type is Type.PART:
            whole = self.inbox.add(received)
            self.outbox.put_first(Type.TAKEN, self.id, self.inbox.taken)
            return whole
        else:
            return received
        return None

    def put_hello(self, previous: bytes, content: bytes) -> None:
        """Put a HELLO into the outbox. `previous` is the session that the worker had before, or `NO_SESSION`."""
        self.outbox.put(Type.HELLO, previous, content)

    def put_joins(self, joins: Sequence[Frame]) -> None:
        """Put JOINs into the outbox, in packets that a hub accepts."""
        batch: list[Frame] = []
        for join in joins:
            if batch and sum(map(len, batch)) + len(join) > PACKET_BYTES:
                self.put(Type.POST, *packet.posted(batch))
                batch = []
            batch.append(join)
        self.put(Type.POST, *packet.posted(batch))

    def offered(self, id: bytes) -> None:
        """An OFFER has come, which opens the session."""
        self.id = id
        self.phase = Phase.JOINING

    def join_answered(self, is_refused: bool) -> None:
        """A WELCOME or a REFUSE has come. After a REFUSE the server has no session of this worker any more."""
        self.phase = Phase.ANSWERED
        if is_refused:
            self.id = NO_SESSION

    def dismissed(self) -> None:
        """A BYE has come: the last packet is a FAREWELL."""
        self.put_farewell()
        self.is_over = True

    def put_farewell(self, *content: Bytes) -> None:
        """Put a FAREWELL into the outbox, in the place of a long ANSWER that may be half sent."""
        self.outbox.put_last(Type.FAREWELL, self.id, *content)

    def delivered(self, frames: Sequence[Frame]) -> None:
        """The next deliveries have come."""
        self.next_delivery += len(frames)
        sizes = [len(frame) + DELIVERY_BYTES for frame in frames]
        self.unanswered.extend(sizes)
        self.unanswered_bytes += sum(sizes)

    def put_answers(self, answers: Sequence[list[Frame]]) -> None:
        """Put the answers to the next deliveries into the outbox, in packets that a hub accepts."""
        self.unanswered_bytes -= sum(self.unanswered.popleft() for _ in answers)
        batch: list[list[Frame]] = []
        batch_bytes = 0
        for frames in answers:
            size = 1
            for frame in frames:
                size += packet.entry_bytes(len(frame))
            if batch and batch_bytes + size > PACKET_BYTES:
                self._put_batch(batch)
                batch = []
                batch_bytes = 0
            batch.append(frames)
            batch_bytes += size
        if batch:
            self._put_batch(batch)

    def _put_batch(self, batch: list[list[Frame]]) -> None:
        self.put(Type.ANSWER, *packet.answers(self._next_answer, batch))
        self._next_answer += len(batch)
