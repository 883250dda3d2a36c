"""The hub's ROUTER socket.

It is read on an asyncio loop whenever there is input, and never blocks. When too much of the input is refused, or comes
from strangers, reading pauses for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import SHORT
from seedbus.bus.transport import OPERATOR, Rights
from seedbus.bus.wire import wire_of
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.heartbeat import REST_S, Heartbeat
from seedbus.bus.zeromq.keys import DOMAIN, KeyPair
from seedbus.bus.zeromq.server.connection import Connection
from seedbus.bus.zeromq.server.connections import Connections

MISSED = 3  # heartbeats after which a peer counts as gone
BUDGET = 500  # messages that are read before other callbacks of the loop get their turn
REFUSALS = 50  # refusals after which reading pauses
STRANGERS_S = 0.002  # seconds spent on strangers' messages after which reading pauses for four times as long

Heard = Callable[[bytes, Connection, int, zmq.Frame, int], None]
"""Called with a message's routing id, connection, number of frames, last frame, and bytes on the wire."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where peers connect to a hub, and what they may ask for.

    Attributes:
        endpoint: the address that workers connect to.
        own: another address, which only processes of this user can find, and where they need no key.
        keys: the server's pair of keys, whose public one all that connect to `endpoint` must know; None: no encryption.
        rights: returns what a peer may ask for, from whether it came in by `own`, and its public key; None: nothing.
    """

    endpoint: str
    own: str = ""
    keys: KeyPair | None = None
    rights: Callable[[bool, str], Rights | None] = lambda is_own, user: OPERATOR


class RouterSocket:
    """The socket that peers connect to.

    Args:
        context: the context of ZeroMQ that it is made in.
        entrance: the addresses that peers connect to, and their keys.
        packet_limit: bytes of the longest packet that a member may send.
        crowd: connections of strangers that are accepted at a time in any case.
        heard: called with each message.
        left: called with each connection over which nothing comes any more, and the reason.
        refused: called with a peer's name, a word and a sentence about what was refused.

    Attributes:
        endpoint: the address that peers connect to, with its port.

    Raises:
        BadEndpoint: an address cannot be listened at.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        entrance: Entrance,
        packet_limit: int,
        *,
        crowd: int = 0,
        heard: Heard,
        left: Callable[[Connection, str], None],
        refused: Callable[[str, str, str], None],
    ) -> None:
        endpoint, own, keys = entrance.endpoint, entrance.own, entrance.keys
        self._heard = heard
        self._left = left
        self._refused = refused
        self._socket = sockets.make(context, zmq.ROUTER, packet_limit)
        self._connections = Connections(
            self._socket,
            own.removeprefix("ipc://"),
            wire_of(endpoint, keys is not None),
            crowd,
            self._ended,
            self._handshake_failed,
            self._crowded,
        )
        try:
            if own and own != endpoint:
                sockets.bind(self._socket, own)  # options that are set later hold for the other address only
            if keys is not None:
                self._socket.curve_server = True
                self._socket.zap_domain = DOMAIN.encode()
                self._socket.curve_publickey = keys.public
                self._socket.curve_secretkey = keys.secret
            sockets.bind(self._socket, endpoint)
        except BaseException:
            self._connections.close()
            self._socket.close()
            raise
        self.endpoint = endpoint if endpoint.startswith("inproc:") else self._socket.get_string(zmq.LAST_ENDPOINT)
        self._descriptor = int(self._socket.FD)
        self._started: tuple[asyncio.AbstractEventLoop, Heartbeat] | None = None
        self._refusals = 0  # since the last pause
        self._strangers_s = 0.0  # seconds spent on strangers' messages since the last pause
        self._events_s = 0.0  # seconds spent on connections that come and go since the last rest
        self._is_paused = False
        self._rests_from_events = False
        self._is_closing = False

    def start(self, heartbeat_s: float, tick: Callable[[], None], look: Callable[[], None]) -> None:
        """Read on the running loop.

        Args:
            heartbeat_s: the interval between heartbeats.
            tick: called once a heartbeat.
            look: called `LOOKS` times a heartbeat.
        """

        def beat() -> None:
            if self._is_paused:
                self._listen()
            self._check_floods()
            tick()

        loop = asyncio.get_running_loop()
        self._started = (
            loop,
            Heartbeat(loop, heartbeat_s, beat, look, self._check_floods, self._listen, self._connections.cut_strangers),
        )
        self._listen()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._started is None:
            raise RuntimeError("a router socket reads nothing before it is started")
        return self._started[0]

    @property
    def is_closed(self) -> bool:
        """Whether the socket is closed."""
        return self._socket.closed

    def stop(self) -> bool:
        """Stop reading, except by `wait`; returns whether it was reading. A second call has no effect."""
        was_reading = self._started is not None and not self._is_closing
        self._is_closing = True
        if self._started is None or not was_reading:
            return False
        self._started[1].close()
        self._pause()
        return True

    def close(self, linger_ms: int) -> None:
        """Close the socket; ZeroMQ goes on sending for `linger_ms` at most."""
        self._connections.close()
        self._socket.close(linger=linger_ms)

    # -- sending

    def send(self, peer: bytes, data: bytes) -> bool:
        """Send a message now; returns whether ZeroMQ has accepted it."""
        try:
            self._socket.send_multipart([peer, data], zmq.NOBLOCK, copy=len(data) < SHORT)
        except zmq.ZMQError as error:
            # EAGAIN: its queue is full. EHOSTUNREACH: its connection is gone, which its silence will show
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def look_again(self) -> None:
        """Schedule a read. Required after sending, which may consume the descriptor's one notice of input."""
        if self._started is not None and not self._is_closing and not self._is_paused:
            self._loop.call_soon(self._read)

    # -- receiving

    def wait(self, timeout_ms: int) -> None:
        """Read one message, if one comes in time."""
        self._connections.read_events()  # a full monitor would block the messages
        if self._socket.poll(timeout_ms):
            self._read_one()

    def _listen(self) -> None:
        """Watch for input, and read the messages that came before: the descriptors give no notice of those."""
        self._is_paused = self._rests_from_events = False
        self._loop.add_reader(self._descriptor, self._read)
        self._loop.add_reader(self._connections.descriptor, self._read_events)
        self._loop.call_soon(self._read)
        self._loop.call_soon(self._read_events)

    def _pause(self) -> None:
        """Read nothing for a moment: simulated time advances only while nothing comes in."""
        pause_s = max(REST_S, 4 * self._strangers_s)
        self._is_paused = True
        self._refusals = 0
        self._strangers_s = 0.0
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_reader(self._connections.descriptor)
        if self._started is not None:
            self._started[1].rest(pause_s)

    def _read(self) -> None:
        """Read all messages. The descriptor gives notice of a change only once, so none may be left."""
        for _ in range(BUDGET):
            if self._socket.closed or self._is_paused or not self._read_one():
                return
            if self._needs_pause and not self._is_closing:
                self._pause()
        self._loop.call_soon(self._read)

    @property
    def _needs_pause(self) -> bool:
        return self._refusals > REFUSALS or self._strangers_s > STRANGERS_S

    def _read_events(self) -> None:
        """Read which connections have come and gone: many at a time, so that those of others need not queue behind
        thousands of one host's, and then none for a moment, in which messages are read."""
        if self._socket.closed or self._is_paused or self._rests_from_events:
            return
        began_s = wall_seconds()
        has_more = self._connections.read_events()
        if self._connections.has_many_strangers:
            self._read_some()
            for connection in self._connections.too_many():
                self._hang_up(connection, "too-many-connections", "there are too many connections of strangers")
        self._events_s = self._events_s + wall_seconds() - began_s if has_more else 0.0
        if self._is_closing or self._is_paused:
            return
        if self._needs_pause:
            self._pause()
        elif self._events_s > STRANGERS_S and self._started is not None:
            self._rests_from_events = True
            self._loop.remove_reader(self._connections.descriptor)
            self._started[1].rest(max(REST_S, self._events_s))
            self._events_s = 0.0
        elif has_more:
            self._loop.call_soon(self._read_events)

    def _read_one(self) -> bool:
        """Read one message, if there is one; returns whether there was."""
        try:
            peer = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        last = self._socket.recv(zmq.NOBLOCK, copy=False)  # ZeroMQ hands over whole messages
        connection = self._connections.received(peer, last)
        was_hung_up = connection.is_hung_up
        began_s = 0.0 if connection.is_member else wall_seconds()
        frames = 1
        size = connection.wire.bytes_of(len(last))
        while last.more:  # one by one, because there may be very many
            last = self._socket.recv(zmq.NOBLOCK, copy=False)
            frames += 1
            size += connection.wire.bytes_of(len(last))
            if frames == connection.strikes:  # now, because more may come in while these are read
                self._hang_up(connection, "too-many-refusals", f"a packet of {frames} frames and more")
        if not was_hung_up:  # hanging up discards bytes that ZeroMQ may be reading: what it reads then is no message
            self._heard(peer, connection, frames, last, size)
        if began_s:
            self._strangers_s += wall_seconds() - began_s
        return True

    def _read_some(self) -> None:
        for _ in range(BUDGET):
            if not self._read_one():
                return

    # -- connections

    def strike(self, connection: Connection, frames: int = 1) -> None:
        """Count refused frames of a connection; after too many, it is closed."""
        self._refusals += 1
        if connection.frames_refused(max(1, frames)):
            self._hang_up(connection, "too-many-refusals", f"{connection.strikes} of its frames were refused")

    def session_opened(self, connection: Connection, packet_limit: int) -> None:
        """A session uses the connection, and its peer may send packets of `packet_limit` bytes."""
        self._connections.session_opened(connection, packet_limit)

    def session_ended(self, connection: Connection) -> None:
        """The connection's session is over."""
        self._connections.session_ended(connection)

    def let_go(self, connection: Connection) -> None:
        """Close the connection of a member that is gone: when it wakes up it connects anew, and nothing is refused."""
        if connection.descriptor >= 0:  # inproc has no connection to close
            self._connections.hang_up(connection)

    def hang_up_on_idlers(self) -> None:
        """Close the connections that have had no session for too long; to be called once a heartbeat."""
        for connection in self._connections.idle(MISSED):
            self._hang_up(connection, "said-nothing", f"no HELLO for {MISSED} heartbeats")

    def _hang_up(self, connection: Connection, reason: str, detail: str) -> None:
        if not connection.is_hung_up:
            self._refused(connection.name, reason, detail)
            self._connections.hang_up(connection)
            self._left(connection, detail)

    def _ended(self, connection: Connection) -> None:
        """Handle the end of a connection, once all messages that came over it have been handled."""
        if connection.peer:
            self._refusals += 1
            self._read_some()
        self._left(connection, "its connection ended")

    def _check_floods(self) -> None:
        """Close the connections that have sent too much of an unfinished message."""
        self._read_some()
        for connection, size in self._connections.flooding():
            self._hang_up(connection, "unfinished-message", f"{size:,} bytes of a message that does not end")

    def _handshake_failed(self, why: str) -> None:
        self._refused("a stranger", "no-handshake", why)

    def _crowded(self, connection: Connection) -> None:
        self._hang_up(connection, "too-many-connections", "too many files are open for another connection")
