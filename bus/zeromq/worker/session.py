"""A link's session: the state of one connection on the worker's side. It does no I/O."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence

from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.checksums import Checksums
from seedbus.bus.zeromq.packet import NO_SESSION, Type

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
    """

    def __init__(self, has_checksums: bool = False) -> None:
        self.checksums = Checksums(has_checksums)
        self.id = NO_SESSION
        self.phase = Phase.GREETING
        self.is_over = False
        self.outbox: deque[bytes] = deque()
        self.next_delivery = 0
        self.unanswered: deque[int] = deque()
        self.unanswered_bytes = 0
        self._next_answer = 0

    def put(self, type: Type, *content: bytes) -> None:
        """Put a packet of this session into the outbox."""
        self.outbox.append(self.checksums.added(packet.packet(type, self.id, *content)))

    def put_hello(self, previous: bytes, content: bytes) -> None:
        """Put a HELLO into the outbox. `previous` is the session that the worker had before, or `NO_SESSION`."""
        self.outbox.append(self.checksums.added(packet.packet(Type.HELLO, previous, content)))

    def put_joins(self, joins: Sequence[bytes]) -> None:
        """Put JOINs into the outbox, in packets that a hub accepts."""
        batch: list[bytes] = []
        for join in joins:
            if batch and sum(map(len, batch)) + len(join) > PACKET_BYTES:
                self.put(Type.POST, packet.entries(batch))
                batch = []
            batch.append(join)
        self.put(Type.POST, packet.entries(batch))

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
        self.put(Type.FAREWELL)
        self.is_over = True

    def delivered(self, frames: Sequence[bytes]) -> None:
        """The next deliveries have come."""
        self.next_delivery += len(frames)
        sizes = [len(frame) + DELIVERY_BYTES for frame in frames]
        self.unanswered.extend(sizes)
        self.unanswered_bytes += sum(sizes)

    def put_answers(self, answers: Sequence[list[bytes]]) -> None:
        """Put the answers to the next deliveries into the outbox, in packets that a hub accepts."""
        self.unanswered_bytes -= sum(self.unanswered.popleft() for _ in answers)
        batch: list[list[bytes]] = []
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

    def _put_batch(self, batch: list[list[bytes]]) -> None:
        self.put(Type.ANSWER, *packet.answers(self._next_answer, batch))
        self._next_answer += len(batch)
