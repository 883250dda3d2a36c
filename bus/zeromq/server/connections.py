"""A hub's connections one by one: who is at the other end, what became of what it sent, and whether it floods.

ZeroMQ hands over whole messages only. A peer that begins one of many frames and never ends it fills the memory of the
process, past every high-water mark, and nobody hears of it. But the kernel counts what each connection has received:
much of it, and no whole message all the while, is such a flood, and its connection is shut down.

A connection is told from others by its peer's routing id. Its descriptor is not its name: the number is given out again
as soon as it has ended, while what it sent, and the word that it is no more, may still wait to be read.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from seedbus.bus.zeromq.descriptors import BYTES_ACKED, BYTES_RECEIVED, GONE, borrowed, counted, name_of, own_path
from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.bus.zeromq.sockets import CURVE, FAILURES, INPROC, PLAIN, Wire, is_crowded, most_open

EVENTS = 300  # taken note of before others get their turn
STRANGERS = 256  # connections without a session that there are at a time; fewer, where few files may be open
STRANGERS_OF_A_HOST = 128
STRANGERS_STRIKES = 10  # refused frames after which a connection without a session is hung up on
APART = 1024  # bytes that come beside a message: a greeting, and what stands before frames
KEPT = 3  # calls of `idle` after which one that has ended is forgotten
HERE = "this process"
OLD = "a peer of an older ZMTP"
_SINK = bytearray(2**16)
_RESET = struct.pack("ii", 1, 0)  # linger for no time: what the peer has not sent yet is not waited for


@dataclass(eq=False, slots=True)
class Connection:
    """One connection. name: the address of the other end; peer: its routing id, once it has said something.

    is_own: it came in by the socket that only processes of this user find; user: the key that it was let in with.
    whole: messages that came over it; refused: frames of them that were; age: calls of `idle` that found it idle, or
    over; most: bytes of a message that it may send; strikes: refused frames after which it is hung up on; wire: what
    its frames take. As of the last look for floods: seen: messages; received: the bytes by then; suspicions: looks
    since then that found too many more bytes, and no message.
    """

    descriptor: int
    name: str
    peer: bytes = b""
    has_come: bool = True
    is_hung_up: bool = False
    is_over: bool = False
    whole: int = 0
    refused: int = 0
    age: int = 0
    has_session: bool = False
    is_member: bool = False
    most: int = HELLO_BYTES
    strikes: int = STRANGERS_STRIKES
    wire: Wire = PLAIN
    is_own: bool = False
    user: str = ""
    seen: int = 0
    received: int = 0
    suspicions: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether the system has no such connection any more."""
        return self.is_over or (self.descriptor >= 0 and name_of(self.descriptor) != self.name)

    @property
    def host(self) -> str:
        return self.name.rpartition(":")[0]

    @property
    def sent_bytes(self) -> int:
        """Bytes that the other end has taken, as far as the system tells."""
        return self._moved(BYTES_ACKED)

    @property
    def received_bytes(self) -> int:
        """Bytes that have come from the other end, whole messages or not, as far as the system tells."""
        return self._moved(BYTES_RECEIVED)

    def _moved(self, offset: int) -> int:
        is_there = self.descriptor >= 0 and not self.is_gone
        return counted(self.descriptor, offset) or 0 if is_there else 0


