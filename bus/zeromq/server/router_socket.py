"""The hub's socket: a ROUTER that is read when there is something, rests when there is too much of nothing, and never
waits for anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import SHORT
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.heartbeat import REST_S, Heartbeat
from seedbus.bus.zeromq.keys import DOMAIN, KeyPair
from seedbus.bus.zeromq.server.connections import Connection, Connections

MISSED = 3  # heartbeats after which a peer is gone
STRIKES = 100  # refused frames after which a member is hung up on
BUDGET = 500  # messages read before others get their turn
REFUSALS = 50  # before nothing is read for a moment
STRANGERS_S = 0.002  # that reading strangers' messages may take before nothing is read for four times as long

Heard = Callable[[bytes, Connection, int, zmq.Frame, int], None]


class RouterSocket:
    """Where peers connect to.

    own: an address that only processes of this user find, where they need no key; keys: the server's, for whoever
    comes to `endpoint`; crowd: strangers that may be there at a time in any case. most: bytes of a message that a
    member may send; heard: called with each: its peer's routing id, its connection, how many frames it has, the last of
    them, and its bytes on the wire; left: with each connection over which nothing comes any more, and why; refused:
    with whoever did what is not acted upon, a word and a sentence. refusals: what has been refused lately; whoever
    refuses counts it here.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        most: int,
        *,
        own: str = "",
        keys: KeyPair | None = None,
        crowd: int = 0,
        heard: Heard,
        left: Callable[[Connection, str], None],
        refused: Callable[[str, str, str], None],
    ) -> None:
        self._heard, self._left, self._refused = heard, left, refused
        self._socket = sockets.make(context, zmq.ROUTER, most)
        self._connections = Connections(
            self._socket,
            own.removeprefix("ipc://"),
            keys is not None,
            crowd,
            self._ended,
            self._no_handshake,
            self._crowded,
        )
        try:
            if own and own != endpoint:
                sockets.bind(self._socket, own)  # what is set after it holds for the other address only
            if keys is not None:
                self._socket.curve_server, self._socket.zap_domain = True, DOMAIN.encode()
                self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
            sockets.bind(self._socket, endpoint)
        except BaseException:
            self._connections.close()
            self._socket.close()
            raise
        self.endpoint = endpoint if endpoint.startswith("inproc:") else self._socket.get_string(zmq.LAST_ENDPOINT)
        self._descriptor = int(self._socket.FD)
        self._started: tuple[asyncio.AbstractEventLoop, Heartbeat] | None = None
        self.refusals = 0
        self._strangers_s = 0.0
        self._is_resting = self._is_closing = False

    def start(self, heartbeat_s: float, tick: Callable[[], None], look: Callable[[], None]) -> None:
        """Read on the loop that runs; tick: called every heartbeat; look: several times in each."""

        def beat() -> None:
            if self._is_resting:
                self._listen()
            self._alarm()
            tick()

        loop = asyncio.get_running_loop()
        self._started = loop, Heartbeat(loop, heartbeat_s, beat, look, self._alarm, self._listen)
        self._listen()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop that this is read on."""
        if self._started is None:
            raise RuntimeError("a port reads nothing before it is started")
        return self._started[0]

    @property
    def is_closed(self) -> bool:
        return self._socket.closed

    def stop(self) -> bool:
        """No more reading but by `wait`; returns whether there was any."""
        self._is_closing = True
        if self._started is None:
            return False
        self._started[1].close()
        self._rest()
        return True

    def close(self, linger_ms: int) -> None:
        self._connections.close()
        self._socket.close(linger=linger_ms)

    # -- sending

    def send(self, peer: bytes, data: bytes) -> bool:
        """Send a message now; returns whether ZeroMQ has taken it."""
        try:
            self._socket.send_multipart([peer, data], zmq.NOBLOCK, copy=len(data) < SHORT)
        except zmq.ZMQError as error:
            # EAGAIN: its queue is full. EHOSTUNREACH: its connection is gone, which its silence will show
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def look_again(self) -> None:
        """Whoever has sent must: it may have swallowed the descriptor's one notice of input."""
        if self._started is not None and not self._is_closing and not self._is_resting:
            self._loop.call_soon(self._read)

    # -- receiving

    def wait(self, most_ms: int) -> None:
        """Read one message, if there is one in time."""
        self._connections.read_events()  # unread, they would hold up what waits to be read
        if self._socket.poll(most_ms):
            self._read_one()

    def _listen(self) -> None:
        """Be told of input, and take what is there: of that the descriptors tell no more."""
        self._is_resting = False
        self._loop.add_reader(self._descriptor, self._read)
        self._loop.add_reader(self._connections.descriptor, self._read_events)
        self._loop.call_soon(self._read)
        self._loop.call_soon(self._read_events)

    def _rest(self) -> None:
        """Take nothing for a moment: simulated time passes only while nothing comes in."""
        rest_s = max(REST_S, 4 * self._strangers_s)
        self._is_resting, self.refusals, self._strangers_s = True, 0, 0.0
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_reader(self._connections.descriptor)
        if self._started is not None:
            self._started[1].rest(rest_s)

    def _read(self) -> None:
        """Read what is there; the descriptor tells of a change only once, so nothing may be left unnoticed."""
        for _ in range(BUDGET):
            if self._socket.closed or self._is_resting or not self._read_one():
                return
            if self._is_worn and not self._is_closing:
                self._rest()
        self._loop.call_soon(self._read)

    @property
    def _is_worn(self) -> bool:
        """Whether what is refused, or said by strangers, has had its share of this loop."""
        return self.refusals > REFUSALS or self._strangers_s > STRANGERS_S

    def _read_events(self) -> None:
        if not self._socket.closed and not self._is_resting and self._connections.read_events():
            self._loop.call_soon(self._read_events)
        if self._connections.has_many_strangers and not self._socket.closed and not self._is_resting:
            self._read_some()
            for connection in self._connections.too_many():
                self._hang_up(connection, "too-many-connections", "there are too many connections of strangers")
        if self._is_worn and not self._is_resting and not self._is_closing:
            self._rest()

    def _read_one(self) -> bool:
        try:
            peer = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        last = self._socket.recv(zmq.NOBLOCK, copy=False)  # messages come whole
        connection = self._connections.received(peer, last)
        began_s = 0.0 if connection.is_member else wall_seconds()
        frames, size = 1, connection.wire.bytes_of(len(last))
        while last.more:  # one after the other, for there may be very many
            last = self._socket.recv(zmq.NOBLOCK, copy=False)
            frames, size = frames + 1, size + connection.wire.bytes_of(len(last))
            if frames == connection.strikes:  # more of the like comes in while this is being read
                self._hang_up(connection, "too-many-refusals", f"a packet of {frames} frames and more")
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
        """What came over a connection was refused; after too much of it, it is hung up on."""
        self.refusals += 1
        before = connection.refused
        connection.refused += max(1, frames)
        if before < connection.strikes <= connection.refused:
            self._hang_up(connection, "too-many-refusals", f"{connection.strikes} of its frames were refused")

    def has_session(self, connection: Connection, has_one: bool) -> None:
        """Note whether a connection has a session now."""
        self._connections.has_session(connection, has_one)

    def hang_up_on_idlers(self) -> None:
        """Once a heartbeat: end the connections that nobody needs."""
        for connection in self._connections.idle(MISSED):
            self._hang_up(connection, "said-nothing", f"no HELLO for {MISSED} heartbeats")

    def _hang_up(self, connection: Connection, reason: str, detail: str) -> None:
        if not connection.is_hung_up:
            self._refused(connection.name, reason, detail)
            self._connections.hang_up(connection)
            self._left(connection, detail)

    def _ended(self, connection: Connection) -> None:
        """A connection is no more; whatever came over it before has been handed over by now."""
        self.refusals += 1
        self._read_some()
        self._left(connection, "its connection ended")

    def _alarm(self) -> None:
        """Memory grows fast: whoever has sent much that is nothing whole may be the reason, and is hung up on."""
        self._read_some()
        for connection, size in self._connections.flooding():
            self._hang_up(connection, "unfinished-message", f"{size:,} bytes of a message that does not end")

    def _no_handshake(self, why: str) -> None:
        self._refused("a stranger", "no-handshake", why)

    def _crowded(self, connection: Connection) -> None:
        self._hang_up(connection, "too-many-connections", "too many files are open for another connection")
