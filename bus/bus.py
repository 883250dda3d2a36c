"""The bus: the only place where messages are encoded, counted, judged and delivered.

send → encode → rules and links say whether and when it arrives → at that instant: rules once more, the transport
carries the frame, the ledger gets its row, the recipient's mailbox its envelope. What is under way is part of a
checkpoint (`checkpoint`, `restore`): a run that is killed and resumed loses no message and sends none twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from seedbus.bus.clock import LAST_NS, VirtualClock
from seedbus.bus.envelope import NO_TALLY, Envelope, Kind, Tally, decode, encode, ends
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.ledger import Fate, Ledger, Row
from seedbus.bus.network import Links
from seedbus.bus.rules import Rules
from seedbus.bus.transport import Transport


class Mailbox:
    """An actor's incoming messages, in the order of their arrival."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name = name
        self._clock = clock
        self._letters: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, letter: Any) -> None:
        """Add a letter: an envelope, or a note that an actor writes to itself (a deadline that passed)."""
        self._letters.append(letter)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> Any:
        """The next letter; waits for one."""
        while not self._letters:
            self._reader = asyncio.get_running_loop().create_future()
            self._clock.waiting[self.name] = None
            try:
                await self._reader
            finally:
                self._clock.waiting.pop(self.name, None)
                self._reader = None
        return self._letters.popleft()


@dataclass(slots=True)
class _Flight:
    """A message under way: due at a nanosecond, with all that its row needs."""

    due_ns: int
    sent_ns: int
    kind: Kind
    client: int
    round: int
    occurrence: int
    base: int
    header: int
    tally: Tally
    frame: bytes
    is_sent: bool = False
    key: tuple[Kind, int, int, int] = field(init=False)
    sender: int = field(init=False)
    recipient: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.kind, self.client, self.round, self.occurrence)
        self.sender, self.recipient = ends(self.kind, self.client)


_COUNTED = ("header_bytes", "payload_bytes", "framing_bytes")


