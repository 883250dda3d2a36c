"""The followers' end of the ZeroMQ transport: one DEALER for a process (or, for tests, one for every client).

    HELLO ─► OFFER ─► (load, build) ─► POST of JOINs ─► POST of WELCOME ─► DELIVER ─► ANSWER … POST of BYE ─► FAREWELL

A link to which nothing comes from its hub for three heartbeats takes a new socket and says HELLO again, after a while
that doubles each time; so it outlives a server that is restarted. What it was about to answer is forgotten then: it
will be delivered anew. A hub that says that the session is over is the same case. A process that cannot go on says
FAREWELL, and why, in one word.

The hub is not trusted either. An offer that is not what was wished for, more work than a hub hands out at a time, and
packets that make no sense, again and again, raise `BadServer`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.codec import decode
from seedbus.bus.envelope import FRAME_LIMIT, SHORT, Kind
from seedbus.bus.errors import BadServer, MalformedEnvelope, MalformedPacket, ServerGone, Turned
from seedbus.bus.transport import MOST_CLIENTS, NO_CLIENTS, Follower, HostRequest, Offer, Recruit, misfit
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.keys import Identity
from seedbus.bus.zeromq.packet import NO_SESSION, Packet, Type
from seedbus.bus.zeromq.worker.outgoing import Meter, Outgoing
from seedbus.bus.zeromq.worker.worker_thread import WorkerThread

MISSED = 3
FIRST_HEARTBEAT_S = 2.0  # until a hub says how often
BACK_OFF_S = (0.1, 5.0)
PARCEL_BYTES = 60_000
LINGER_MS = 500
LOOK_S = 0.25  # between looks for a message that does not end
MALFORMED = 100  # packets that make no sense, from one hub
UNDONE = 2**29  # bytes of deliveries that are not answered; a hub sends far fewer
UNDONE_EACH = 33  # bytes that a delivery takes beside its own
_WAITING = frozenset({"taken", "stale-session", "no-clients"})  # while another process's stay has not ended yet


class Link:
    """One socket's way from HELLO to FAREWELL."""

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        wish: HostRequest,
        recruit: Recruit,
        labour: WorkerThread,
        *,
        patience_s: float,
        note: Callable[..., None],
        most_clients: int = MOST_CLIENTS,
        identity: Identity | None = None,
        is_watched: bool = False,
    ) -> None:
        self._context, self._endpoint, self._wish, self._recruit = context, endpoint, wish, recruit
        self._labour, self._patience_s, self._note = labour, patience_s, note
        self._first_wish, self._most_clients, self._identity = wish, most_clients, identity
        self._malformed = 0
        self._is_watched, self._outgoing = is_watched, list[Outgoing]()
        self._look, self._failure = inf, 0
        self._was_welcomed = False
        self._run, self._session = b"", NO_SESSION
        self._offer: Offer | None = None
        self._follower: Follower | None = None
        self._meter: Meter | None = None
        self._heartbeat_s = FIRST_HEARTBEAT_S
        self._back_off_s = BACK_OFF_S[0]
        self._next_delivery = self._next_answer = 0
        self._outbox: deque[bytes] = deque()
        self._undone: deque[int] = deque()
        self._undone_bytes = 0
        self._whole = 0
        self._was_offered = self._awaits_welcome = False
        self._stay = 0
        self.is_over = False
        self._is_alone = True
        self._turned: Turned | None = None
        self._before = NO_SESSION
        self._heard = self._beat = self._retry = self._alone_since = wall_seconds()
        self._connect()

    # -- time

    @property
    def due_s(self) -> float:
        """When `tick` has something to do."""
        patient_until = self._alone_since + self._patience_s if self._is_alone else float("inf")
        return min(self._heard + MISSED * self._heartbeat_s, self._beat, self._retry, self._look, patient_until)

    def tick(self) -> None:
        """What time brings: a PING, or the conclusion that nobody is there. Raises `ServerGone`, `Turned`."""
        now = wall_seconds()
        for outgoing in self._outgoing:
            self._watch(outgoing, now)
        if self._is_alone and now >= self._alone_since + self._patience_s:
            raise self._turned or ServerGone(self._endpoint, self._patience_s, self._handshake_failure())
        if now >= self._retry:
            self._connect()
        elif now >= self._heard + MISSED * self._heartbeat_s:
            self._lost("nothing was heard")
        if now >= self._beat:
            self._beat = now + self._heartbeat_s
            if self._session != NO_SESSION:
                self._put(Type.PING)
            if self._meter is not None and self._meter.has_moved(self._sent):
                self._heard = now  # though it may be a long message that is not whole yet
        self.drain()

    def _watch(self, outgoing: Outgoing, now: float) -> None:
        """Look whether the server lets this process in, and whether it sends a message that never ends.

        Raises `Turned`, `BadServer`.
        """
        outgoing.read_events()
        if outgoing.failure == zmq.EVENT_HANDSHAKE_FAILED_AUTH and not self._run:
            raise Turned(self._endpoint, "not-authorised", "its keys do not include this process's")
        if now < self._look:
            return
        self._look = now + LOOK_S
        why = outgoing.unfinished(self._whole)
        if why is not None:
            raise BadServer(self._endpoint, why)

    def _handshake_failure(self) -> str:
        """What may be the reason why nobody answers."""
        if not (self._failure or any(outgoing.failure for outgoing in self._outgoing)):
            return ""
        if self._identity is None:
            return "somebody is there who ends the connection: a server with keys, perhaps; then --server-key is needed"
        return "somebody is there who ends the connection: a server with another key than --server-key, or with none"

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._outbox)

    # -- the socket

    def _connect(self) -> None:
        self.socket = sockets.make(self._context, zmq.DEALER, identity=self._identity)
        now = wall_seconds()
        if self._is_watched:
            self._outgoing, self._look = [Outgoing(self.socket)], now
        try:
            sockets.connect(self.socket, self._endpoint)
        except BaseException:
            self._hang_up()  # what is left open would keep the context from ending
            raise
        self._heard, self._beat, self._retry = now, now + self._heartbeat_s, float("inf")
        self._before, self._session, self._meter = self._session, NO_SESSION, None
        self._outbox.clear()
        self._undone.clear()
        self._undone_bytes = 0
        self._was_offered = self._awaits_welcome = False
        self._stay += 1
        self._sent = 0
        self._next_delivery = self._next_answer = 0
        self._put(Type.HELLO, packet.hello(self._run, self._wish), session=self._before)

    def _lost(self, why: str) -> None:
        """Give up this socket; another follows, later each time."""
        now = wall_seconds()
        self._hang_up()
        if self._is_alone:
            self._session = self._before
        else:
            self._is_alone, self._alone_since = True, now
            self._note("the server is gone", trying=f"for {self._patience_s:g} s", because=why)
        # not all at once: whoever lost the same server comes at a moment of its own
        self._retry = now + self._back_off_s * (1 + os.urandom(1)[0] / 255) / 2
        self._back_off_s = min(2 * self._back_off_s, BACK_OFF_S[1])
        self._heard = self._beat = float("inf")

    def drain(self) -> None:
        """Send what waits, as far as it goes."""
        while self._outbox and not self.socket.closed:
            try:
                data = self._outbox[0]
                self.socket.send(data, zmq.NOBLOCK, copy=len(data) < SHORT)
            except zmq.Again:
                return
            self._sent += len(self._outbox.popleft())

    def _put(self, type: Type, *content: bytes, session: bytes | None = None) -> None:
        self._outbox.append(packet.packet(type, self._session if session is None else session, *content))
        self.drain()

    def give_up(self, code: str) -> None:
        """Let the hub know that this process ends, and why: one of `packet.FAREWELLS`."""
        if not self.socket.closed and not self.is_over and self._session != NO_SESSION:
            with suppress(zmq.ZMQError):
                self._put(Type.FAREWELL, packet.farewell(code))

    def close(self) -> None:
        if not self.socket.closed:
            self._hang_up(LINGER_MS)

    def _hang_up(self, linger_ms: int | None = None) -> None:
        for outgoing in self._outgoing:
            outgoing.read_events()
            outgoing.close()
            self._failure = outgoing.failure or self._failure
        self._outgoing, self._look = [], inf
        self.socket.close(linger=linger_ms)

    # -- receiving

    def read(self) -> None:
        """Act upon all that is there. Raises `Turned`, `BadServer`."""
        while not self.is_over and not self.socket.closed:
            try:
                frame = self.socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._whole += 1
            try:
                self._received(packet.read(sockets.content(frame)), frame)
            except (MalformedPacket, MalformedEnvelope) as error:
                self._malformed += 1
                if self._malformed > MALFORMED:
                    raise BadServer(
                        self._endpoint, f"it sent {self._malformed} packets that make no sense, the last one: {error}"
                    ) from None
                self._note("malformed", detail=str(error))

    def _received(self, got: Packet, frame: zmq.Frame) -> None:
        if got.type is Type.DECLINE:
            self._declined(*packet.read_decline(got.content))
        elif got.type is Type.OFFER and not self._was_offered:
            self._meter = Meter(frame)
            self._offered(got)
        elif got.session == self._session:
            self._heard = wall_seconds()
            if got.type is Type.DELIVER:
                self._delivered(*packet.read_deliveries(got.content))
            elif got.type is Type.POST:
                for posted in packet.read_entries(got.content):
                    self._posted(posted)

    def _declined(self, reason: str, detail: str) -> None:
        self._turned = Turned(self._endpoint, reason, detail)
        if reason not in _WAITING:
            raise self._turned
        if reason == "taken" and not self._was_welcomed:  # somebody else was faster: others may be left
            self._wish = self._first_wish
        self._lost(f"it says {reason}")

    def _offered(self, got: Packet) -> None:
        self._was_offered = self._awaits_welcome = True
        if got.session == NO_SESSION:
            raise BadServer(self._endpoint, "its offer names no session")
        self._session = got.session
        try:
            self._run, offer, heartbeat_ms = packet.read_offer(got.content)
        except MalformedPacket as error:
            raise BadServer(self._endpoint, f"its offer cannot be used: {error}") from None
        why = misfit(self._wish, offer, self._most_clients)
        if why is not None:
            raise BadServer(self._endpoint, why)
        self._heartbeat_s, self._heard = heartbeat_ms / 1000, wall_seconds()
        self._is_alone = False
        self._beat = self._heard + self._heartbeat_s
        count = 0 if offer.spans else NO_CLIENTS
        self._wish = replace(self._first_wish, spans=offer.spans, count=count, evaluates=offer.evaluates)
        stay, before = self._stay, self._offer
        self._offer = offer

        def build() -> Callable[[], None]:
            if self._follower is None or before is None or replace(before, host=offer.host, nonce=offer.nonce) != offer:
                self._follower = self._recruit(offer)
            return partial(self._join, stay, self._follower.join(offer.host, offer.nonce))

        self._labour.do(build)

    def _join(self, stay: int, joins: list[bytes]) -> None:
        """Send JOINs, in packets that a hub accepts."""
        if stay != self._stay:
            return
        batch: list[bytes] = []
        for join in joins:
            if batch and sum(map(len, batch)) + len(join) > PARCEL_BYTES:
                self._put(Type.POST, packet.entries(batch))
                batch = []
            batch.append(join)
        self._put(Type.POST, packet.entries(batch))

    def _posted(self, frame: bytes) -> None:
        kind = decode(frame).kind
        if kind is Kind.BYE:
            self._put(Type.FAREWELL)
            self.is_over = True
        elif self._follower is not None:
            if not self._awaits_welcome:
                raise MalformedPacket("unexpected", f"a {kind.name} where no JOIN waits for an answer")
            self._awaits_welcome = False
            if kind is Kind.REFUSE:
                self._session = NO_SESSION  # it is over there, and nothing more is to be said
            self._was_welcomed = self._was_welcomed or kind is Kind.WELCOME
            follower, self._back_off_s, self._turned = self._follower, BACK_OFF_S[0], None
            self._labour.do(lambda: follower.welcome(frame))

    def _delivered(self, first: int, frames: Sequence[bytes]) -> None:
        if first != self._next_delivery or self._follower is None:
            self._lost(f"delivery {first} came where {self._next_delivery} was next")
            return
        self._next_delivery += len(frames)
        sizes = [len(frame) + UNDONE_EACH for frame in frames]
        self._undone.extend(sizes)
        self._undone_bytes += sum(sizes)
        if self._undone_bytes > UNDONE + FRAME_LIMIT:
            raise BadServer(self._endpoint, f"it sent {self._undone_bytes:,} bytes of work before any was done")
        self._labour.handle(self._follower, frames, partial(self._answer, self._stay))

    def _answer(self, stay: int, answers: list[list[bytes]]) -> None:
        """Send answers, in packets that a hub accepts."""
        if stay != self._stay or self.is_over:
            return
        self._undone_bytes -= sum(self._undone.popleft() for _ in answers)
        batch: list[list[bytes]] = []
        size = 0
        for frames in answers:
            own = 1 + sum(packet.entry_bytes(len(frame)) for frame in frames)
            if batch and size + own > PARCEL_BYTES:
                self._send_answers(batch)
                batch, size = [], 0
            batch.append(frames)
            size += own
        if batch:
            self._send_answers(batch)

    def _send_answers(self, batch: list[list[bytes]]) -> None:
        self._put(Type.ANSWER, *packet.answers(self._next_answer, batch))
        self._next_answer += len(batch)