class Connections:
    """The connections that a socket has accepted.

    own: the path of the socket that only processes of this user find, if there is one; has_keys: whether those who come
    by another have proved a key; crowd: strangers that may be there at a time in any case, of one host too. ended:
    called with each that has ended; failed: with why one that was tried came to nothing; crowded: with one that leaves
    too few files for everything else.
    """

    def __init__(
        self,
        owner: zmq.Socket[bytes],
        own: str,
        has_keys: bool,
        crowd: int,
        ended: Callable[[Connection], None],
        failed: Callable[[str], None],
        crowded: Callable[[Connection], None],
    ) -> None:
        self._owner, self._own, self._has_keys = owner, own, has_keys
        self._most, self._most_of_a_host = max(STRANGERS, crowd), max(STRANGERS_OF_A_HOST, crowd)
        self._ended, self._failed, self._crowded = ended, failed, crowded
        self._monitor = owner.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(FAILURES))
        self._open: dict[int, list[Connection]] = {}  # by descriptor: those that nobody has said of that they ended
        self._over: dict[int, Connection] = {}  # by descriptor: the one that ended last
        self._peers: dict[bytes, Connection] = {}
        self._strangers: dict[Connection, None] = {}  # those without a session, the oldest first
        self._is_reading = False

    def received(self, peer: bytes, frame: zmq.Frame) -> Connection:
        """The connection that a message came over."""
        connection = self._peers.get(peer)
        if connection is None:
            connection = self._first(peer, frame)
        connection.whole += 1
        return connection

    def hang_up(self, connection: Connection) -> None:
        """End a connection; ZeroMQ frees all that it held of it."""
        connection.is_hung_up = True
        self._strangers.pop(connection, None)
        if connection.descriptor >= 0 and not connection.is_gone:
            with suppress(OSError), borrowed(connection.descriptor) as end:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
                # what the system holds is thrown away: read by ZeroMQ, frames of nothing would take thirty times that
                while end.recv_into(_SINK, 0, socket.MSG_DONTWAIT):
                    pass

    def flooding(self) -> list[tuple[Connection, int]]:
        """Connections over which so many bytes have come, and no whole message; ours to hang up.

        To be called once what is there has been read. Who has said something whole before gets a second look.
        """
        found = []
        for connection in self._present():
            received = counted(connection.descriptor, BYTES_RECEIVED)
            if received is None:
                continue
            if connection.whole != connection.seen:
                connection.seen, connection.received, connection.suspicions = connection.whole, received, 0
            elif received - connection.received > connection.most * (2 if connection.is_member else 1) + APART:
                connection.suspicions += 1
                if connection.suspicions > 1 or not connection.whole:
                    found.append((connection, received - connection.received))
        return found

    def has_session(self, connection: Connection, has_one: bool) -> None:
        """Note whether a connection has a session now: without one it is a stranger's."""
        connection.has_session = has_one
        if has_one:
            self._strangers.pop(connection, None)
        elif not (connection.is_own or connection.is_over or connection.is_hung_up):
            self._strangers[connection] = None

    @property
    def has_many_strangers(self) -> bool:
        """Whether it is worth a look whether there are too many."""
        return len(self._strangers) > self._most_of_a_host

    def too_many(self) -> list[Connection]:
        """Connections of strangers beyond what there may be at a time, of one host and of all, the oldest first; ours
        to hang up.

        To be called once what is there has been read: a process that has something to say has said it by then, and is
        none of them.
        """
        hosts = Counter(each.host for each in self._strangers)
        left, most, found = len(self._strangers), min(self._most, most_open() // 2), []
        for each in self._strangers:
            if left > most or hosts[each.host] > self._most_of_a_host:
                left, hosts[each.host] = left - 1, hosts[each.host] - 1
                found.append(each)
        return found

    def idle(self, ticks: int) -> list[Connection]:
        """Connections that have been found without a session for more than so many calls; ours to hang up."""
        present, found = self._present(), []
        for connection in present:
            connection.age = 0 if connection.has_session else connection.age + 1
            if connection.age == ticks + 1:
                found.append(connection)
        for connections in self._open.values():
            for connection in [each for each in connections if not each.has_come]:
                connection.age += 1
                if connection.age > KEPT:  # it came and went before it was heard of
                    connections.remove(connection)
                    connection.is_over, connection.age = True, 0
        for connection in [each for each in self._peers.values() if each.is_over]:
            connection.age += 1
            if connection.age > KEPT:
                del self._peers[connection.peer]
        return found

    def close(self) -> None:
        """Let go of the monitor, which would keep the context from ending."""
        if not self._monitor.closed:
            with suppress(zmq.Again):  # full, it holds up ZeroMQ's own thread, which letting go of it would wait for
                while True:
                    self._monitor.recv_multipart(zmq.NOBLOCK)
            self._owner.disable_monitor()
            self._monitor.close(linger=0)

    @property
    def descriptor(self) -> int:
        """Readable when there is something for `read_events`."""
        return int(self._monitor.FD)

    def read_events(self) -> bool:
        """Take note of who has come and gone; returns whether there may be more of it."""
        if self._is_reading:  # whoever is told of an end reads what came before it, and so comes here again
            return True
        self._is_reading = True
        try:
            for _ in range(EVENTS):
                event: dict[str, Any] = dict(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK)))
                self._happened(event["event"], int(event["value"]))
            return True
        except zmq.Again:
            return False
        finally:
            self._is_reading = False

    def _happened(self, event: Any, value: int) -> None:
        if event in FAILURES:
            self._failed(FAILURES[event])
        elif event == zmq.EVENT_ACCEPTED:
            connections = self._open.setdefault(value, [])
            connection = next((each for each in connections if not each.has_come), None)
            if connection is None:
                connections.append(connection := self._made(value))
            connection.has_come = True
            self.has_session(connection, connection.has_session)
            if is_crowded(value) and not connection.is_own:
                self._crowded(connection)
        elif self._open.get(value):
            connection = self._open[value].pop(0)
            if not self._open[value]:
                del self._open[value]
            self._over[value] = connection
            connection.is_over, connection.age = True, 0
            self._ended(connection)
            self._strangers.pop(connection, None)

    def _first(self, peer: bytes, frame: zmq.Frame) -> Connection:
        """The connection of a first message. It may be here before the word that its connection came."""
        try:
            descriptor = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:  # inproc has none, and ZeroMQ tells none of a peer that speaks ZMTP 1 or 2
            is_inproc = self._owner.get_string(zmq.LAST_ENDPOINT).startswith("inproc:")
            self._peers[peer] = made = Connection(-1, HERE if is_inproc else OLD, peer, is_over=not is_inproc)
            made.is_own, made.wire = is_inproc, INPROC if is_inproc else PLAIN
            return made
        if not frame.more:  # whoever hears of an end reads on, which in mid-message would take its frames for messages
            self.read_events()
        if peer in self._peers:  # to whom that led has read on, and was here before
            return self._peers[peer]
        connection = self._of(descriptor)
        connection.peer = peer
        if self._has_keys and not connection.is_own:  # without keys it would be what a peer says of itself
            connection.user, connection.wire = str(frame.get("User-Id")), CURVE
        self._peers[peer] = connection
        return connection

    def _of(self, descriptor: int) -> Connection:
        """The connection with this descriptor over which nothing whole has come before."""
        over, connections = self._over.get(descriptor), self._open.get(descriptor, [])
        if over is not None and not (over.peer or connections) and name_of(descriptor) in (over.name, GONE):
            return over  # it has ended already, and is heard of only now
        if not connections or connections[-1].peer:
            connections = self._open.setdefault(descriptor, connections)
            connections.append(self._made(descriptor))
            connections[-1].has_come = False
        return connections[-1]

    def _made(self, descriptor: int) -> Connection:
        made = Connection(descriptor, name_of(descriptor))
        made.is_own = bool(self._own) and own_path(descriptor) == self._own
        return made

    def _present(self) -> list[Connection]:
        """Those that are there, as far as is known."""
        newest = [connections[-1] for connections in self._open.values() if connections]
        return [connection for connection in newest if connection.has_come and not connection.is_hung_up]
