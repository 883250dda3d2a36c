"""The connections that a hub has accepted: their peers, what was refused over each, and which ones flood.

ZeroMQ hands over whole messages only. A peer that starts a message of many frames and never ends it fills the memory of
the process, past every high-water mark, and the program sees nothing of it. But the kernel counts the bytes that each
connection has received. Many bytes without a whole message are such a flood, and the connection is shut down.

Connections are told apart by their peers' routing ids. A descriptor does not identify one: its number is used again as
soon as the connection has ended, while messages that came over it, and the event of its end, may still wait to be read.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from seedbus.bus.zeromq.descriptors import BYTES_ACKED, BYTES_RECEIVED, GONE, borrowed, counted, name_of, own_path
from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.bus.zeromq.sockets import CURVE, FAILURES, INPROC, PLAIN, Wire, is_crowded, most_open

EVENTS = 300  # events that are read before other callbacks of the loop get their turn
STRANGERS = 256  # connections without a session that may be open at a time; fewer if few files may be open
STRANGERS_OF_A_HOST = 128  # the same, of one network host
STRANGERS_STRIKES = 10  # refused frames after which a connection that never joined is closed
STRIKES = 100  # refused frames after which a member's connection is closed
OVERHEAD_BYTES = 1024  # bytes that a connection may receive beside a message: ZMTP's greeting and frame headers
KEPT_TICKS = 3  # calls of `idle` after which a connection that has ended is forgotten
HERE = "this process"
OLD = "a peer of an older ZMTP"
_SINK = bytearray(2**16)
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with a time of 0: unsent bytes are dropped


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
        idle_ticks: consecutive calls of `Connections.idle` that found it without a session, or ended.
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
    idle_ticks: int = 0
    _checked_messages: int = field(default=0, init=False)  # as of the last check for floods
    _checked_bytes: int = field(default=0, init=False)
    _suspicions: int = field(default=0, init=False)  # consecutive checks with too many bytes and no new message

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

    def _counted(self, offset: int) -> int:
        is_open = self.descriptor >= 0 and not self.is_gone
        return counted(self.descriptor, offset) or 0 if is_open else 0


class Connections:
    """The connections that a socket has accepted.

    Args:
        router: the socket.
        own_path: path of the Unix socket that only processes of this user can find, if there is one.
        has_keys: whether peers that come by another address have proved a key.
        crowd: connections of strangers that are accepted at a time in any case, also from one network host.
        ended: called with each connection that has ended.
        failed: called with the reason of each handshake that failed.
        crowded: called with a connection that leaves too few descriptors for the rest of the process.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        own_path: str,
        has_keys: bool,
        crowd: int,
        ended: Callable[[Connection], None],
        failed: Callable[[str], None],
        crowded: Callable[[Connection], None],
    ) -> None:
        self._router = router
        self._own_path = own_path
        self._has_keys = has_keys
        self._max_strangers = max(STRANGERS, crowd)
        self._max_strangers_of_a_host = max(STRANGERS_OF_A_HOST, crowd)
        self._ended = ended
        self._failed = failed
        self._crowded = crowded
        self._monitor = router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(FAILURES))
        self._open: dict[int, list[Connection]] = {}  # by descriptor: those whose end has not been read of
        self._last_ended: dict[int, Connection] = {}  # by descriptor
        self._peers: dict[bytes, Connection] = {}  # by routing id
        self._strangers: dict[Connection, None] = {}  # without a session, the oldest first
        self._is_reading = False

    def received(self, peer: bytes, frame: zmq.Frame) -> Connection:
        """Count a message that has come.

        Args:
            peer: the routing id that it came with.
            frame: its first frame after the routing id.

        Returns:
            The connection that it came over.
        """
        connection = self._peers.get(peer)
        if connection is None:
            connection = self._first_message(peer, frame)
        connection.messages += 1
        return connection

    def hang_up(self, connection: Connection) -> None:
        """Close a connection. ZeroMQ then frees all that it has buffered of it."""
        connection.is_hung_up = True
        self._strangers.pop(connection, None)
        if connection.descriptor >= 0 and not connection.is_gone:
            with suppress(OSError), borrowed(connection.descriptor) as end:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
                # discard what the kernel has buffered: if ZeroMQ read it, empty frames would take thirty times the size
                while end.recv_into(_SINK, 0, socket.MSG_DONTWAIT):
                    pass

    def flooding(self) -> list[tuple[Connection, int]]:
        """Return the connections with too many bytes of an unfinished message, and how many bytes.

        The caller is to hang up on them, and must have read all messages that are there before the call.
        """
        checked = [(connection, connection.flood_bytes()) for connection in self._present()]
        return [(connection, size) for connection, size in checked if size is not None]

    def session_opened(self, connection: Connection, packet_limit: int) -> None:
        """A session uses the connection, and its peer may send packets of `packet_limit` bytes."""
        connection.session_opened(packet_limit)
        self._strangers.pop(connection, None)

    def session_ended(self, connection: Connection) -> None:
        """The connection's session is over: if it is still open, it is a stranger's again."""
        connection.session_ended()
        self._note_stranger(connection)

    def _note_stranger(self, connection: Connection) -> None:
        if not (connection.is_own or connection.is_over or connection.is_hung_up):
            self._strangers[connection] = None

    @property
    def has_many_strangers(self) -> bool:
        """Whether there may be so many strangers that `too_many` should be asked."""
        return len(self._strangers) > self._max_strangers_of_a_host

    def too_many(self) -> list[Connection]:
        """Return the strangers' connections beyond the limits of one network host and of all, the oldest first.

        The caller is to hang up on them, and must have read all messages that are there before the call: a process that
        has sent its HELLO has a session by then, and is not among them.
        """
        of_host = Counter(each.host for each in self._strangers)
        left = len(self._strangers)
        limit = min(self._max_strangers, most_open() // 2)
        surplus = []
        for each in self._strangers:
            if left > limit or of_host[each.host] > self._max_strangers_of_a_host:
                left -= 1
                of_host[each.host] -= 1
                surplus.append(each)
        return surplus

    def idle(self, ticks: int) -> list[Connection]:
        """Return the connections that have had no session for more than `ticks` calls.

        To be called once a heartbeat; the caller is to hang up on them. Connections that ended some calls ago are
        forgotten.
        """
        idle = []
        for connection in self._present():
            connection.idle_ticks = 0 if connection.has_session else connection.idle_ticks + 1
            if connection.idle_ticks == ticks + 1:
                idle.append(connection)
        for connections in self._open.values():
            for connection in [each for each in connections if not each.was_accepted]:
                connection.idle_ticks += 1
                if connection.idle_ticks > KEPT_TICKS:  # its events came before its first message was read
                    connections.remove(connection)
                    connection.ended()
        for connection in [each for each in self._peers.values() if each.is_over]:
            connection.idle_ticks += 1
            if connection.idle_ticks > KEPT_TICKS:
                del self._peers[connection.peer]
        return idle

    def close(self) -> None:
        """Close the monitor, which would keep the context from terminating."""
        if not self._monitor.closed:
            with suppress(zmq.Again):  # a full monitor blocks ZeroMQ's own thread, and closing would wait for that
                while True:
                    self._monitor.recv_multipart(zmq.NOBLOCK)
            self._router.disable_monitor()
            self._monitor.close(linger=0)

    @property
    def descriptor(self) -> int:
        """A descriptor that becomes readable when there is something for `read_events`."""
        return int(self._monitor.FD)

    def read_events(self) -> bool:
        """Read which connections were accepted and which have ended; returns whether there may be more to read."""
        if self._is_reading:  # called again by a callback that reads the messages of a connection that has ended
            return True
        self._is_reading = True
        try:
            for _ in range(EVENTS):
                event: dict[str, Any] = dict(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK)))
                self._handle_event(event["event"], int(event["value"]))
            return True
        except zmq.Again:
            return False
        finally:
            self._is_reading = False

    def _handle_event(self, event: Any, value: int) -> None:
        if event in FAILURES:
            self._failed(FAILURES[event])
        elif event == zmq.EVENT_ACCEPTED:
            self._accepted(value)
        elif self._open.get(value):
            connection = self._open[value].pop(0)
            if not self._open[value]:
                del self._open[value]
            self._last_ended[value] = connection
            connection.ended()
            self._ended(connection)
            self._strangers.pop(connection, None)

    def _accepted(self, descriptor: int) -> None:
        connections = self._open.setdefault(descriptor, [])
        connection = next((each for each in connections if not each.was_accepted), None)
        if connection is None:
            connections.append(connection := self._new(descriptor))
        connection.was_accepted = True
        if connection.has_session:
            self._strangers.pop(connection, None)
        else:
            self._note_stranger(connection)
        if is_crowded(descriptor) and not connection.is_own:
            self._crowded(connection)

    def _first_message(self, peer: bytes, frame: zmq.Frame) -> Connection:
        """Return the connection of a peer's first message; the event that it was accepted may be read later."""
        try:
            descriptor = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:  # inproc has no descriptor, and ZeroMQ tells none of a peer that speaks ZMTP 1 or 2
            is_inproc = self._router.get_string(zmq.LAST_ENDPOINT).startswith("inproc:")
            connection = Connection(-1, HERE if is_inproc else OLD, peer, is_over=not is_inproc)
            connection.is_own = is_inproc
            connection.wire = INPROC if is_inproc else PLAIN
            self._peers[peer] = connection
            return connection
        # Reading events makes the hub read the messages of a connection that has ended. In the middle of a message of
        # several frames, that would take the remaining frames for messages.
        if not frame.more:
            self.read_events()
        if peer in self._peers:  # a callback of `read_events` read on, and got here before
            return self._peers[peer]
        connection = self._without_messages(descriptor)
        connection.peer = peer
        if self._has_keys and not connection.is_own:  # without keys, User-Id is a mere claim of the peer
            connection.key = str(frame.get("User-Id"))
            connection.wire = CURVE
        self._peers[peer] = connection
        return connection

    def _without_messages(self, descriptor: int) -> Connection:
        """Return the connection with this descriptor over which no whole message has come before."""
        latest = self._last_ended.get(descriptor)
        connections = self._open.get(descriptor, [])
        if latest is not None and not (latest.peer or connections) and name_of(descriptor) in (latest.name, GONE):
            return latest  # its end was read before its first message
        if not connections or connections[-1].peer:
            connections = self._open.setdefault(descriptor, connections)
            connections.append(self._new(descriptor))
            connections[-1].was_accepted = False
        return connections[-1]

    def _new(self, descriptor: int) -> Connection:
        connection = Connection(descriptor, name_of(descriptor))
        connection.is_own = bool(self._own_path) and own_path(descriptor) == self._own_path
        return connection

    def _present(self) -> list[Connection]:
        """Return the connections that are open, as far as is known."""
        newest = [connections[-1] for connections in self._open.values() if connections]
        return [connection for connection in newest if connection.was_accepted and not connection.is_hung_up]
