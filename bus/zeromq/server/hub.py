"""The server's end of the ZeroMQ transport: a session for every process of followers.

Rules
- ZeroMQ chooses the routing ids; who somebody is, the session in every packet says. What comes under a session that is
  not its connection's is refused, and told so.
- Deliveries to a host are numbered and answered in their order, each once; an answer out of turn is refused.
- What a host has not answered when it goes is delivered again to whoever comes in its place, or (in real time, where
  its clients have left) answered with nothing.
- Every peer has an outbox of its own. Sending never blocks; a peer that takes nothing, or says nothing, for three
  heartbeats is gone. So is one that was offered clients and does not join in time, or owes an answer for too long.
- What a peer may ask for depends on the connection that it came over (`Rights`), never on what it says. A session that
  lives is nobody else's to take.
- Whatever a stranger sends is counted and otherwise without effect. Its bytes, its connections, its offers and the time
  that reading it takes are limited before it has proved anything; going on beyond them ends its connection.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import LOWEST_ADDRESS, SHORT
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.transport import (
    NOT_YET,
    OPERATOR,
    Answered,
    Declined,
    HostRequest,
    Offer,
    Registration,
    Rights,
    count_of,
)
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.heartbeat import LOOKS
from seedbus.bus.zeromq.keys import KeyPair
from seedbus.bus.zeromq.packet import HELLO_BYTES, NO_SESSION, Packet, Type
from seedbus.bus.zeromq.server.connections import OLD, Connection
from seedbus.bus.zeromq.server.router_socket import MISSED, STRIKES, RouterSocket
from seedbus.bus.zeromq.server.routes import Routes
from seedbus.bus.zeromq.server.session import Delivery, Limits, Session

PINGS = 32  # from one session within a heartbeat; a link sends one
FAREWELLS_S = 1.0
LINGER_MS = 500
OFFERS = 256, 4096  # that are open at a time to peers that have not joined: at least, and at most one a client
JOIN_BYTES = 32  # of a JOIN for each client: each may stand at a version of its own
SILENT = 2  # heartbeats without a word after which somebody else may take a session up
STRANGERS = LOWEST_ADDRESS - 1  # the address that the bytes of no session are booked under


class Hub:
    """A transport whose followers are in other processes (or threads, over inproc).

    run: eight bytes that tell this run from every other; redelivers: whether what a host that is gone has not answered
    waits for the next (simulated time), or is answered with nothing; on_tick: called once a heartbeat; report_limit:
    bytes that a REPORT may have, so that members may send longer packets than strangers.

    rights: what a peer may ask for, by whether it came in by `own`, an address that only processes of this user find,
    and by its key; None: nothing. keys: the server's, which whoever comes to `endpoint` must know; None: no encryption.
    offers: how many may be open at a time, and how many strangers may come at once. Raises `BadEndpoint`.
    """

    is_wire = True

    def __init__(
        self,
        endpoint: str,
        run: bytes,
        *,
        limits: Limits | None = None,
        redelivers: bool = True,
        report_limit: int = SHORT,
        context: zmq.Context[Any] | None = None,
        on_tick: Callable[[Registration], None] = lambda registration: None,
        rights: Callable[[bool, str], Rights | None] = lambda is_own, user: OPERATOR,
        own: str = "",
        keys: KeyPair | None = None,
        offers: int = 0,
    ) -> None:
        self._run, self._on_tick = run, on_tick
        self._limits = limits or Limits()
        self._own_context = context is None
        self._context = context or zmq.Context()
        self._most = sockets.most_up(report_limit)
        self._rights, self._offers = rights, max(OFFERS[0], min(offers, OFFERS[1]))
        self._port = RouterSocket(
            self._context,
            endpoint,
            self._most,
            own=own,
            keys=keys,
            crowd=min(offers, OFFERS[1]),
            heard=self._heard,
            left=self._left,
            refused=self._refused,
        )
        self.endpoint = self._port.endpoint
        self._sessions: dict[bytes, Session] = {}
        self._peers: dict[bytes, Session] = {}
        self._hosts: dict[int, Session] = {}
        self._guests: dict[bytes, Session] = {}  # sessions without rights of their own that have not joined, in order
        self.stalls = 0
        """How many sessions ended because they owed an answer for too long."""
        self._routes = Routes(redelivers)
        self._gone_bytes: Counter[tuple[int, bool]] = Counter()
        self._greeter: Registration | None = None
        self._is_closing = False
        self._looked_s = 0.0

    # -- the transport

    def start(self, registration: Registration) -> None:
        self._greeter = registration
        self._looked_s = wall_seconds()
        self._port.start(self._limits.heartbeat_s, self._tick, self._look)

    def reaches(self, address: int) -> bool:
        return self._routes.reaches(address)

    def deliver(self, address: int, frame: bytes, answered: Answered, tail: bytes = b"") -> None:
        if not self._is_closing:
            self._routes.deliver(Delivery(address, frame, answered, tail))

    def flush(self) -> None:
        for session in [] if self._is_closing else self._hosts.values():
            session.send_batch()

    def post(self, host: int, frame: bytes) -> None:
        session = self._hosts.get(host)
        if session is not None and not self._is_closing:
            session.is_dismissed = True
            session.post([frame])

    def framing_bytes(self, size: int) -> int:
        return packet.number_bytes(size)

    def link_bytes(self) -> list[tuple[int, int, int]]:
        for session in self._hosts.values():
            self._settle_bytes(session)
        found, self._gone_bytes = self._gone_bytes, Counter()
        return [(host, found[host, True], found[host, False]) for host in sorted({host for host, _ in found})]

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """What `close` does, of a hub that may never have been started."""
        if self._port.is_closed:
            return
        self._is_closing = True
        if self._port.stop():
            self._await_farewells(wall_seconds() + FAREWELLS_S)
        self._port.close(LINGER_MS)
        if self._own_context:
            self._context.term()

    # -- what comes in

    def _heard(self, peer: bytes, connection: Connection, frames: int, last: zmq.Frame, size: int) -> None:
        session = self._peers.get(peer)
        if session is None:
            self._gone_bytes[STRANGERS, True] += size
        else:
            session.up += size
        try:
            if connection.name == OLD:
                raise MalformedPacket("old-zmtp", "it speaks ZMTP 1 or 2; this is 3")
            if frames != 1:
                raise MalformedPacket("frames", f"a packet of {frames} frames; it is one")
            if len(last) > connection.most:
                frames = 1 if connection.is_member else connection.strikes  # a stranger is hung up on for it
                raise MalformedPacket("too-long", f"{len(last):,} bytes; it may send {connection.most:,} at once")
            self._received(peer, connection, size, packet.read(sockets.content(last)))
        except MalformedPacket as error:
            self._refuse(session, connection, frames, error)

    def _received(self, peer: bytes, connection: Connection, size: int, got: Packet) -> None:
        if got.type is Type.HELLO:
            self._hello(peer, connection, size, got)
            return
        session = self._peers.get(peer)
        if session is None or session.id != got.session:
            self._decline(connection, "stale-session", "this session is over")
            raise MalformedPacket("stale-session", f"a {got.type.name} of a session that is not this connection's")
        if got.type is Type.ANSWER:
            session.answer(*packet.read_answers(got.content))
        elif got.type is Type.POST:
            self._posted(session, packet.read_entries(got.content))
        elif got.type is Type.PING:
            self._pinged(session)
        elif got.type is Type.FAREWELL:
            self._bidden_farewell(session, packet.read_farewell(got.content))
        else:
            raise MalformedPacket("wrong-way", f"a {got.type.name}, which only a hub sends")
        session.heard()
        if session.outbox:
            session.drain()

    def _pinged(self, session: Session) -> None:
        session.pings += 1
        if session.pings > PINGS:
            raise MalformedPacket("too-many-pings", f"more than {PINGS} PINGs in a heartbeat")
        if not self._is_closing and not session.outbox:  # who does not read gets no more of them
            session.put(Type.PONG)

    def _bidden_farewell(self, session: Session, why: str) -> None:
        session.said_farewell = True
        if not self._is_closing:
            self._gone(session, f"it gave up: {why}" if why else "it said farewell")

    def _refuse(self, session: Session | None, connection: Connection, frames: int, error: MalformedPacket) -> None:
        """Count what was refused; whoever has sent too much of it is hung up on."""
        name = connection.name if session is None else f"host {session.offer.host} at {connection.name}"
        if connection.refused < connection.strikes:
            self._refused(name, error.reason, str(error))
        self._port.strike(connection, frames)

    def _refused(self, name: str, reason: str, detail: str) -> None:
        self._registration.refused(name, reason, detail)

    @property
    def _registration(self) -> Registration:
        """Where processes introduce themselves; nobody is heard before there is one."""
        if self._greeter is None:
            raise RuntimeError("a hub reads nothing before it is started")
        return self._greeter

    # -- who comes and goes

    def _hello(self, peer: bytes, connection: Connection, size: int, got: Packet) -> None:
        run, wish = packet.read_hello(got.content)
        if peer in self._peers:
            raise MalformedPacket("greeted-already", "a HELLO over a connection that has a session")
        if connection.is_over and connection.descriptor >= 0:  # nobody is there, and its number may be another's by now
            raise MalformedPacket("gone", "a HELLO over a connection that has ended")
        rights = self._rights(connection.is_own, connection.user) or _NO_RIGHTS
        answer = self._greeted(got.session, run, wish, connection, rights)
        if isinstance(answer, Declined):
            self._decline(connection, answer.reason, answer.detail)
            raise MalformedPacket(answer.reason, answer.detail)
        session = Session(os.urandom(packet.SESSION_BYTES), peer, connection, answer, rights, self._port)
        self._gone_bytes[STRANGERS, True] -= size
        session.up, session.down = size + connection.wire.up, connection.wire.down
        most = self._most if rights.is_own else HELLO_BYTES + JOIN_BYTES * count_of(answer.spans)
        connection.most = min(self._most, most)
        self._port.has_session(connection, True)
        self._sessions[session.id] = self._peers[peer] = self._hosts[answer.host] = session
        if not rights.is_own:
            self._guests[session.id] = session
        session.put(Type.OFFER, packet.offer(self._run, answer, round(self._limits.heartbeat_s * 1000)))
        self._make_room()

    def _make_room(self) -> None:
        """End offers beyond what there may be at a time: of those that are gone, then of the host that has most."""
        if len(self._guests) > self._offers:
            for each in [each for each in self._guests.values() if each.connection.is_gone]:
                self._gone(each, "its connection ended")  # of which word may come later
        if len(self._guests) > self._offers:
            hosts = Counter(each.connection.host for each in self._guests.values())
            busiest = max(hosts, key=hosts.__getitem__)
            # nobody is sent away for what another host does
            oldest = next(each for each in self._guests.values() if each.connection.host == busiest)
            self._gone(oldest, "too many others have been offered clients since")

    def _greeted(
        self, before: bytes, run: bytes, wish: HostRequest, connection: Connection, rights: Rights
    ) -> Offer | Declined:
        if rights is _NO_RIGHTS:
            return Declined("not-authorised", "its key is not authorised, or not any more")
        if run not in (b"", self._run):
            return Declined("another-run", "this server runs another run than the one that this process was part of")
        return self._freed(before, connection, rights) or self._registration.greet(wish, rights)

    def _freed(self, before: bytes, connection: Connection, rights: Rights) -> Declined | None:
        """End the session that a process says it had before, unless it may be another process's."""
        session = self._sessions.get(before)
        if session is None:
            return None
        is_its_own = rights.is_own or (connection.user and connection.user == session.connection.user)
        if not (is_its_own or session.connection.is_over or session.silent > SILENT):
            return Declined("taken", "its session goes on over another connection")
        self._gone(session, "it came anew")
        return None

    def _posted(self, session: Session, frames: list[bytes]) -> None:
        """JOINs; once all of its clients have joined, it gets what was waiting for them."""
        if not frames:
            raise MalformedPacket("empty", "a POST of nothing")
        if session.joins:  # a long JOIN comes in parts
            if sum(map(len, session.joins + frames)) > session.connection.most:
                raise MalformedPacket("too-long", "more JOINs than its clients need")
            session.joins += frames
            return
        for number, frame in enumerate(frames):
            if session.is_member:
                raise MalformedPacket("joined-already", "a JOIN of a host that has joined")
            answer = self._registration.admit(session.offer.host, frame)
            if isinstance(answer, Declined):
                if answer.reason == NOT_YET:
                    session.joins = frames[number:]
                else:
                    self._decline(session.connection, answer.reason, answer.detail)
                    self._gone(session, answer.detail)
                return
            answers, session.is_member = answer
            session.up -= packet.entry_bytes(len(frame))
            session.post(answers)
            if session.is_member:
                self._became_member(session)
            elif answers:
                self._gone(session, "its JOIN was refused")
                return

    def _became_member(self, session: Session) -> None:
        connection = session.connection
        connection.is_member, connection.most, connection.strikes = True, self._most, STRIKES
        self._guests.pop(session.id, None)
        self._routes.open(session)
        if session.rights.evaluates:
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        """The run knows its x₀ now: those whose JOINs waited for that may be admitted."""
        for session in list(self._guests.values()):
            if session.joins and session.id in self._sessions:
                frames, session.joins = session.joins, []
                try:
                    self._posted(session, frames)
                except MalformedPacket as error:
                    self._refuse(session, session.connection, 1, error)

    def _gone(self, session: Session, why: str) -> None:
        """Forget a session. What it has not answered waits for whoever comes for the same addresses."""
        del self._sessions[session.id], self._peers[session.peer], self._hosts[session.offer.host]
        self._guests.pop(session.id, None)
        self._settle_bytes(session)
        self.stalls += session.has_stalled
        connection = session.connection
        connection.is_member = False
        self._port.has_session(connection, False)
        self._registration.gone(session.offer.host, f"{connection.name}: {why}")
        if not session.is_member:
            self._port.strike(connection)  # an offer for nothing
        self._routes.shut(session)

    def _left(self, connection: Connection, why: str) -> None:
        session = self._peers.get(connection.peer)
        if session is not None and not session.said_farewell:  # at the end of a run they all have
            self._gone(session, why)

    def _look(self) -> None:
        """Several times a heartbeat: end the sessions of peers that say nothing any more."""
        now_s, interval_s = wall_seconds(), self._limits.heartbeat_s / LOOKS
        # while this process stood still it heard nobody: that is not their silence
        passed_s = min(now_s - self._looked_s, 2 * interval_s)
        self._looked_s = now_s
        for session in list(self._sessions.values()):
            if session.id in self._sessions and session.is_silent(passed_s / self._limits.heartbeat_s):
                self._gone(session, f"it said nothing for {MISSED} heartbeats")

    def _tick(self) -> None:
        """Once a heartbeat: who has taken or done nothing for too long."""
        for session in list(self._sessions.values()):
            if session.id not in self._sessions:
                continue  # another's end was its own
            session.drain()
            connection = session.connection
            why = session.beat(self._limits)
            if connection.user and self._rights(connection.is_own, connection.user) != session.rights:
                why = "its key was revoked, or has other rights now"
            if why is not None:
                self._gone(session, why)
        self._port.hang_up_on_idlers()
        self._on_tick(self._registration)

    def _decline(self, connection: Connection, reason: str, detail: str) -> None:
        """A word to a stranger; if it cannot be said at once, it is not."""
        data = packet.packet(Type.DECLINE, NO_SESSION, packet.decline(reason, detail))
        if self._port.send(connection.peer, data):
            self._gone_bytes[STRANGERS, False] += connection.wire.bytes_of(len(data))

    def _settle_bytes(self, session: Session) -> None:
        self._gone_bytes[session.offer.host, True] += session.up
        self._gone_bytes[session.offer.host, False] += session.down
        session.up = session.down = 0

    def _await_farewells(self, until_s: float) -> None:
        """The last bytes of those that were told to leave, so that they are counted too; not for long."""
        while any(session.is_dismissed and not session.said_farewell for session in self._sessions.values()):
            left_ms = (until_s - wall_seconds()) * 1000
            if left_ms <= 0:
                return
            for session in self._sessions.values():
                session.drain()
            self._port.wait(int(min(left_ms, 50)))


_NO_RIGHTS = Rights(spans=())
