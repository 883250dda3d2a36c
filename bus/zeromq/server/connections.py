"""The connections that a hub has accepted: which peer each belongs to, which ones flood, and which are too many.

Connections are told apart by their peers' routing ids. A descriptor does not identify one: its number is used again as
soon as the connection has ended, while messages that came over it, and the event of its end, may still wait to be read.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

import zmq

from seedbus.bus.wire import CURVE, INPROC, IPC, PLAIN, Wire
from seedbus.bus.zeromq.descriptors import GONE, abort, name_of, own_path
from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.bus.zeromq.server.connection import HERE, OLD, Connection
from seedbus.bus.zeromq.sockets import FAILURES, failure, is_crowded, most_open

EVENTS = 300  # events that are read before other callbacks of the loop get their turn
STRANGERS = 256  # connections without a session that may be open at a time; fewer if few files may be open
STRANGERS_OF_A_HOST = 128  # the same, of one network host
CUT_BYTES = 4 * HELLO_BYTES  # of a stranger's message, at which it need not wait until the loop comes to it
_EVENT = struct.Struct("=HI")  # of a monitor's message: the event, and its value
KEPT_TICKS = 3  # calls of `idle` after which a connection that has ended is forgotten


class Connections:
    """The connections that a socket has accepted.

    Args:
        router: the socket.
        own_path: path of the Unix socket that only processes of this user can find, if there is one.
        wire: what travels between the hub and peers that come by another address.
        crowd: connections of strangers that are accepted at a time in any case, also from one network host.
        ended: called with each connection that has ended.
        failed: called with the reason of each handshake that failed.
        crowded: called with a connection that leaves too few descriptors for the rest of the process.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        own_path: str,
        wire: Wire,
        crowd: int,
        ended: Callable[[Connection], None],
        failed: Callable[[str], None],
        crowded: Callable[[Connection], None],
    ) -> None:
        self._router = router
        self._own_path = own_path
        self._wire = wire
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
        self._cut: deque[tuple[Connection, int]] = deque()  # what the other thread has aborted, and its bytes

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
            abort(connection.descriptor)  # if ZeroMQ read what has come, empty frames would take thirty times the size

    def flooding(self) -> list[tuple[Connection, int]]:
        """Return the connections with too many bytes of an unfinished message, and how many bytes.

        The caller is to hang up on them, and must have read all messages that are there before the call.
        """
        cut = [self._cut.popleft() for _ in range(len(self._cut))]
        checked = [(connection, connection.flood_bytes()) for connection in self._present()]
        known = {connection for connection, _ in cut}
        return cut + [(each, size) for each, size in checked if size is not None and each not in known]

    def cut_strangers(self) -> None:
        """Abort the strangers' connections that have sent far too much of a message.

        Unlike all else here, this is called on another thread, when memory grows fast and the loop may be busy; nothing
        is changed but what `flooding` returns next.
        """
        for connection in self._present():
            if not connection.has_session and (size := connection.unfinished_bytes()) > CUT_BYTES:
                self._cut.append((connection, size))
                abort(connection.descriptor)

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
                event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
                self._handle_event(*_EVENT.unpack(event))
            return True
        except zmq.Again:
            return False
        finally:
            self._is_reading = False

    def _handle_event(self, event: int, value: int) -> None:
        if event in FAILURES:
            self._failed(failure(event, value))
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
            name, wire = (HERE, INPROC) if is_inproc else (OLD, PLAIN)
            connection = Connection(-1, name, peer, is_over=not is_inproc, is_own=is_inproc, wire=wire)
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
        if connection.wire is CURVE:  # without keys, User-Id is a mere claim of the peer
            connection.key = str(frame.get("User-Id"))
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
        is_own = bool(self._own_path) and own_path(descriptor) == self._own_path
        return Connection(descriptor, name_of(descriptor), is_own=is_own, wire=IPC if is_own else self._wire)

    def _present(self) -> list[Connection]:
        """Return the connections that are open, as far as is known."""
        newest = [connection for connections in list(self._open.values()) for connection in connections[-1:]]
        return [connection for connection in newest if connection.was_accepted and not connection.is_hung_up]
