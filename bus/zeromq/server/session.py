"""A session: a worker process's stay at the hub, from its OFFER to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.transport import Answered, Offer, Rights, addresses
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Packet, Type
from seedbus.bus.zeromq.parts import Inbox, Outbox
from seedbus.bus.zeromq.server.connection import Connection
from seedbus.bus.zeromq.server.router_socket import MISSED, RouterSocket
from seedbus.bus.zeromq.sockets import MOST_DOWN
from seedbus.pieces import Bytes, Frame

BATCH = 16 * 2**10  # bytes of waiting deliveries at which a packet of them is sent
WINDOW = 2**27  # bytes of unanswered deliveries at which no more are sent
OUTBOX = WINDOW + 2 * MOST_DOWN  # bytes of waiting packets at which a peer counts as gone
PINGS = 32  # PINGs that are accepted within a heartbeat; a worker sends one
SILENT = 2  # heartbeats without a message after which another connection may take a session over


@dataclass(frozen=True, slots=True)
class Limits:
    """After how many seconds a peer that still sends PINGs counts as gone.

    Attributes:
        heartbeat_s: the interval between heartbeats.
        answer_s: how long it may owe an answer.
        own_answer_s: the same, for a process that the server's operator has started.
        join_s: how long it may take to join after its OFFER.
        kept_s: how long the clients of a member that is cut off are kept for it.
    """

    heartbeat_s: float = 2.0
    answer_s: float = 300.0
    own_answer_s: float = 3600.0
    join_s: float = 300.0
    kept_s: float = 0.0


@dataclass(slots=True, init=False, eq=False)
class Delivery:
    """A frame for an address.

    Attributes:
        answered: called once with the answers.
        tail: the frame's end, which many deliveries may share.
        was_sent: it has been on the wire before, to a host that is gone.
        size: bytes of the whole frame.
    """

    address: int
    frame: Frame
    answered: Answered
    tail: Frame
    was_sent: bool
    size: int

    def __init__(self, address: int, frame: Frame, answered: Answered, tail: Frame) -> None:
        self.address = address
        self.frame = frame
        self.answered = answered
        self.tail = tail
        self.was_sent = False
        self.size = len(frame) + len(tail)


@dataclass(slots=True)
class Session:
    """A worker process at the hub: its joining, its deliveries and answers, its outbox, its bytes, and its liveness.

    The hub calls a method for each thing that happens, and changes no attribute itself.

    Attributes:
        id: the session's bytes in packets.
        peer: the routing id of the process.
        connection: the connection that its HELLO came over.
        offer: the clients that it was offered.
        rights: what it may ask for.
        router: the hub's socket.
        hello_bytes: bytes that its HELLO took on the wire.
        longest: bytes of the longest packet in parts that it may send as a member.
        is_member: all its clients have joined the run.
        has_stalled: it was ended because it owed an answer for too long.
        said_farewell: it has sent its FAREWELL.
    """

    id: bytes
    peer: bytes
    connection: Connection
    offer: Offer
    rights: Rights
    router: RouterSocket
    hello_bytes: int = 0
    longest: int = 0
    is_member: bool = field(default=False, init=False)
    has_stalled: bool = field(default=False, init=False)
    said_farewell: bool = field(default=False, init=False)
    _is_dismissed: bool = field(default=False, init=False)
    _pending_joins: list[Frame] = field(default_factory=list, init=False)  # until the run knows its x₀
    _outbox: Outbox = field(init=False)  # packets that ZeroMQ has not accepted yet
    _inbox: Inbox = field(init=False)
    _unfinished_beats: int = field(default=0, init=False)  # heartbeats without more of a packet that comes in parts
    _up_bytes: int = field(default=0, init=False)  # that belong to no envelope and are in no row of the ledger yet
    _down_bytes: int = field(default=0, init=False)
    _silent_beats: float = field(default=0.0, init=False)  # heartbeats since its last message
    _stuck_beats: int = field(default=0, init=False)  # heartbeats since it last took anything, if something waits
    _pings: int = field(default=0, init=False)  # since the last heartbeat
    _seen_sent: int = field(default=0, init=False)  # the connection's counts of bytes at the last heartbeat
    _seen_received: int = field(default=0, init=False)
    _was_heard: bool = field(default=False, init=False)  # since the last heartbeat
    _unsent: deque[Delivery] = field(default_factory=deque, init=False)
    _unsent_bytes: int = field(default=0, init=False)
    _unanswered: deque[Delivery] = field(default_factory=deque, init=False)
    _unanswered_bytes: int = field(default=0, init=False)
    _is_flushing: bool = field(default=False, init=False)  # unsent deliveries follow as soon as the window allows
    _next_delivery: int = field(default=0, init=False)
    _next_answer: int = field(default=0, init=False)
    _waiting_since_s: float = field(default_factory=wall_seconds, init=False)

    def __post_init__(self) -> None:
        self._up_bytes = self.hello_bytes + self.connection.wire.up
        self._down_bytes = self.connection.wire.down
        self._outbox = Outbox(self.connection.checksums)
        self._inbox = Inbox(self.longest)

    @property
    def addresses(self) -> list[int]:
        """The addresses of the clients that were offered, and of the evaluator if it was."""
        return addresses(self.offer.spans, self.offer.evaluates)

    # -- joining

    def send_offer(self, run: bytes, heartbeat_ms: int) -> None:
        """Send the OFFER that opens the session."""
        self._put(Type.OFFER, packet.offer(run, self.offer, heartbeat_ms))

    @property
    def has_pending_joins(self) -> bool:
        """Whether its JOINs wait until the run knows its x₀."""
        return bool(self._pending_joins)

    def keep_joins(self, frames: list[Frame]) -> None:
        """Keep JOINs until the run knows its x₀; a long JOIN comes in parts.

        Raises:
            MalformedPacket: they are longer than one packet may be.
        """
        if sum(map(len, self._pending_joins + frames)) > self.connection.packet_limit:
            raise MalformedPacket("too-long", "more JOINs than its clients need")
        self._pending_joins += frames

    def take_joins(self) -> list[Frame]:
        """Return the JOINs that were kept, and keep them no longer."""
        frames, self._pending_joins = self._pending_joins, []
        return frames

    def join_answered(self, frame: Frame, answers: Sequence[Frame], is_member: bool) -> None:
        """Send the answers to a JOIN.

        Args:
            frame: the JOIN.
            answers: WELCOME or REFUSE; none while other JOINs of the process are awaited.
            is_member: whether all its clients have joined.
        """
        self.is_member = is_member
        self._up_bytes -= packet.entry_bytes(len(frame))
        self._post(answers)

    # -- deliveries

    def queue(self, delivery: Delivery) -> None:
        """Take a delivery, which is sent in a packet with others."""
        self._unsent.append(delivery)
        self._unsent_bytes += delivery.size
        if self._unsent_bytes >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Send the queued deliveries in packets, as far as the window allows; the rest follows by itself."""
        self._is_flushing = True
        while self._unsent and self._unanswered_bytes < WINDOW:
            self._send_batch()
        self._is_flushing = bool(self._unsent)

    def _send_batch(self) -> None:
        batch = list[Delivery]()
        size = 0
        while self._unsent and size < BATCH:
            delivery = self._unsent.popleft()
            batch.append(delivery)
            size += delivery.size
        # An entry's bytes are in the ledger's row of its message; when it is sent again, they are the link's.
        self._down_bytes -= packet.entries_bytes([each.size for each in batch if not each.was_sent])
        self._unsent_bytes -= size
        parts = packet.deliveries(self._next_delivery, [(each.frame, each.tail) for each in batch])
        self._next_delivery += len(batch)
        if not self._unanswered:
            self._waiting_since_s = wall_seconds()
        self._unanswered.extend(batch)
        self._unanswered_bytes += size
        self._put(Type.DELIVER, *parts)

    def answer(self, first: int, answers: Sequence[list[Frame]]) -> None:
        """Hand answers to the callers that wait for them.

        Args:
            first: number of the delivery that the first answer belongs to.
            answers: the frames that answer each delivery.

        Raises:
            MalformedPacket: these are not the next answers.
        """
        if not answers:
            raise MalformedPacket("empty", "an ANSWER to nothing")
        if first != self._next_answer:
            raise MalformedPacket("out-of-turn", f"answers from delivery {first} on, where {self._next_answer} is next")
        if len(answers) > len(self._unanswered):
            raise MalformedPacket("unasked", f"{len(answers)} answers to {len(self._unanswered)} deliveries")
        self._next_answer += len(answers)
        self._waiting_since_s = wall_seconds()
        self._up_bytes -= packet.entries_bytes([len(frame) for frames in answers for frame in frames])
        for frames in answers:
            delivery = self._unanswered.popleft()
            self._unanswered_bytes -= delivery.size
            delivery.answered(frames)
        if self._is_flushing:
            self.flush()

    def take_unanswered(self) -> list[Delivery]:
        """Return the deliveries without an answer, in order, and forget them: the session is over."""
        for delivery in self._unanswered:
            delivery.was_sent = True
        unanswered = [*self._unanswered, *self._unsent]
        self._unanswered.clear()
        self._unsent.clear()
        self._unanswered_bytes = 0
        self._unsent_bytes = 0
        return unanswered

    # -- sending

    def dismiss(self, frame: Frame) -> None:
        """Send a BYE. The process owes a FAREWELL from now on."""
        self._is_dismissed = True
        self._post([frame])

    def drain(self) -> None:
        """Send the packets that wait, as far as ZeroMQ accepts them."""
        while (data := self._outbox.first()) is not None and self.router.send(self.peer, data):
            self._outbox.sent()
            self._stuck_beats = 0
        self.router.look_again()

    def take_bytes(self) -> tuple[int, int]:
        """Return the bytes (up, down) on the wire since the last call that belong to no envelope."""
        held = self._inbox.held  # of an envelope that is not whole yet
        up, self._up_bytes = self._up_bytes - held, held
        down, self._down_bytes = self._down_bytes, 0
        return up, down

    def _post(self, frames: Sequence[Frame]) -> None:
        """Send envelopes that are not answered."""
        if frames:
            content = packet.posted(frames)
            self._down_bytes -= sum(map(len, content))
            self._put(Type.POST, *content)

    def _put(self, type: Type, *content: Bytes) -> None:
        sizes = self._outbox.put(type, self.id, *content)
        self._down_bytes += sum(map(self.connection.wire.bytes_of, sizes))
        self.drain()

    # -- long packets

    def assembled(self, received: Packet) -> Packet | None:
        """Return the packet to act upon: this one, or of parts the whole, once it is there.

        Raises:
            MalformedPacket: parts that are not due, or of more than a member may send.
        """
        if received.type is Type.LONG:
            if not (self.is_member and self._unanswered):
                raise MalformedPacket("unasked", "a long packet of a peer that owes no answer")
            self._inbox.open(received)
        elif received.type is Type.TAKEN:
            self._outbox.taken(received.content, self.connection.sent_bytes)
            self.drain()
        elif received.type is Type.PART:
            whole = self._inbox.add(received)
            self._unfinished_beats = 0
            sizes = self._outbox.put_first(Type.TAKEN, self.id, self._inbox.taken)
            self._down_bytes += sum(map(self.connection.wire.bytes_of, sizes))
            self.drain()
            return whole
        else:
            return received
        return None

    def abandon(self) -> None:
        """The session is over: nothing more of a long packet will come."""
        self._inbox.clear()

    # -- liveness

    def received(self, size: int) -> None:
        """Count a message of `size` bytes on the wire, well-formed or not."""
        self._up_bytes += size

    def heard(self) -> None:
        """A well-formed packet has come from the process. What waits for it is sent, as far as it goes."""
        self._silent_beats = 0.0
        self._was_heard = True
        if len(self._outbox):
            self.drain()

    def pinged(self, may_answer: bool) -> None:
        """A PING has come; a PONG is sent unless other packets wait.

        Raises:
            MalformedPacket: there were too many since the last heartbeat.
        """
        self._pings += 1
        if self._pings > PINGS:
            raise MalformedPacket("too-many-pings", f"more than {PINGS} PINGs in a heartbeat")
        if may_answer and self._outbox.first() is None:  # a peer that does not read gets no more of them
            self._put(Type.PONG)

    def farewell_received(self) -> None:
        """The process has sent its FAREWELL, which also ends a long packet that is half there."""
        self.said_farewell = True
        self._inbox.clear()

    @property
    def owes_farewell(self) -> bool:
        """Whether it was sent a BYE that it has not answered."""
        return self._is_dismissed and not self.said_farewell

    @property
    def may_be_taken_over(self) -> bool:
        """Whether another connection may take the session over: its own has ended, or has been silent for long."""
        return self.connection.is_over or self._silent_beats > SILENT

    def waited_s(self) -> float:
        """Return for how many seconds it has owed an answer or its JOINs; 0 if it owes nothing."""
        return wall_seconds() - self._waiting_since_s if self._unanswered or not self.is_member else 0.0

    def is_silent(self, passed: float) -> bool:
        """Return whether it has sent nothing for too long.

        Args:
            passed: heartbeats, with their fractions, since the last call.
        """
        self._silent_beats += passed
        if self._silent_beats < MISSED:
            return False
        received = self.connection.received_bytes
        if received - self._seen_received <= self.connection.ping_bytes:
            return True
        self._seen_received = received
        self._silent_beats = 0.0
        return False

    def beat(self, limits: Limits) -> str | None:
        """A heartbeat has passed; returns why the process counts as gone, if it does."""
        self._pings = 0
        sent = self.connection.sent_bytes
        received = self.connection.received_bytes
        if received - self._seen_received > self.connection.ping_bytes and not self._was_heard:
            self._silent_beats = 0.0  # these bytes may be a message that is not whole yet
        is_more = received - self._seen_received > PINGS * self.connection.ping_bytes
        self._seen_received = received
        self._was_heard = False
        self._unfinished_beats = self._unfinished_beats + 1 if self._inbox.size and not is_more else 0
        self._stuck_beats = self._stuck_beats + 1 if len(self._outbox) and sent == self._seen_sent else 0
        self._seen_sent = sent
        if self._stuck_beats > MISSED:
            return f"it took nothing for {MISSED} heartbeats; {self._outbox.bytes:,} bytes wait"
        if self._outbox.bytes > OUTBOX:
            return f"{self._outbox.bytes:,} bytes wait for it"
        if self._unfinished_beats > MISSED:
            came = f"{self._inbox.held:,} of the {self._inbox.size:,} bytes of a packet"
            return f"it sent {came}, and no more of it for {MISSED} heartbeats"
        if not (self.is_member or self._pending_joins) and self.waited_s() > limits.join_s:
            return f"it lives, and has not joined for {limits.join_s:.0f} s"
        answer_s = limits.own_answer_s if self.rights.is_own else limits.answer_s
        if self.is_member and self.waited_s() > answer_s:
            self.has_stalled = True
            return f"it lives, and has not answered for {answer_s:.0f} s"
        return None
