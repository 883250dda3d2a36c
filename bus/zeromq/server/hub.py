"""The server's end of the ZeroMQ transport: a hub with a session for every worker process.

Rules
- ZeroMQ chooses the routing ids; the session in each packet identifies its sender. A packet with a session that is not
  its connection's is refused, and the sender gets a DECLINE.
- The deliveries to a host are numbered and are answered in order, each once; an answer out of turn is refused.
- The clients of a member that is cut off are kept for it for `Limits.kept_s`: by its key, or without keys by its first
  session and its network host, where a process that replaces it would be.
- Deliveries that a host has not answered when it goes are delivered again to the next host of the same clients, or (in
  real time, where the clients have left) answered with nothing.
- Every peer has an outbox of its own, and sending never blocks. A peer that takes nothing, or sends nothing, for three
  heartbeats counts as gone. So does one that was offered clients and does not join in time, or owes an answer too long.
- What a peer may ask for depends on the connection that it came over (`Rights`), never on the contents of its packets.
  Nobody else can take a live session over.
- What a stranger sends is counted and has no other effect. Its bytes, its connections, its offers and the time that
  reading it takes are limited before it has proved anything; its connection is closed when it exceeds the limits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import LOWEST_ADDRESS, SHORT
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.transport import (
    NOT_YET,
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
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES
from seedbus.bus.zeromq.heartbeat import LOOKS
from seedbus.bus.zeromq.packet import AWAY, DAMAGED, HELLO_BYTES, NO_SESSION, OVER, PROTOCOL, Packet, Type
from seedbus.bus.zeromq.server.connection import OLD, Connection
from seedbus.bus.zeromq.server.router_socket import MISSED, Entrance, RouterSocket
from seedbus.bus.zeromq.server.routes import Routes
from seedbus.bus.zeromq.server.session import Delivery, Limits, Session
from seedbus.pieces import Frame

FAREWELLS_S = 5.0  # how long `close` waits for FAREWELLs
LINGER_MS = 500  # how long ZeroMQ may go on sending after `close`
OFFERS = 256, 4096  # offers that may be open to strangers at a time: the lower and the upper bound of one a client
JOIN_BYTES = 32  # bytes of a JOIN for each client, which may have a version of its own
STRANGERS = LOWEST_ADDRESS - 1  # the address that the bytes of no session are booked under
_HELLO = bytes([PROTOCOL * 16 + Type.HELLO])  # the first byte of one


class Hub:
    """A transport whose followers are in other processes (or in threads, over inproc).

    Args:
        entrance: where workers connect to, and what they may ask for.
        run: eight bytes that identify this run.
        limits: after how many seconds peers count as gone.
        redelivers: whether deliveries that a host that is gone has not answered wait for the next (simulated time), or
            are answered with nothing.
        report_limit: bytes that a REPORT may have, so that members may send longer packets than strangers.
        context: a context of ZeroMQ's to use; otherwise the hub makes one of its own, and terminates it.
        on_tick: called once a heartbeat.
        offers: how many offers may be open to strangers, and how many strangers may connect, at a time, within OFFERS.

    Attributes:
        endpoint: the address that workers connect to, with its port.
        stalls: how many sessions ended because they owed an answer for too long.

    Raises:
        BadEndpoint: an address cannot be listened at.
    """

    is_wire = True
    framing_bytes = staticmethod(packet.number_bytes)

    def __init__(
        self,
        entrance: Entrance,
        run: bytes,
        *,
        limits: Limits | None = None,
        redelivers: bool = True,
        report_limit: int = SHORT,
        context: zmq.Context[Any] | None = None,
        on_tick: Callable[[Registration], None] = lambda registration: None,
        offers: int = 0,
    ) -> None:
        self._run = run
        self._on_tick = on_tick
        self._limits = limits or Limits()
        self._owns_context = context is None
        self._context = context or zmq.Context()
        self._longest = sockets.most_up(report_limit)
        self._member_packet_limit = min(self._longest, sockets.longest_packet())
        self._rights = entrance.rights
        self._max_offers = max(OFFERS[0], min(offers, OFFERS[1]))
        self._router = RouterSocket(
            self._context,
            entrance,
            self._member_packet_limit,
            crowd=min(offers, OFFERS[1]),
            heard=self._receive,
            left=self._connection_ended,
            refused=self._refused,
        )
        self.endpoint = self._router.endpoint
        self.stalls = 0
        self._sessions: dict[bytes, Session] = {}  # by session id
        self._peers: dict[bytes, Session] = {}  # by routing id
        self._hosts: dict[int, Session] = {}  # by the host's address
        self._unjoined: dict[bytes, Session] = {}  # strangers' sessions that have not joined, the oldest first
        self._first_sessions: dict[bytes, bytes] = {}  # of members, and those that were: by the ids of their latest
        self._routes = Routes(redelivers)
        self._link_bytes: Counter[tuple[int, bool]] = Counter()  # by host and whether they went up
        self._registration_or_none: Registration | None = None
        self._is_closing = False
        self._is_over = False  # members have been told that the run is over
        self._missed_byes = 0  # of these, how many have said that their BYE was damaged, and have not come again
        self._looked_s = 0.0  # when `_look` was called last

    # -- the transport

    def start(self, registration: Registration) -> None:
        self._registration_or_none = registration
        self._looked_s = wall_seconds()
        self._router.start(self._limits.heartbeat_s, self._tick, self._look)

    def reaches(self, address: int) -> bool:
        return self._routes.reaches(address)

    def deliver(self, address: int, frame: Frame, answered: Answered, tail: Frame = b"") -> None:
        if not self._is_closing:
            self._routes.deliver(Delivery(address, frame, answered, tail))

    def flush(self) -> None:
        for session in [] if self._is_closing else self._hosts.values():
            session.flush()

    def post(self, host: int, frame: Frame) -> None:
        session = self._hosts.get(host)
        if session is not None and not self._is_closing:
            self._is_over = True
            session.dismiss(frame)

    def link_bytes(self) -> list[tuple[int, int, int]]:
        for session in self._hosts.values():
            self._settle_bytes(session)
        counted, self._link_bytes = self._link_bytes, Counter()
        return [(host, counted[host, True], counted[host, False]) for host in sorted({host for host, _ in counted})]

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """Close the hub, as `close` does; it need not have been started."""
        if self._router.is_closed:
            return
        self._is_closing = True
        if self._router.stop():
            self._await_farewells(wall_seconds() + FAREWELLS_S)
        self._router.close(LINGER_MS)
        if self._owns_context:
            self._context.term()

    # -- receiving

    def _receive(self, peer: bytes, connection: Connection, frames: int, last: zmq.Frame, size: int) -> None:
        session = self._peers.get(peer)
        if session is None:
            self._link_bytes[STRANGERS, True] += size
        else:
            session.received(size)
        try:
            if connection.name == OLD:
                raise MalformedPacket("old-zmtp", "it speaks ZMTP 1 or 2; this is 3")
            if frames != 1:
                raise MalformedPacket("frames", f"a packet of {frames} frames; it is one")
            if len(last) > connection.packet_limit + CHECKSUM_BYTES * connection.wire.is_checked:
                frames = 1 if connection.is_member else connection.strikes  # a stranger's connection is closed for it
                raise MalformedPacket(
                    "too-long", f"{len(last):,} bytes; it may send {connection.packet_limit:,} at once"
                )
            data = sockets.content(last)
            if session is not None or data[:1] == _HELLO:  # the number of others is that of another connection
                data = connection.checksums.removed(data)
            self._handle(peer, connection, size, packet.read(data))
        except MalformedPacket as error:
            self._refuse(session, connection, frames, error)
            if error.reason == DAMAGED:
                self._damaged(session, connection, error.detail)

    def _handle(self, peer: bytes, connection: Connection, size: int, received: Packet) -> None:
        if received.type is Type.HELLO:
            self._hello(peer, connection, size, received)
            return
        session = self._peers.get(peer)
        if session is None or session.id != received.session:
            if received.type is Type.FAREWELL and received.session == connection.ended_session:
                connection.ended_session = b""  # it was on its way as the hub ended the session, which is no offence
                return
            self._decline(connection, "stale-session", "this session is over")
            raise MalformedPacket("stale-session", f"a {received.type.name} of a session that is not this connection's")
        whole = session.assembled(received)
        if whole is not None:
            self._act(session, whole)
        session.heard()

    def _act(self, session: Session, received: Packet) -> None:
        if received.type is Type.ANSWER:
            session.answer(*packet.read_answers(received.content))
        elif received.type is Type.POST:
            self._join(session, packet.read_entries(received.content))
        elif received.type is Type.PING:
            session.pinged(may_answer=not self._is_closing)
        elif received.type is Type.FAREWELL:
            self._farewell(session, packet.read_farewell(received.content))
        else:
            raise MalformedPacket("wrong-way", f"a {received.type.name}, which only a hub sends")

    def _damaged(self, session: Session | None, connection: Connection, why: str) -> None:
        """End a session, so that its peer comes anew and all that it has not answered is delivered again."""
        self._decline(connection, DAMAGED, why)
        if session is not None and session.id in self._sessions:  # one refusal too many has ended it already
            self._end_session(session, why)

    def _farewell(self, session: Session, why: str) -> None:
        if why == DAMAGED:
            self._refused(f"host {session.offer.host} at {session.connection.name}", DAMAGED, "what was sent to it")
            if session.owes_farewell:
                self._missed_byes += 1
        session.farewell_received()
        if not self._is_closing:
            self._end_session(session, _LEFT.get(why, f"it gave up: {why}"), may_return=False)

    def _refuse(self, session: Session | None, connection: Connection, frames: int, error: MalformedPacket) -> None:
        """Count refused frames; after too many, the connection is closed."""
        name = connection.name if session is None else f"host {session.offer.host} at {connection.name}"
        if connection.has_strikes_left:
            self._refused(name, error.reason, str(error))
        self._router.strike(connection, frames)

    def _refused(self, name: str, reason: str, detail: str) -> None:
        self._registration.refused(name, reason, detail)

    @property
    def _registration(self) -> Registration:
        if self._registration_or_none is None:
            raise RuntimeError("a hub reads nothing before it is started")
        return self._registration_or_none

    # -- sessions

    def _hello(self, peer: bytes, connection: Connection, size: int, received: Packet) -> None:
        run, request = packet.read_hello(received.content)
        if peer in self._peers:
            raise MalformedPacket("greeted-already", "a HELLO over a connection that has a session")
        if self._is_over:
            self._decline(connection, OVER, "the run is over")
            self._missed_byes -= received.session in self._sessions
            return
        if connection.is_over and connection.descriptor >= 0:  # the descriptor may be another connection's by now
            raise MalformedPacket("gone", "a HELLO over a connection that has ended")
        rights = self._rights(connection.is_own, connection.key) or _NO_RIGHTS
        session_id = os.urandom(packet.SESSION_BYTES)
        first = self._first_sessions.get(received.session, session_id)
        known_as = {connection.key} if connection.key else {connection.host, first.hex()}
        request = replace(request, known_as=frozenset(known_as))
        answer = self._offer_for(received.session, run, request, connection, rights)
        if isinstance(answer, Declined):
            self._decline(connection, answer.reason, answer.detail)
            raise MalformedPacket(answer.reason, answer.detail)
        session = Session(session_id, peer, connection, answer, rights, self._router, size, self._longest)
        self._first_sessions.pop(received.session, None)
        self._first_sessions[session_id] = first
        self._link_bytes[STRANGERS, True] -= size
        limit = self._member_packet_limit if rights.is_own else HELLO_BYTES + JOIN_BYTES * count_of(answer.spans)
        self._router.session_opened(connection, min(self._member_packet_limit, limit))
        self._sessions[session.id] = session
        self._peers[peer] = session
        self._hosts[answer.host] = session
        if not rights.is_own:
            self._unjoined[session.id] = session
        session.send_offer(self._run, round(self._limits.heartbeat_s * 1000))
        self._limit_offers()

    def _limit_offers(self) -> None:
        """End offers beyond the limit: those of peers that are gone, then the oldest of the host with the most."""
        if len(self._unjoined) > self._max_offers:
            for each in [each for each in self._unjoined.values() if each.connection.is_gone]:
                self._end_session(each, "its connection ended")  # the event of its end may come later
        if len(self._unjoined) > self._max_offers:
            of_host = Counter(each.connection.host for each in self._unjoined.values())
            busiest = max(of_host, key=of_host.__getitem__)
            # so no network host loses its offers to another's many
            oldest = next(each for each in self._unjoined.values() if each.connection.host == busiest)
            self._end_session(oldest, "too many others have been offered clients since")

    def _offer_for(
        self, previous: bytes, run: bytes, request: HostRequest, connection: Connection, rights: Rights
    ) -> Offer | Declined:
        """Return the answer to a HELLO.

        Args:
            previous: the session that the process says it had before; zeros for none.
            run: the run that it was part of; empty for none.
            request: the clients that it asks for.
            connection: the connection that it came over.
            rights: what it may ask for.
        """
        if rights is _NO_RIGHTS:
            return _UNAUTHORISED
        if run not in (b"", self._run):
            return Declined("another-run", "this server runs another run than the one that this process was part of")
        return self._end_previous(previous, connection, rights) or self._registration.greet(request, rights)

    def _end_previous(self, previous: bytes, connection: Connection, rights: Rights) -> Declined | None:
        """End the session that a process says it had before, unless it may be another process's."""
        session = self._sessions.get(previous)
        if session is None:
            return None
        is_its_own = rights.is_own or (connection.key and connection.key == session.connection.key)
        if not (is_its_own or session.may_be_taken_over):
            return Declined("taken", "its session goes on over another connection")
        self._end_session(session, "it came anew")
        return None

    def _join(self, session: Session, frames: list[Frame]) -> None:
        """Handle JOINs. Once all its clients have joined, a session gets the deliveries that waited for them."""
        if not frames:
            raise MalformedPacket("empty", "a POST of nothing")
        if session.has_pending_joins:
            session.keep_joins(frames)
            return
        for number, frame in enumerate(frames):
            if session.is_member:
                raise MalformedPacket("joined-already", "a JOIN of a host that has joined")
            answer = self._registration.admit(session.offer.host, frame)
            if isinstance(answer, Declined):
                if answer.reason == NOT_YET:
                    session.keep_joins(frames[number:])
                else:
                    self._decline(session.connection, answer.reason, answer.detail)
                    self._end_session(session, answer.detail)
                return
            answers, is_member = answer
            session.join_answered(frame, answers, is_member)
            if is_member:
                self._joined(session)
            elif answers:
                self._end_session(session, "its JOIN was refused")
                return

    def _joined(self, session: Session) -> None:
        session.connection.joined(self._member_packet_limit)
        self._unjoined.pop(session.id, None)
        self._routes.open(session)
        if session.rights.evaluates:
            self._admit_pending()

    def _admit_pending(self) -> None:
        """The run knows its x₀ now: handle the JOINs that have waited for that."""
        for session in list(self._sessions.values()):
            if session.has_pending_joins and session.id in self._sessions:
                try:
                    self._join(session, session.take_joins())
                except MalformedPacket as error:
                    self._refuse(session, session.connection, 1, error)

    def _end_session(self, session: Session, why: str, *, may_return: bool = True) -> None:
        """Forget a session. Its unanswered deliveries wait for the next session with the same addresses."""
        del self._sessions[session.id]
        del self._peers[session.peer]
        del self._hosts[session.offer.host]
        self._unjoined.pop(session.id, None)
        session.abandon()
        session.connection.ended_session = b"" if session.said_farewell else session.id
        self._settle_bytes(session)
        self.stalls += session.has_stalled
        self._router.session_ended(session.connection)
        is_kept = may_return and session.is_member and not session.has_stalled
        kept_s = self._limits.kept_s if is_kept else 0.0
        self._registration.gone(session.offer.host, f"{session.connection.name}: {why}", kept_s)
        if not session.is_member:
            if self._first_sessions.get(session.id) == session.id:  # else it is a member's that comes back
                del self._first_sessions[session.id]
            self._router.strike(session.connection)  # its offer was for nothing
        self._routes.close(session)

    def _connection_ended(self, connection: Connection, why: str) -> None:
        session = self._peers.get(connection.peer)
        if session is not None and not session.said_farewell:  # while the hub closes, FAREWELLs end no session
            self._end_session(session, why)

    def _look(self) -> None:
        """Several times a heartbeat: end the sessions of peers that have been silent for too long."""
        now_s = wall_seconds()
        interval_s = self._limits.heartbeat_s / LOOKS
        # a pause of this process is not the peers' silence: it could not hear them
        passed_s = min(now_s - self._looked_s, 2 * interval_s)
        self._looked_s = now_s
        for session in list(self._sessions.values()):
            if session.id in self._sessions and session.is_silent(passed_s / self._limits.heartbeat_s):
                self._end_session(session, f"it said nothing for {MISSED} heartbeats")
                if session.is_member:
                    self._router.let_go(session.connection)

    def _tick(self) -> None:
        """Once a heartbeat: end the sessions of peers that took nothing, or owed something, for too long."""
        for session in list(self._sessions.values()):
            if session.id not in self._sessions:
                continue  # the end of another session has ended it
            session.drain()
            connection = session.connection
            why = session.beat(self._limits)
            rights = self._rights(connection.is_own, connection.key) if connection.key else session.rights
            if rights != session.rights:
                why = "its key was revoked, or has other rights now"
            if rights is None:  # it could not come back, and would look for a server that is there
                self._decline(connection, _UNAUTHORISED.reason, _UNAUTHORISED.detail)
            if why is not None:
                self._end_session(session, why, may_return=rights == session.rights)
        self._router.hang_up_on_idlers()
        self._on_tick(self._registration)

    def _decline(self, connection: Connection, reason: str, detail: str) -> None:
        """Send a DECLINE to a peer that has no session, or loses it; drop it if it cannot be sent at once."""
        data = packet.packet(Type.DECLINE, NO_SESSION, packet.decline(reason, detail))
        data = connection.checksums.added(data)
        if self._router.send(connection.peer, data):
            self._link_bytes[STRANGERS, False] += connection.wire.bytes_of(len(data))

    def _settle_bytes(self, session: Session) -> None:
        up, down = session.take_bytes()
        self._link_bytes[session.offer.host, True] += up
        self._link_bytes[session.offer.host, False] += down

    def _await_farewells(self, until_s: float) -> None:
        """Read until all that were sent a BYE have sent a FAREWELL, so that it is counted; not beyond `until_s`."""
        while self._missed_byes > 0 or any(session.owes_farewell for session in self._sessions.values()):
            left_ms = (until_s - wall_seconds()) * 1000
            if left_ms <= 0:
                return
            for session in self._sessions.values():
                session.drain()
            self._router.wait(int(min(left_ms, 50)))


_LEFT = {
    "": "it said farewell",
    AWAY: "its owner keeps it away for a while",
    "limits": "its owner's terms or limits refuse the scenario",
}
_NO_RIGHTS = Rights(spans=())
_UNAUTHORISED = Declined("not-authorised", "its key is not authorised, or not any more")