class Bus:
    """Sends envelopes between actors in simulated time."""

    def __init__(self, clock: VirtualClock, transport: Transport, ledger: Ledger, links: Links, rules: Rules) -> None:
        self.clock, self.transport, self.ledger, self.links, self.rules = clock, transport, ledger, links, rules
        self.refused: Counter[tuple[int | None, str]] = Counter()
        """Malformed frames by (peer, the part that was wrong): bounded, as whole sentences would not be."""
        self.reached: dict[int, int] = {}
        """client → version to which a plan that was delivered has brought it, since the last checkpoint."""
        self._routes: dict[int, int] = {}
        self._in_flight: dict[tuple[Any, ...], _Flight] = {}
        self._occurrences: Counter[tuple[Any, ...]] = Counter()
        self._speaker: int | None = None
        self._fate = Fate.DELIVERED

    def open(self, address: int, name: str) -> Mailbox:
        """The mailbox of the actor at `address`."""
        mailbox = Mailbox(name, self.clock)
        self.transport.listen(address, partial(self._unwrap, mailbox))
        return mailbox

    def forward(self, address: int, to: int) -> None:
        """Deliver what is sent to `address` into the mailbox of `to`: a host answers for its clients."""
        self._routes[address] = to

    def send(self, envelope: Envelope, tally: Tally = NO_TALLY, *, after_ns: int = 0) -> None:
        """Send a message `after_ns` from now (a client's compute time). Returns at once.

        Until then it is under way but not sent: its link is free for others, and a run that ends first never sends it.
        """
        frame, header = encode(envelope)
        self.send_frame(envelope, frame, header, tally, after_ns=after_ns)

    def send_frame(
        self, envelope: Envelope, frame: bytes, header: int, tally: Tally = NO_TALLY, *, after_ns: int = 0
    ) -> None:
        """Send bytes in the place of an envelope's own: what a rule that corrupts does, and a test of bad peers."""
        kind, client, round = envelope.kind, envelope.client, envelope.round
        sent_ns = self.clock.now_ns + after_ns
        occurrence = self._occurrences[kind, client, round]
        self._occurrences[kind, client, round] = occurrence + 1
        flight = _Flight(sent_ns, sent_ns, kind, client, round, occurrence, envelope.base, header, tally, frame)
        if after_ns > 0:
            self._schedule(flight)
        else:
            self._depart(flight)

    def sent_bytes(self, kind: Kind) -> int:
        """Bytes of all messages of one kind sent so far, without the digests of verification."""
        totals = self.ledger.totals
        settled = sum(totals[kind, part] for part in _COUNTED) - totals[kind, "digest_bytes"]
        return settled + sum(
            len(flight.frame) + self.transport.framing_bytes(len(flight.frame)) - flight.tally.digest_bytes
            for flight in self._in_flight.values()
            if flight.kind is kind and flight.is_sent
        )

    def checkpoint(self) -> list[Any]:
        """All that the future depends on: the time, the busy links, and every message under way."""
        self.links.forget(self.clock.now_ns)
        flights = [self._in_flight[key] for key in sorted(self._in_flight)]
        # occurrences are counted anew: only what is still under way could be mistaken for what is sent next
        self._occurrences = Counter({flight.key[:3]: flight.occurrence + 1 for flight in flights})
        return [
            self.clock.now_ns,
            [[client, upward, free_ns] for (client, upward), free_ns in sorted(self.links.busy.items())],
            [[f.due_ns, f.sent_ns, *f.key, f.base, f.header, list(f.tally), f.frame, f.is_sent] for f in flights],
        ]

    def under_way(self, kind: Kind) -> list[bytes]:
        """The frames of one kind that are under way."""
        return [flight.frame for flight in self._in_flight.values() if flight.kind is kind]

    def restore(self, checkpoint: list[Any]) -> None:
        """Put back what `checkpoint` gave, into a bus that has not sent anything yet."""
        self.clock.now_ns, busy, flights = checkpoint
        self.links.busy = {(client, upward): free_ns for client, upward, free_ns in busy}
        for due_ns, sent_ns, kind, client, round, occurrence, base, header, tally, frame, is_sent in flights:
            self._occurrences[Kind(kind), client, round] = occurrence + 1
            numbers = (client, round, occurrence, base, header)
            self._schedule(_Flight(due_ns, sent_ns, Kind(kind), *numbers, Tally(*tally), frame, is_sent))

    def close(self) -> None:
        """Settle what is still under way, and close the transport."""
        for key in sorted(self._in_flight):
            if self._in_flight[key].is_sent:
                self._settle(self._in_flight[key], Fate.UNDER_WAY)
        self._in_flight.clear()
        self.transport.close()

    def _schedule(self, flight: _Flight) -> None:
        """Under way until its next event; what would come after the end of time just never does."""
        self._in_flight[flight.key] = flight
        if flight.due_ns <= LAST_NS:
            self.clock.at(flight.due_ns, flight.key, partial(self._arrive if flight.is_sent else self._depart, flight))

    def _depart(self, flight: _Flight) -> None:
        """The moment of sending: rules say whether it is lost, its link when it arrives."""
        numbers = (flight.kind, flight.client, flight.round, flight.occurrence)
        verdict = self.rules.judge(*numbers, flight.sent_ns)
        arrival_ns = self.links.arrival_ns(*numbers, len(flight.frame), flight.sent_ns)
        flight.due_ns, flight.is_sent = arrival_ns + verdict.delay_ns, True
        if verdict.drop:
            self._settle(flight, Fate.DROPPED)
        else:
            self._schedule(flight)

    def _arrive(self, flight: _Flight) -> None:
        if flight.key not in self._in_flight:
            return  # the bus was closed before it came
        now_ns = self.clock.now_ns
        verdict = self.rules.judge(flight.kind, flight.client, flight.round, flight.occurrence, now_ns, arriving=True)
        if verdict.drop:
            self._settle(flight, Fate.DROPPED)
            return
        self._speaker, self._fate = flight.sender, Fate.DELIVERED
        self.transport.carry(self._routes.get(flight.recipient, flight.recipient), flight.frame)
        if flight.kind is Kind.PLAN and self._fate is Fate.DELIVERED:
            self.reached[flight.client] = max(flight.base, self.reached.get(flight.client, 0))
        self._settle(flight, self._fate)

    def _unwrap(self, mailbox: Mailbox, frame: bytes) -> None:
        try:
            envelope = decode(frame, self._speaker)
            if envelope.sender != self._speaker:
                raise MalformedEnvelope(f"is {envelope.client}, who did not send it", "the client", self._speaker)
            mailbox.put(envelope)
        except MalformedEnvelope as error:
            self.refused[self._speaker, error.where] += 1
            self._fate = Fate.REFUSED
            mailbox.put(error)

    def _settle(self, flight: _Flight, fate: Fate) -> None:
        """The end of every message: its row, once, and it is no longer under way."""
        self._in_flight.pop(flight.key, None)
        size, tally = len(flight.frame), flight.tally
        arrived_ns = self.clock.now_ns if fate in (Fate.DELIVERED, Fate.REFUSED) else -1
        self.ledger.append(
            Row(
                sent_ns=flight.sent_ns,
                arrived_ns=arrived_ns,
                round=flight.round,
                kind=flight.kind,
                sender=flight.sender,
                recipient=flight.recipient,
                header_bytes=flight.header,
                payload_bytes=size - flight.header,
                framing_bytes=self.transport.framing_bytes(size),
                digest_bytes=tally.digest_bytes,
                catchup_bytes=tally.catchup_bytes,
                scalars=tally.scalars,
                seeds=tally.seeds,
                fate=fate,
            )
        )
