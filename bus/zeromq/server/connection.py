"""One connection that a hub has accepted: its peer, what was refused over it, and whether it floods.

ZeroMQ hands over whole messages only. A peer that starts a message of many frames and never ends it fills the memory of
the process, past every high-water mark, and the program sees nothing of it. But the kernel counts the bytes that each
connection has received. Many bytes without a whole message are such a flood, and the connection is shut down.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seedbus.bus.wire import PLAIN, Wire
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES, Checksums
from seedbus.bus.zeromq.descriptors import BYTES_ACKED, BYTES_RECEIVED, counted, name_of
from seedbus.bus.zeromq.packet import HEAD, HELLO_BYTES

STRANGERS_STRIKES = 10  # refused frames after which a connection that never joined is closed
STRIKES = 100  # refused frames after which a member's connection is closed
OVERHEAD_BYTES = 1024  # bytes that a connection may receive beside a message: ZMTP's greeting and frame headers
HERE = "this process"
OLD = "a peer of an older ZMTP"


@dataclass(eq=False, slots=True)
class Connection:
    """One connection of a peer to the hub.

    Attributes:
        descriptor: the descriptor of its socket; -1 where ZeroMQ tells none (inproc, old versions of ZMTP).
        name: the peer's address.
        peer: the peer's routing id; empty until its first message.
        was_accepted: the event that it was accepted has been read; its first message may come before.
        is_hung_up: the hub has closed it.
        is_over: it has ended.
        has_session: a session uses it. A connection without one is a stranger's.
        is_member: the peer of its session has joined the run.
        packet_limit: bytes of the longest packet that the peer may send.
        strikes: refused frames after which it is closed.
        wire: the bytes that ZMTP adds to its frames.
        is_own: it came in by the address that only processes of this user can find.
        key: the public key that the peer has proved, if the server asks for keys.
        messages: whole messages that have come over it.
        refused: frames of these messages that were refused.
        ended_session: the last session, if the hub has ended it and no FAREWELL has come since; b"": none.
        idle_ticks: consecutive calls of `Connections.idle` that found it without a session, or ended.
        checksums: of the packets in both directions.
    """

    descriptor: int
    name: str
    peer: bytes = b""
    was_accepted: bool = True
    is_hung_up: bool = False
    is_over: bool = False
    has_session: bool = False
    is_member: bool = False
    packet_limit: int = HELLO_BYTES
    strikes: int = STRANGERS_STRIKES
    wire: Wire = PLAIN
    is_own: bool = False
    key: str = ""
    messages: int = 0
    refused: int = 0
    ended_session: bytes = b""
    idle_ticks: int = 0
    checksums: Checksums = field(init=False)
    _checked_messages: int = field(default=0, init=False)  # as of the last check for floods
    _checked_bytes: int = field(default=0, init=False)
    _suspicions: int = field(default=0, init=False)  # consecutive checks with too many bytes and no new message

    def __post_init__(self) -> None:
        self.checksums = Checksums(self.wire.is_checked)

    @property
    def is_gone(self) -> bool:
        """Whether the operating system has this connection no more."""
        return self.is_over or (self.descriptor >= 0 and name_of(self.descriptor) != self.name)

    @property
    def host(self) -> str:
        """The network host of the peer."""
        return self.name.rpartition(":")[0]

    @property
    def sent_bytes(self) -> int:
        """Bytes that the peer has acknowledged; 0 where the operating system does not count them."""
        return self._counted(BYTES_ACKED)

    @property
    def received_bytes(self) -> int:
        """Bytes that have come from the peer, in whole messages or not; 0 where the system does not count them."""
        return self._counted(BYTES_RECEIVED)

    @property
    def ping_bytes(self) -> int:
        """Bytes of two PINGs on the wire, which are no sign of life: a damaged length may swallow them."""
        return 2 * self.wire.bytes_of(HEAD + CHECKSUM_BYTES)

    @property
    def has_strikes_left(self) -> bool:
        """Whether fewer frames were refused than end it."""
        return self.refused < self.strikes

    def frames_refused(self, frames: int) -> bool:
        """Count refused frames; returns whether these are the ones that should end the connection."""
        had_strikes_left = self.has_strikes_left
        self.refused += frames
        return had_strikes_left and not self.has_strikes_left

    def session_opened(self, packet_limit: int) -> None:
        """A session uses it now, and its peer may send packets of `packet_limit` bytes."""
        self.has_session = True
        self.packet_limit = packet_limit

    def joined(self, packet_limit: int) -> None:
        """Its peer is a member of the run now: it may send longer packets, and more of its frames may be refused."""
        self.is_member = True
        self.packet_limit = packet_limit
        self.strikes = STRIKES

    def session_ended(self) -> None:
        """Its session is over; the connection is a stranger's again."""
        self.has_session = False
        self.is_member = False

    def ended(self) -> None:
        """The operating system or ZeroMQ has closed it."""
        self.is_over = True
        self.idle_ticks = 0

    def flood_bytes(self) -> int | None:
        """Return how many bytes of an unfinished message have come, if they are too many; otherwise None.

        Called once per check for floods. A peer that has sent a whole message before is reported at a second check.
        """
        received = counted(self.descriptor, BYTES_RECEIVED)
        if received is None:
            return None
        if self.messages != self._checked_messages:
            self._checked_messages = self.messages
            self._checked_bytes = received
            self._suspicions = 0
            return None
        unfinished = received - self._checked_bytes
        if unfinished <= self.packet_limit * (2 if self.is_member else 1) + OVERHEAD_BYTES:
            return None
        self._suspicions += 1
        return unfinished if self._suspicions > 1 or not self.messages else None

    def unfinished_bytes(self) -> int:
        """Return how many bytes have come since the last check for floods, if no whole message has; otherwise 0."""
        return self.received_bytes - self._checked_bytes if self.messages == self._checked_messages else 0

    def _counted(self, offset: int) -> int:
        is_open = self.descriptor >= 0 and not self.is_gone
        return counted(self.descriptor, offset) or 0 if is_open else 0
