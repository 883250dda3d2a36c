"""The server's end of the ZeroMQ transport: one ROUTER, and a session for every process of followers.

Rules
- ZeroMQ chooses the routing ids; who somebody is, the session in every parcel says. What comes under a session that is
  not its connection's is refused, and told so.
- Deliveries to a host are numbered and answered in their order, each once; an answer out of turn is refused.
- What a host has not answered when it goes is delivered again to whoever comes in its place, or (in real time, where
  its clients have left) answered with nothing.
- Every peer has an outbox of its own. Sending never blocks; a peer that takes nothing, or says nothing, for three
  heartbeats is gone.
- Whatever a stranger sends is counted and otherwise without effect; whoever goes on sending what is refused is hung up
  on.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import EVALUATOR, LOWEST_ADDRESS
from seedbus.bus.errors import BadEndpoint, MalformedParcel
from seedbus.bus.transport import Answered, Declined, Reception
from seedbus.bus.zeromq import parcel, sockets
from seedbus.bus.zeromq.connections import OLD, Connection, Connections
from seedbus.bus.zeromq.parcel import NO_SESSION, Parcel, Type
from seedbus.bus.zeromq.session import Delivery, Session
from seedbus.bus.zeromq.ticker import Ticker

MISSED = 3  # heartbeats after which a peer is gone
ANSWER_S = 3600.0  # a peer that lives but does not answer is gone after so long
STRIKES = 100  # refused frames after which a connection is hung up on
PINGS = 32  # from one session within a heartbeat; a link sends one
BATCH = 16 * 2**10  # bytes of deliveries that are not held back any longer
OUTBOX = 2**28  # bytes that wait for one peer
BUDGET = 500  # parcels read before others get their turn
REFUSALS = 50  # before nothing is read for a moment
FAREWELLS_S = 1.0
LINGER_MS = 500
STRANGERS = LOWEST_ADDRESS - 1  # the address that the bytes of no session are booked under


class Hub:
    """A transport whose followers are in other processes (or threads, over inproc).

    run: eight bytes that tell this run from every other; redelivers: whether what a host that is gone has not answered
    waits for the next (simulated time), or is answered with nothing; on_tick: called once a heartbeat.
    """

    is_wire = True

    def __init__(
        self,
        endpoint: str,
        run: bytes,
        *,
        heartbeat_s: float = 2.0,
        answer_s: float = ANSWER_S,
        redelivers: bool = True,
        context: zmq.Context[Any] | None = None,
        on_tick: Callable[[Reception], None] = lambda reception: None,
    ) -> None:
        self._run, self._redelivers, self._on_tick = run, redelivers, on_tick
        self._heartbeat_s, self._answer_s = heartbeat_s, answer_s
        self._own_context = context is None
        self._context = context or zmq.Context()
        self._socket = sockets.make(self._context, zmq.ROUTER)
        self._connections = Connections(self._socket, self._ended, self._no_handshake, self._crowded)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._connections.close()
            self._socket.close()
            why = os.strerror(error.errno or 0).lower()
            raise BadEndpoint(endpoint, why, "a free address of this machine, like tcp://*:5555") from None
        self.endpoint = endpoint if endpoint.startswith("inproc:") else self._socket.get_string(zmq.LAST_ENDPOINT)
        self._descriptor = int(self._socket.FD)
        self._sessions: dict[bytes, Session] = {}
        self._peers: dict[bytes, Session] = {}
        self._routes: dict[int, Session] = {}
        self._hosts: dict[int, Session] = {}
        self._parked: dict[int, list[Delivery]] = {}
        self._gone_bytes: Counter[tuple[int, bool]] = Counter()
        self._reception: Reception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticker: Ticker | None = None
        self._refusals = 0
        self._is_resting = self._is_closing = False

    # -- the transport

    def start(self, reception: Reception) -> None:
        self._reception, self._loop = reception, asyncio.get_running_loop()
        self._ticker = Ticker(self._loop, self._heartbeat_s, self._tick, self._alarm, self._listen)
        self._listen()

    def deliver(self, address: int, frame: bytes, answered: Answered) -> None:
        if self._is_closing:
            return
        session, delivery = self._routes.get(address), Delivery(address, frame, answered)
        if session is not None:
            if session.hold_back(delivery) >= BATCH:
                self._send_batch(session)
        else:
            self._park(delivery)

    def flush(self) -> None:
        for session in [] if self._is_closing else self._hosts.values():
            self._send_batch(session)

    def post(self, host: int, frame: bytes) -> None:
        session = self._hosts.get(host)
        if session is not None and not self._is_closing:
            self._post(session, [frame])

    def framing_bytes(self, size: int) -> int:
        return parcel.number_bytes(size)

    def link_bytes(self) -> list[tuple[int, int, int]]:
        for session in self._hosts.values():
            self._settle_bytes(session)
        found, self._gone_bytes = self._gone_bytes, Counter()
        return [(host, found[host, True], found[host, False]) for host in sorted({host for host, _ in found})]

    async def close(self) -> None:
        if self._socket.closed:
            return
        self._is_closing = True
        if self._ticker is not None and self._loop is not None:
            self._ticker.close()
            self._rest()
            self._await_farewells(wall_seconds() + FAREWELLS_S)
        self._connections.close()
        self._socket.close(linger=LINGER_MS)
        if self._own_context:
            self._context.term()

    # -- receiving

    def _listen(self) -> None:
        """Be told of input, and take what is there: of that the descriptors tell no more."""
        assert self._loop is not None
        self._is_resting = False
        self._loop.add_reader(self._descriptor, self._read)
        self._loop.add_reader(self._connections.descriptor, self._read_events)
        self._loop.call_soon(self._read)
        self._loop.call_soon(self._read_events)

    def _rest(self) -> None:
        """Take nothing for a moment: simulated time passes only while nothing comes in."""
        assert self._loop is not None and self._ticker is not None
        self._is_resting, self._refusals = True, 0
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_reader(self._connections.descriptor)
        self._ticker.rest()

    def _read(self) -> None:
        """Read what is there; the descriptor tells of a change only once, so nothing may be left unnoticed."""
        for _ in range(BUDGET):
            if self._socket.closed or self._is_resting or not self._read_one():
                return
            if self._refusals > REFUSALS and not self._is_closing:
                self._rest()
        assert self._loop is not None
        self._loop.call_soon(self._read)

    def _read_events(self) -> None:
        if not self._socket.closed and not self._is_resting and self._connections.read_events():
            assert self._loop is not None
            self._loop.call_soon(self._read_events)
        if self._refusals > REFUSALS and not self._is_resting and not self._is_closing:
            self._rest()

    def _read_one(self) -> bool:
        try:
            peer = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        last = self._socket.recv(copy=False)
        connection = self._connections.received(peer, last)
        frames, size = 1, sockets.on_wire(len(last), self.endpoint)
        while last.more:  # one after the other, for there may be very many
            last = self._socket.recv(copy=False)
            frames, size = frames + 1, size + sockets.on_wire(len(last), self.endpoint)
            if frames == STRIKES:  # more of the like comes in while this is being read
                self._hang_up(connection, "too-many-refusals", f"a parcel of {STRIKES} frames and more")
        session = self._peers.get(peer)
        if session is None:
            self._gone_bytes[STRANGERS, True] += size
        else:
            session.up += size
        try:
            if connection.name == OLD:
                raise MalformedParcel("old-zmtp", "it speaks ZMTP 1 or 2; this is 3")
            if frames != 1:
                raise MalformedParcel("frames", f"a parcel of {frames} frames; it is one")
            self._received(peer, connection, size, parcel.read(last.bytes))
        except MalformedParcel as error:
            self._refuse(session, connection, frames, error)
        return True

    def _received(self, peer: bytes, connection: Connection, size: int, got: Parcel) -> None:
        if got.type is Type.HELLO:
            self._hello(peer, connection, size, got)
            return
        session = self._peers.get(peer)
        if session is None or session.id != got.session:
            self._send(peer, Type.DECLINE, NO_SESSION, parcel.decline("stale-session", "this session is over"))
            raise MalformedParcel("stale-session", f"a {got.type.name} of a session that is not this connection's")
        if got.type is Type.ANSWER:
            session.answer(*parcel.read_answers(got.content))
        elif got.type is Type.POST:
            self._posted(session, parcel.read_entries(got.content))
        elif got.type is Type.PING:
            self._pinged(session)
        elif got.type is not Type.FAREWELL:
            raise MalformedParcel("wrong-way", f"a {got.type.name}, which only a hub sends")
        session.silent = 0
        if got.type is Type.FAREWELL:
            session.said_farewell = True
            if not self._is_closing:
                self._gone(session, "it said farewell")

    def _pinged(self, session: Session) -> None:
        session.pings += 1
        if session.pings > PINGS:
            raise MalformedParcel("too-many-pings", f"more than {PINGS} PINGs in a heartbeat")
        if not self._is_closing and not session.outbox:  # who does not read gets no more of them
            self._put(session, parcel.parcel(Type.PONG, session.id))

    def _refuse(self, session: Session | None, connection: Connection, frames: int, error: MalformedParcel) -> None:
        """Count what was refused; whoever has sent too much of it is hung up on."""
        assert self._reception is not None
        name = connection.name if session is None else f"host {session.offer.host} at {connection.name}"
        self._refusals += 1
        if connection.refused < STRIKES:
            self._reception.refused(name, error.reason, str(error))
        self._strike(connection, frames)

    def _strike(self, connection: Connection, frames: int) -> None:
        before = connection.refused
        connection.refused += max(1, frames)
        if before < STRIKES <= connection.refused:
            self._hang_up(connection, "too-many-refusals", f"{STRIKES} of its frames were refused")

    def _hang_up(self, connection: Connection, reason: str, detail: str) -> None:
        assert self._reception is not None
        if connection.is_hung_up:
            return
        self._reception.refused(connection.name, reason, detail)
        self._connections.hang_up(connection)
        for session in [each for each in self._sessions.values() if each.connection is connection]:
            self._gone(session, detail)

    # -- who comes and goes

    def _hello(self, peer: bytes, connection: Connection, size: int, got: Parcel) -> None:
        assert self._reception is not None
        run, wish = parcel.read_hello(got.content)
        if peer in self._peers:
            raise MalformedParcel("greeted-already", "a HELLO over a connection that has a session")
        if got.session in self._sessions:
            self._gone(self._sessions[got.session], "it came anew")
        answer = self._reception.greet(wish) if run in (b"", self._run) else _ANOTHER_RUN
        if isinstance(answer, Declined):
            self._send(peer, Type.DECLINE, NO_SESSION, parcel.decline(answer.reason, answer.detail))
            raise MalformedParcel(answer.reason, answer.detail)
        session = Session(os.urandom(parcel.SESSION_BYTES), peer, connection, answer)
        self._gone_bytes[STRANGERS, True] -= size
        session.up = size + sockets.greeting(self.endpoint)
        session.down = sockets.greeting(self.endpoint)
        self._sessions[session.id] = self._peers[peer] = self._hosts[answer.host] = session
        content = parcel.offer(self._run, answer, round(self._heartbeat_s * 1000))
        self._put(session, parcel.parcel(Type.OFFER, session.id, content))

    def _posted(self, session: Session, frames: list[bytes]) -> None:
        """JOINs; once all of its clients have joined, it gets what was waiting for them."""
        assert self._reception is not None
        if not frames:
            raise MalformedParcel("empty", "a POST of nothing")
        for frame in frames:
            if session.is_member:
                raise MalformedParcel("joined-already", "a JOIN of a host that has joined")
            answers, session.is_member = self._reception.admit(session.offer.host, frame)
            session.up -= len(parcel.entry(frame))
            self._post(session, answers)
            if session.is_member:
                self._take_up(session)
            elif answers:
                self._gone(session, "its JOIN was refused")
                return

    def _take_up(self, session: Session) -> None:
        """It has joined: what waits for its addresses, and all that comes for them, is its own."""
        self._routes.update(dict.fromkeys(session.addresses, session))
        for address in session.addresses:
            for delivery in self._parked.pop(address, []):
                if session.hold_back(delivery) >= BATCH:
                    self._send_batch(session)
        self._send_batch(session)

    def _gone(self, session: Session, why: str) -> None:
        """Forget a session. What it has not answered waits for whoever comes for the same addresses."""
        assert self._reception is not None
        del self._sessions[session.id], self._peers[session.peer], self._hosts[session.offer.host]
        for address in session.addresses:
            self._routes.pop(address, None)
        self._settle_bytes(session)
        left = session.leave()
        self._reception.gone(session.offer.host, f"{session.connection.name}: {why}")
        if not session.is_member:
            self._refusals += 1
            self._strike(session.connection, 1)  # it kept others from its clients, for nothing
        for delivery in left:
            self._park(delivery)

    def _park(self, delivery: Delivery) -> None:
        """It waits for whoever comes; in real time that is the evaluator only, an instrument that misses nothing."""
        if self._redelivers or delivery.address == EVALUATOR:
            self._parked.setdefault(delivery.address, []).append(delivery)
        else:
            delivery.answered([])

    def _ended(self, connection: Connection) -> None:
        """A connection is no more; whatever came over it before has been handed over by now."""
        self._refusals += 1
        for _ in range(BUDGET):
            if not self._read_one():
                break
        for session in [each for each in self._sessions.values() if each.connection is connection]:
            self._gone(session, "its connection ended")

    def _no_handshake(self, why: str) -> None:
        assert self._reception is not None
        self._reception.refused("a stranger", "no-handshake", why)

    def _crowded(self, connection: Connection) -> None:
        self._hang_up(connection, "too-many-connections", "too many files are open for another connection")

    def _alarm(self) -> None:
        """Memory grows fast: whoever has sent much that is nothing whole may be the reason, and is hung up on."""
        for _ in range(BUDGET):
            if not self._read_one():
                break
        for connection, size in self._connections.flooding():
            self._hang_up(connection, "unfinished-message", f"{size:,} bytes of a message that does not end")

    def _tick(self) -> None:
        """Once a heartbeat: who has said or taken nothing for too long, and who floods."""
        if self._is_resting:
            self._listen()
        self._alarm()
        for session in list(self._sessions.values()):
            session.silent += 1
            session.pings = 0
            session.stuck += bool(session.outbox)
            self._drain(session)
            if session.silent > MISSED:
                self._gone(session, f"it said nothing for {MISSED} heartbeats")
            elif session.stuck > MISSED:
                self._gone(session, f"it took nothing for {MISSED} heartbeats; {session.outbox_bytes:,} bytes wait")
            elif session.outbox_bytes > OUTBOX:
                self._gone(session, f"{session.outbox_bytes:,} bytes wait for it")
            elif session.waited_s() > self._answer_s:
                self._gone(session, f"it lives, and has not answered for {self._answer_s:.0f} s")
        for connection in self._connections.idle(MISSED, {session.connection for session in self._sessions.values()}):
            self._hang_up(connection, "said-nothing", f"no HELLO for {MISSED} heartbeats")
        assert self._reception is not None
        self._on_tick(self._reception)

    # -- sending

    def _send_batch(self, session: Session) -> None:
        batch = session.batch()
        if batch is not None:
            self._put(session, batch)

    def _post(self, session: Session, frames: list[bytes]) -> None:
        if frames:
            content = b"".join(map(parcel.entry, frames))
            session.down -= len(content)
            self._put(session, parcel.parcel(Type.POST, session.id, content))

    def _put(self, session: Session, data: bytes) -> None:
        session.down += sockets.on_wire(len(data), self.endpoint)
        session.outbox.append(data)
        session.outbox_bytes += len(data)
        self._drain(session)

    def _drain(self, session: Session) -> None:
        while session.outbox:
            try:
                self._socket.send_multipart([session.peer, session.outbox[0]], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                # EAGAIN: its queue is full. EHOSTUNREACH: its connection is gone, which its silence will show
                if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                    raise
                break
            session.outbox_bytes -= len(session.outbox.popleft())
            session.stuck = 0
        if self._loop is not None and not self._is_closing and not self._is_resting:
            self._loop.call_soon(self._read)  # sending may have swallowed the descriptor's one notice of input

    def _send(self, peer: bytes, type: Type, session: bytes, content: bytes) -> None:
        """A word to a stranger; if it cannot be said at once, it is not."""
        data = parcel.parcel(type, session, content)
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([peer, data], zmq.NOBLOCK)
            self._gone_bytes[STRANGERS, False] += sockets.on_wire(len(data), self.endpoint)

    def _settle_bytes(self, session: Session) -> None:
        self._gone_bytes[session.offer.host, True] += session.up
        self._gone_bytes[session.offer.host, False] += session.down
        session.up = session.down = 0

    def _await_farewells(self, until_s: float) -> None:
        """The last bytes of those that are leaving, so that they are counted too; not for long."""
        while any(not session.said_farewell for session in self._sessions.values() if session.is_member):
            left_ms = (until_s - wall_seconds()) * 1000
            self._connections.read_events()  # unread, they would hold up the farewells
            for session in self._sessions.values():
                self._drain(session)
            if left_ms <= 0 or not self._socket.poll(int(min(left_ms, 50))):
                if left_ms <= 0:
                    return
                continue
            self._read_one()


_ANOTHER_RUN = Declined("another-run", "this server runs another run than the one that this process was part of")
