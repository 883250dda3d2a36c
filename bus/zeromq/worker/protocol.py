"""What a link answers to a hub: a state machine without I/O.

    HELLO ─► OFFER ─► (load, build) ─► POST of JOINs ─► POST of WELCOME ─► DELIVER ─► ANSWER … POST of BYE ─► FAREWELL

Its inputs are packets, the time, and the followers' answers. Its outputs are events that the caller must act upon, and
packets in the outbox of its session. A lost connection ends the session; the next one asks for the same clients.
Answers to deliveries of an older session are dropped, because the hub delivers these again.

The hub is not trusted. An offer of other clients than were asked for, and more work than a hub hands out at a time,
raise `BadServer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seedbus.bus.codec import decode
from seedbus.bus.envelope import Kind
from seedbus.bus.errors import BadServer, MalformedPacket, SentAway
from seedbus.bus.transport import NO_CLIENTS, HostRequest, Offer, misfit
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import DAMAGED, NO_SESSION, OVER, Packet, Type
from seedbus.bus.zeromq.sockets import BATCH, MOST_DOWN
from seedbus.bus.zeromq.worker.liveness import Liveness
from seedbus.bus.zeromq.worker.session import Phase, WorkerSession
from seedbus.pieces import Frame

UNANSWERED_BYTES = 2**29  # of deliveries that a worker accepts; a hub sends far fewer
_TEMPORARY = frozenset({"taken", "stale-session", "no-clients", DAMAGED})  # declined, and asked again


@dataclass(frozen=True, slots=True)
class Offered:
    """Followers for an offer are to be built, and to join.

    Attributes:
        is_new: the offer differs from the one before, so followers of that cannot serve for it.
    """

    offer: Offer
    is_new: bool


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """A WELCOME or a REFUSE is to be handed to the follower."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Delivered:
    """Frames are to be handled by the follower, and answered in order."""

    frames: list[Frame]


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection is to be closed."""

    reason: str


Event = Offered | JoinAnswered | Delivered | Failed


class LinkProtocol:
    """A link's state, over all its connections.

    Args:
        endpoint: the server's address, for errors.
        request: the clients to ask for.
        patience_s: how long a server may be away.
        most_clients: clients that an offer may hold if the request names none and no number.
        now_s: the time.
        has_checksums: whether packets have checksums.

    Attributes:
        session: the state of the present connection, or of the last one.
        liveness: when PINGs, new connections and the end are due.
        rejection: why a server declined last; None once it has answered a JOIN.
    """

    def __init__(
        self,
        endpoint: str,
        request: HostRequest,
        *,
        patience_s: float,
        most_clients: int,
        now_s: float,
        has_checksums: bool = False,
    ) -> None:
        self._has_checksums = has_checksums
        self.session = WorkerSession(has_checksums)
        self.liveness = Liveness(patience_s, now_s)
        self.rejection: SentAway | None = None
        self._endpoint = endpoint
        self._first_request = request
        self._request = request  # of the next HELLO: the clients of the last offer, if there was one
        self._most_clients = most_clients
        self._run = b""
        self._previous_session = NO_SESSION
        self._offer: Offer | None = None
        self._has_joined = False  # in the present session: its followers are built
        self._was_welcomed = False

    @property
    def knows_run(self) -> bool:
        """Whether a server has ever made an OFFER."""
        return bool(self._run)

    # -- connections

    def connected(self, now_s: float) -> None:
        """A socket has been connected: a new session begins with a HELLO."""
        self.liveness.connected(now_s)
        self.session = WorkerSession(self._has_checksums)
        self._has_joined = False
        self.session.put_hello(self._previous_session, packet.hello(self._run, self._request))

    def disconnected(self, jitter: float, now_s: float) -> bool:
        """The socket has been closed; returns whether a server had made an offer over it.

        Args:
            jitter: a random number from 0 to 1.
            now_s: the time.
        """
        had_server = self.liveness.has_server
        if had_server:
            self._previous_session = self.session.id
        self.liveness.disconnected(jitter, now_s)
        return had_server

    def ping(self, now_s: float) -> None:
        """Send a PING, if there is a session."""
        self.liveness.pinged(now_s)
        if self.session.id != NO_SESSION:
            self.session.ping()

    def give_up(self, code: str) -> None:
        """Send a FAREWELL with the reason, one of `packet.FAREWELLS`, if there is a session."""
        if self.session.id != NO_SESSION and not self.session.is_over:
            self.session.put_farewell(packet.farewell(code))

    # -- what the followers return

    def join(self, session: WorkerSession, joins: Sequence[Frame], longest: int = 0) -> None:
        """Send the JOINs of followers that were built for the offer of a session.

        Args:
            session: the session.
            joins: the JOINs.
            longest: bytes of the longest message that these followers can use.
        """
        if session is self.session:
            self._has_joined = True
            session.inbox.limit = max(MOST_DOWN, longest + BATCH)
            session.put_joins(joins)

    def answer(self, session: WorkerSession, answers: Sequence[list[Frame]]) -> None:
        """Send answers to deliveries of a session."""
        if session is self.session and not session.is_over:
            session.put_answers(answers)

    # -- what the hub sends

    def receive(self, received: Packet, now_s: float) -> Iterator[Event]:
        """Handle a packet, and yield the events that follow from it. Iterate to the end.

        Raises:
            MalformedPacket: it cannot be read, or comes at the wrong time.
            MalformedEnvelope: an envelope in it cannot be read.
            BadServer: an honest hub would not send it.
            SentAway: the server declines, and will not change its mind.
        """
        if received.type is Type.DECLINE:
            yield self._declined(*packet.read_decline(received.content))
        elif received.type is Type.OFFER and self.session.phase is Phase.GREETING:
            yield self._offered(received, now_s)
        elif received.session == self.session.id:
            self.liveness.heard(now_s)
            whole = self._assembled(received)
            if whole is None:
                return
            received = whole
            if received.type is Type.DELIVER:
                yield self._delivered(*packet.read_deliveries(received.content))
            elif received.type is Type.POST:
                for frame in packet.read_entries(received.content):
                    yield from self._posted(frame)

    def _assembled(self, received: Packet) -> Packet | None:
        try:
            return self.session.assembled(received)
        except MalformedPacket as error:
            if error.reason == "too-long":
                raise BadServer(self._endpoint, f"it sent {error.detail}") from None
            raise

    def _declined(self, reason: str, detail: str) -> Failed:
        if reason == OVER and self._was_welcomed:
            self.session.is_over = True
            return Failed("the run is over")
        self.rejection = SentAway(self._endpoint, reason, detail)
        if reason not in _TEMPORARY:
            raise self.rejection
        if reason == "taken" and not self._was_welcomed:  # another process was faster: others may be left
            self._request = self._first_request
        return Failed(f"it says {reason}")

    def _offered(self, received: Packet, now_s: float) -> Offered:
        if received.session == NO_SESSION:
            raise BadServer(self._endpoint, "its offer names no session")
        self.session.offered(received.session)
        try:
            self._run, offer, heartbeat_ms = packet.read_offer(received.content)
        except MalformedPacket as error:
            raise BadServer(self._endpoint, f"its offer cannot be used: {error}") from None
        why = misfit(self._request, offer, self._most_clients)
        if why is not None:
            raise BadServer(self._endpoint, why)
        self.liveness.offered(heartbeat_ms / 1000, now_s)
        count = 0 if offer.spans else NO_CLIENTS
        self._request = replace(self._first_request, spans=offer.spans, count=count, evaluates=offer.evaluates)
        previous, self._offer = self._offer, offer
        return Offered(offer, previous is None or replace(previous, host=offer.host, nonce=offer.nonce) != offer)

    def _posted(self, frame: Frame) -> Iterator[JoinAnswered]:
        kind = decode(frame).kind
        if kind is Kind.BYE:
            self.session.dismissed()
        elif self._has_joined:
            if self.session.phase is not Phase.JOINING:
                raise MalformedPacket("unexpected", f"a {kind.name} where no JOIN waits for an answer")
            self.session.join_answered(is_refused=kind is Kind.REFUSE)
            self._was_welcomed = self._was_welcomed or kind is Kind.WELCOME
            self.liveness.joined()
            self.rejection = None
            yield JoinAnswered(frame)

    def _delivered(self, first: int, frames: list[Frame]) -> Delivered | Failed:
        if first != self.session.next_delivery or not self._has_joined:
            return Failed(f"delivery {first} came where {self.session.next_delivery} was next")
        self.session.delivered(frames)
        if self.session.unanswered_bytes > UNANSWERED_BYTES + self.session.inbox.limit:
            raise BadServer(
                self._endpoint, f"it sent {self.session.unanswered_bytes:,} bytes of work before any was done"
            )
        return Delivered(frames)
