"""A link of a worker's process to its server: it owns a DEALER socket, moves bytes, and reads the clock.

`LinkProtocol` decides what is sent. A link that hears nothing from its hub for three heartbeats closes its socket, and
connects a new one after a wait that doubles each time; so it survives a restart of the server. The same happens when a
hub says that the session is over. A process that cannot go on sends a FAREWELL with the reason, in one word. So does
one whose user keeps it away for a while; it comes back as after a lost connection, with the replicas that it has.

The hub is not trusted: too many packets that make no sense, and a message that never ends, raise `BadServer`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import SHORT
from seedbus.bus.errors import BadServer, MalformedEnvelope, MalformedPacket, SentAway, ServerGone
from seedbus.bus.transport import MOST_CLIENTS, Follower, HostRequest, LongFollower, Recruit
from seedbus.bus.wire import wire_of
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.keys import Identity
from seedbus.bus.zeromq.packet import AWAY, Packet
from seedbus.bus.zeromq.worker.monitor import ConnectionMonitor, Meter
from seedbus.bus.zeromq.worker.protocol import Delivered, Event, Failed, JoinAnswered, LinkProtocol, Offered
from seedbus.bus.zeromq.worker.session import WorkerSession
from seedbus.bus.zeromq.worker.worker_thread import WorkerThread
from seedbus.pieces import Frame

LINGER_MS = 500  # how long ZeroMQ may go on sending after `close`
LOOK_S = 0.5  # how often a process asks whether its user keeps it away
MALFORMED = 100  # packets that make no sense which are accepted from one hub


def _ignore(event: str, **facts: Any) -> None:
    pass


@dataclass(frozen=True)
class Joining:
    """Which server a process joins, with what, and for how long it waits.

    Attributes:
        endpoint: the server's address.
        request: the clients to ask for.
        patience_s: how long a server may be away.
        note: called with an event's name and facts about it.
        most_clients: clients that an offer may hold if the request names none and no number.
        identity: the keys to show, if the server asks for some.
        why_away: returns why this process takes no part now, or "", from the bytes that it has sent and received; None:
            it always takes part.
    """

    endpoint: str
    request: HostRequest = field(default_factory=HostRequest)
    patience_s: float = 60.0
    note: Callable[..., None] = _ignore
    most_clients: int = MOST_CLIENTS
    identity: Identity | None = None
    why_away: Callable[[int], str] | None = None


class Link:
    """One socket at a time, from HELLO to FAREWELL.

    Args:
        context: the context of ZeroMQ that sockets are made in.
        joining: which server to join.
        recruit: builds followers for an offer.
        worker_thread: where followers are built and work.

    Attributes:
        socket: the present socket; closed while the link waits to connect again.

    Raises:
        BadEndpoint: its endpoint is not a server's address.
    """

    def __init__(
        self, context: zmq.Context[Any], joining: Joining, recruit: Recruit, worker_thread: WorkerThread
    ) -> None:
        self._context = context
        self._endpoint = joining.endpoint
        self._identity = joining.identity
        self._recruit = recruit
        self._worker_thread = worker_thread
        self._note = joining.note
        self._wire = wire_of(joining.endpoint, joining.identity is not None)
        self._protocol = LinkProtocol(
            joining.endpoint,
            joining.request,
            patience_s=joining.patience_s,
            most_clients=joining.most_clients,
            now_s=wall_seconds(),
            has_checksums=self._wire.is_checked,
        )
        self._follower: Follower | None = None
        self._monitor = ConnectionMonitor()
        self._meter: Meter | None = None  # of a connection over which an OFFER has come
        self._sent_bytes = 0  # over the present connection
        self._malformed = 0
        self._told_of_silence = False  # that no server has answered yet
        self._why_away = joining.why_away
        self._away_since_s: float | None = None
        self._wire_bytes = 0  # sent and received, over all connections
        self.socket = sockets.make(context, zmq.DEALER, identity=joining.identity)
        self.socket.close()
        if not self._is_away(wall_seconds()):
            self._connect()

    @property
    def is_over(self) -> bool:
        """Whether the run is over."""
        return self._protocol.session.is_over

    @property
    def has_more_to_send(self) -> bool:
        """Whether packets wait that ZeroMQ has not accepted."""
        return self._protocol.session.outbox.first() is not None

    @property
    def due_s(self) -> float:
        """When `tick` must be called next."""
        look_s = inf if self._why_away is None else wall_seconds() + LOOK_S
        if self._away_since_s is not None:
            return look_s
        return min(self._protocol.liveness.due_s, self._monitor.due_s, look_s)

    # -- time

    def paused(self, seconds: float) -> None:
        """This process was stopped for so long; to be called before the next `tick`."""
        self._protocol.liveness.paused(seconds)

    def tick(self) -> None:
        """Do what is due: send a PING, close a silent connection, connect again.

        Raises:
            ServerGone: no server has been there for too long.
            SentAway: the server has declined for too long, or does not accept this process's keys.
            BadServer: it sends a message that never ends.
        """
        now_s = wall_seconds()
        if self._is_away(now_s):
            return
        self._check_connection(now_s)
        liveness = self._protocol.liveness
        if liveness.should_give_up(now_s):
            gone = ServerGone(self._endpoint, liveness.patience_s, self._handshake_hint())
            raise self._protocol.rejection or gone
        if liveness.should_reconnect(now_s):
            self._connect()
        elif liveness.is_silent(now_s):
            self._disconnect("nothing was heard")
        if liveness.should_ping(now_s):
            self._protocol.ping(now_s)
            self.drain()
            if self._meter is not None and self._meter.has_moved(self._sent_bytes):
                liveness.heard(now_s)  # these bytes may be a long message that is not whole yet
        self.drain()

    def _is_away(self, now_s: float) -> bool:
        """Leave the server or come back to it, as the user of this process says; returns whether it is away."""
        why = "" if self._why_away is None else self._why_away(self._wire_bytes)
        if why and self._away_since_s is None:
            self._away_since_s = now_s
            self._note("away", because=why)
            if not self.socket.closed:
                self.give_up(AWAY)
                self._close_socket(LINGER_MS)
                self._protocol.disconnected(0.0, now_s)
        elif not why and self._away_since_s is not None:
            self._protocol.liveness.paused(now_s - self._away_since_s)
            self._away_since_s = None
            self._note("back")
            self._connect()
        return self._away_since_s is not None

    def _check_connection(self, now_s: float) -> None:
        if now_s < self._monitor.due_s:
            return
        self._monitor.read_events()
        if self._monitor.failure == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            refused = SentAway(self._endpoint, "not-authorised", "its keys do not include this process's")
            if not self._protocol.knows_run:
                raise refused
            self._protocol.rejection = refused  # its table may be unreadable for a while: this process tries on
        why = self._monitor.endless_message(now_s)
        if why is not None:
            raise BadServer(self._endpoint, why)

    def _handshake_hint(self) -> str:
        """Return a possible reason why no server answers."""
        if not self._monitor.had_failure:
            return ""
        if self._identity is None:
            return "a peer ends the handshake: perhaps a server with keys; then --server-key is needed"
        return "a peer ends the handshake: perhaps a server with another key than --server-key, or with none"

    # -- the socket

    def _connect(self) -> None:
        if self._identity is not None:
            self._identity = self._identity.renewed()
        self.socket = sockets.make(self._context, zmq.DEALER, identity=self._identity)
        now_s = wall_seconds()
        self._monitor.open(self.socket, now_s)
        try:
            sockets.connect(self.socket, self._endpoint)
        except BaseException:
            self._close_socket()  # an open one would keep the context from terminating
            raise
        self._meter = None
        self._sent_bytes = 0
        self._protocol.connected(now_s)
        self.drain()

    def _disconnect(self, why: str, linger_ms: int | None = None) -> None:
        """Close the socket; a new one is connected later."""
        now_s = wall_seconds()
        self._close_socket(linger_ms)
        trying = f"for {self._protocol.liveness.patience_s:g} s"
        if self._protocol.disconnected(os.urandom(1)[0] / 255, now_s):
            self._note("the server is gone", trying=trying, because=why)
        elif not (self._protocol.knows_run or self._protocol.rejection or self._told_of_silence):
            self._told_of_silence = True
            because = self._handshake_hint() or why
            self._note("no server has answered yet", at=self._endpoint, trying=trying, because=because)

    def drain(self) -> None:
        """Send the packets that wait, as far as ZeroMQ accepts them."""
        outbox = self._protocol.session.outbox
        while not self.socket.closed and (data := outbox.first()) is not None:
            try:
                self.socket.send(data, zmq.NOBLOCK, copy=len(data) < SHORT)
            except zmq.Again:
                return
            outbox.sent()
            if not self._sent_bytes:
                self._wire_bytes += self._wire.up + self._wire.down
            self._sent_bytes += len(data)
            self._wire_bytes += self._wire.bytes_of(len(data))

    def give_up(self, code: str) -> None:
        """Tell the hub that this process ends, and why: one of `packet.FAREWELLS`."""
        if not self.socket.closed:
            with suppress(zmq.ZMQError):
                self._protocol.give_up(code)
                self.drain()

    def close(self) -> None:
        """Close the socket; ZeroMQ may go on sending for `LINGER_MS`."""
        if not self.socket.closed:
            self._close_socket(LINGER_MS)

    def _close_socket(self, linger_ms: int | None = None) -> None:
        self._monitor.close()
        self.socket.close(linger=linger_ms)

    # -- receiving

    def read(self) -> None:
        """Handle all packets that are there.

        Raises:
            SentAway: the server declines.
            BadServer: it sends packets that an honest hub would not send.
        """
        while not self.is_over and not self.socket.closed and int(self.socket.get(zmq.EVENTS)) & zmq.POLLIN:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
            self._monitor.message_received()
            self._wire_bytes += self._wire.bytes_of(len(frame))
            try:
                data = self._protocol.session.checksums.removed(sockets.content(frame))
            except MalformedPacket as error:
                self.give_up(error.reason)
                self._disconnect(error.detail, LINGER_MS)
                return
            try:
                self._received(packet.read(data), frame)
            except (MalformedPacket, MalformedEnvelope) as error:
                self._malformed += 1
                if self._malformed > MALFORMED:
                    raise BadServer(
                        self._endpoint, f"it sent {self._malformed} packets that make no sense, the last one: {error}"
                    ) from None
                self._note("malformed", detail=str(error))

    def _received(self, received: Packet, frame: zmq.Frame) -> None:
        try:
            for event in self._protocol.receive(received, wall_seconds()):
                self._act(event, frame)
        finally:
            self.drain()

    def _act(self, event: Event, frame: zmq.Frame) -> None:
        match event:
            case Failed(reason):
                self._disconnect(reason)
            case Offered():
                self._meter = Meter(frame, self._wire)
                self._worker_thread.do(partial(self._build, event, self._protocol.session))
            case JoinAnswered(answer):
                self._worker_thread.do(partial(self._present_follower.welcome, answer))
            case Delivered(frames):
                self._worker_thread.handle(
                    self._present_follower, frames, partial(self._answer, self._protocol.session)
                )

    @property
    def _present_follower(self) -> Follower:
        if self._follower is None:
            raise RuntimeError("no follower has been built yet")
        return self._follower

    # -- the worker thread's jobs and results

    def _build(self, offered: Offered, session: WorkerSession) -> Callable[[], None]:
        """Build followers for an offer, on the worker thread; returns a function that sends their JOINs."""
        if self._follower is None or offered.is_new:
            self._follower = None  # so that its memory is free for the next one
            self._follower = self._recruit(offered.offer)
        longest = self._follower.longest if isinstance(self._follower, LongFollower) else 0
        return partial(self._join, session, self._follower.join(offered.offer.host, offered.offer.nonce), longest)

    def _join(self, session: WorkerSession, joins: list[Frame], longest: int) -> None:
        self._protocol.join(session, joins, longest)
        self.drain()

    def _answer(self, session: WorkerSession, answers: list[list[Frame]]) -> None:
        self._protocol.answer(session, answers)
        self.drain()
