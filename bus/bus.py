"""The bus: the only place where messages are encoded, counted, subjected to faults and delivered.

A message is encoded when it is sent. Fault rules and links then decide whether, when and how often it arrives. At its
arrival the rules are asked once more, the recipient gets it, and the ledger gets its row. The server reads messages
from its mailbox. Followers answer through a transport, and an answer counts as sent after the compute time that the
scenario gives the follower. Checkpoints contain all messages in flight (`checkpoint`, `restore`): a run that is killed
and resumed loses no message and sends none twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seedbus.bus.clock import Clock
from seedbus.bus.codec import Encoder, encode, encoded
from seedbus.bus.envelope import MEASURE, NO_TALLY, PLAN, REPORT, SERVER, SHORT, Envelope, Kind, Tally
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.fault_hooks import FaultCounts, FaultHooks, Verdict
from seedbus.bus.in_flight import Address, Answer, AnswerState, InFlightMessage, Key, MessageState, next_key
from seedbus.bus.ledger import DELIVERED, DROPPED, INSTRUMENT, REFUSED, Fate, Ledger, Row
from seedbus.bus.mailbox import Mailbox
from seedbus.bus.network import Links
from seedbus.bus.pending_replies import JOIN_REQUESTS, OnAnswer, PendingReplies
from seedbus.bus.records import Count
from seedbus.bus.transport import Transport
from seedbus.pieces import Frame

_TOGETHER = 1024  # answers that are decoded at a time


OnDelivery = Callable[[Key, int, Tally], int]
"""Called when a message is given to a follower, with its key, version and tally. Returns how many of a plan's seeds are
in commits that the follower does not fold."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a bus asks the run that it belongs to, and tells it.

    Attributes:
        tally: returns what the ledger records of a follower's message beside its length.
        answer_ns: (client, round, number of seeds in the plan, without those of commits that the client does not fold)
            → nanoseconds that the client needs to answer a plan.
        measure_ns: the same for a message that asks a client to measure.
        on_decoded: called with answers that have come together, before they are sent.
        on_answer: called with every answer; see `OnAnswer`.
        on_delivery: called with every message that is given to a follower; see `OnDelivery`.
    """

    tally: Callable[[Envelope], Tally] = lambda envelope: NO_TALLY
    answer_ns: Callable[[int, int, int], int] = lambda client, round, seeds: 0
    measure_ns: Callable[[int, int, int], int] = lambda client, round, seeds: 0
    on_decoded: Callable[[Sequence[Envelope]], None] = lambda envelopes: None
    on_answer: OnAnswer = lambda message, base, frames, notes: False
    on_delivery: OnDelivery = lambda message, base, tally: 0


class BusState(NamedTuple):
    """What a checkpoint stores of a bus; in this order.

    Of a link: its address, whether it leads to the server, and when it is free.
    """

    now_ns: Count
    links: list[tuple[Address, bool, Count]]
    in_flight: list[MessageState]
    answers: list[AnswerState]
    faults: FaultCounts


class Bus:
    """Sends envelopes between the server and its followers, or between nodes.

    Args:
        clock: virtual or wall time.
        transport: moves frames to followers and brings their answers.
        ledger: gets a row for each message.
        links: latency and bandwidth.
        rules: the scenario's faults.
        calls: what it asks and tells.
        report_limit: maximum bytes of a REPORT in this run.

    Attributes:
        answers: the answers that followers owe.
        refused: number of malformed frames by (peer, wrong part); whole error messages would be too many to count by.
        on_free: called whenever a plan has been answered or lost, and so leaves `computing`; None: nobody is told.
        on_no_join: called with a client whose answer to a request for a JOIN has none in it; None: nobody is told.
        on_idle: called when the last answer that was awaited comes and is empty; None: nobody is told.
        losing: clients of which a fault has lost a message, since this was last cleared.
    """

    def __init__(
        self,
        clock: Clock,
        transport: Transport,
        ledger: Ledger,
        links: Links,
        rules: FaultHooks,
        *,
        calls: Callbacks | None = None,
        report_limit: int = SHORT,
    ) -> None:
        self.clock = clock
        self.transport = transport
        self.ledger = ledger
        self.links = links
        self.rules = rules
        self._calls = calls or Callbacks()
        self._report_limit = max(report_limit, SHORT)
        self._encoder = Encoder()
        self.answers = PendingReplies(
            clock, transport, send=self._send_answer, record_notes=self._record_carried, on_answer=self._calls.on_answer
        )
        self.refused: Counter[tuple[int | None, str]] = Counter()
        self._mailboxes: dict[int, Mailbox] = {}
        self._in_flight: set[InFlightMessage] = set()  # unordered: see `_sorted_in_flight`
        self._occurrences: dict[tuple[Kind, int, int], int] = {}
        self._is_wire = transport.is_wire
        self._framing_bytes = transport.framing_bytes
        self._is_virtual = clock.is_virtual
        self._is_flush_due = False
        self._is_closed = False
        self.on_free: Callable[[], None] | None = None
        self.on_no_join: Callable[[int], None] | None = None
        self.on_idle: Callable[[], None] | None = None
        self.losing: set[int] = set()

    def open(self, address: int, name: str) -> Mailbox:
        """Open and return the mailbox of the actor at `address`, in this process; `name` is for error messages."""
        mailbox = self._mailboxes[address] = Mailbox(name, self.clock)
        return mailbox

    def send(self, envelope: Envelope, tally: Tally = NO_TALLY) -> None:
        """Send a message now, without waiting for its delivery. Raises `EnvelopeTooLong`."""
        header, body = self._encoder.parts(envelope)
        frame, tail = (header, body) if len(body) > SHORT else (header + body, b"")
        kind, client, round, base, _ = envelope
        key = next_key(self._occurrences, kind, client, round)
        self._depart(InFlightMessage(self.clock.now_ns, key, base, len(header), tally, frame, envelope, tail))

    def send_all(self, messages: Iterable[tuple[Envelope, Tally]]) -> None:
        """Send several messages now, in this order."""
        for envelope, tally in messages:
            self.send(envelope, tally)

    def send_frame(self, envelope: Envelope, frame: bytes, header_bytes: int) -> None:
        """Send `frame` instead of the envelope's own bytes, as tests of malicious peers do."""
        kind, client, round, base, _ = envelope
        key = next_key(self._occurrences, kind, client, round)
        self._depart(InFlightMessage(self.clock.now_ns, key, base, header_bytes, NO_TALLY, frame))

    def record(self, envelope: Envelope) -> Frame:
        """Record a message that takes no simulated time, because a process joins or leaves by it; return its frame."""
        frame, header_bytes = encoded(envelope)
        key = (envelope.kind, envelope.client, envelope.round, 0, 0)
        self._settle(InFlightMessage(self.clock.now_ns, key, envelope.base, header_bytes, NO_TALLY, frame), DELIVERED)
        return frame

    def record_refused_join(self, host: int, frame: Frame) -> None:
        """Record a frame that a host sent as a JOIN and that was refused."""
        key = (Kind.JOIN, host, 0, 0, 0)
        self._settle(InFlightMessage(self.clock.now_ns, key, 0, 0, NO_TALLY, frame), REFUSED)

    def wake(self, client: int, round: int, body: list[int], most: int) -> None:
        """Tell a client that it is available again; its answer is sent now.

        A WAKE is not a message: the ledger records only its bytes on a wire, as LINK.

        Args:
            client: the client.
            round: the current round.
            body: content of the frame.
            most: the newest version that the client can still hold.
        """
        frame, _ = encode(Envelope(Kind.WAKE, client, round, most, list(body)))
        key = (Kind.WAKE, client, round, 0, 0)
        self._calls.on_delivery(key, most, NO_TALLY)
        answered = self.answers.expect(key, most, self.clock.now_ns)
        self.transport.deliver(client, frame, answered)
        self._flush_soon()
        self._record_bytes(SERVER, client, len(frame) + self.transport.framing_bytes(len(frame)))

    @property
    def is_idle(self) -> bool:
        """Whether no message is in flight and no follower owes an answer."""
        return not (self._in_flight or len(self.answers))

    @property
    def queues(self) -> dict[str, int]:
        """Number of messages in flight, and of answers that followers owe or that are not due yet."""
        return {"in_flight": len(self._in_flight), "answers": len(self.answers)}

    @property
    def computing(self) -> set[tuple[int, int]]:
        """(client, round) of each plan that is on its way to a client, or that a client works on.

        A server would know it by acknowledgements and heartbeats; these are not simulated.
        """
        under_way = (message.key for message in self._in_flight)
        return {(key[1], key[2]) for key in (*under_way, *self.answers.keys) if key[0] is PLAN}

    def sent_bytes(self, kind: Kind) -> int:
        """Return the bytes of one kind sent to or by clients so far, without digests for verification."""
        totals = self.ledger.totals
        settled = totals[kind, "header_bytes"] + totals[kind, "payload_bytes"] - totals[kind, "digest_bytes"]
        in_flight = (each for each in self._in_flight if each.key[0] is kind and each.key[1] >= 0)
        return settled - totals[kind, INSTRUMENT] + sum(each.billed_size for each in in_flight)

    def checkpoint(self) -> BusState:
        """Return the state to resume from."""
        self.links.forget(self.clock.now_ns)
        in_flight = self._sorted_in_flight()
        # Restart the count of occurrences: a new message's key must differ only from those that are still in flight.
        self._occurrences = {message.key[:3]: message.key[3] + 1 for message in in_flight}
        return BusState(
            now_ns=self.clock.now_ns,
            links=[(client, upward, free_ns) for (client, upward), free_ns in sorted(self.links.busy.items())],
            in_flight=[message.pack() for message in in_flight],
            answers=self.answers.checkpoint(),
            faults=self.rules.checkpoint(),
        )

    def restore(self, state: BusState) -> None:
        """Set the state that `checkpoint` returned, in a bus that has not sent anything yet."""
        self.clock.now_ns = state.now_ns
        self.links.busy = {(client, upward): free_ns for client, upward, free_ns in state.links}
        for message in map(InFlightMessage.unpack, state.in_flight):
            self._occurrences[message.key[:3]] = message.key[3] + 1
            self._schedule(message)
        self.answers.restore(state.answers)
        self.rules.restore(state.faults)

    def close(self) -> None:
        """Record what is still in flight; nothing is delivered from now on.

        Called again, it records what links have carried since.
        """
        self._is_closed = True
        for message in self._sorted_in_flight():
            self._settle(message, Fate.UNDER_WAY)
        for answer in self.answers.close():
            self._record_carried(answer.key[1], answer.frames or [])
        self.record_link_bytes()

    def record_link_bytes(self) -> None:
        """Record the bytes that each host's link has carried in each direction and that belong to no message."""
        for host, up, down in self.transport.link_bytes():
            self._record_bytes(host, SERVER, up)
            self._record_bytes(SERVER, host, down)

    def _record_carried(self, follower: int, frames: list[Frame]) -> None:
        """Record frames of a follower that the transport has carried and that, in the simulation, are never sent."""
        size = sum(len(frame) + self.transport.framing_bytes(len(frame)) for frame in frames)
        self._record_bytes(follower, SERVER, size)

    def _record_bytes(self, sender: int, recipient: int, size: int) -> None:
        if size and self._is_wire:
            now_ns = self.clock.now_ns
            row = Row(now_ns, now_ns, 0, Kind.LINK, sender, recipient, 0, 0, size, 0, 0, 0, 0, DELIVERED)
            self.ledger.append(row)

    def _sorted_in_flight(self) -> list[InFlightMessage]:
        return sorted(self._in_flight, key=lambda message: message.key)

    def _schedule(self, message: InFlightMessage) -> None:
        """Put a message in flight until it arrives."""
        self._in_flight.add(message)
        self.clock.post(message.due_ns, message.key, self._arrive, message)

    def _depart(self, message: InFlightMessage) -> None:
        """Send a message: the rules decide how many duplicates are sent, and what happens to each of them."""
        if message.is_exempt or self.rules.is_empty:
            message.due_ns = self.links.arrival_ns(message.key, message.billed_size, message.sent_ns, message.peer)
            self._schedule(message)
            return
        verdict = self.rules.judge(message.key, message.sent_ns, peer=message.peer)
        copies = [message.copied(number) for number in range(1, verdict.copies + 1)]
        self._transmit(message, verdict)
        for copy in copies:
            self._transmit(copy, self.rules.judge(copy.key, copy.sent_ns, peer=copy.peer))

    def _transmit(self, message: InFlightMessage, verdict: Verdict) -> None:
        arrival_ns = self.links.arrival_ns(message.key, message.billed_size, message.sent_ns, message.peer)
        message.due_ns = arrival_ns + verdict.delay_ns
        if verdict.flips:
            message.flip(verdict.flips)
        if verdict.drop:
            self.losing.add(message.key[1])
            self._settle(message, DROPPED, fault=self.rules.dropping)
        else:
            self._schedule(message)

    def _arrive(self, message: InFlightMessage) -> None:
        if self._is_closed:
            return
        is_dropped = not (message.is_exempt or self.rules.is_empty) and (
            self.rules.judge(message.key, self.clock.now_ns, arriving=True, peer=message.peer).drop
        )
        if is_dropped or message.is_damaged:
            # A damaged message fails its checksum, and its sender cannot be known; the recipient does not get it.
            self.losing.add(message.key[1])
            if is_dropped:
                self._settle(message, DROPPED, fault=self.rules.dropping)
            else:
                self._settle(message, REFUSED)
            return
        mailbox = self._mailboxes.get(message.recipient)
        content: Envelope | MalformedEnvelope
        fate = DELIVERED
        try:
            content = message.content(self._report_limit)
        except MalformedEnvelope as error:
            content, fate = error, REFUSED
            self.refused[message.sender, error.where] += 1
        if mailbox is not None:
            self._settle(message, fate)  # first, because `put` may run the recipient's handler at once
            mailbox.put(content)
            return
        repeated = 0
        if not self.transport.reaches(message.recipient):
            fate = DROPPED  # in real time the recipient's process may have gone while the message was in flight
        elif fate is DELIVERED:
            repeated = self._deliver(message.recipient, message)
        self._settle(message, fate, repeated)

    def _deliver(self, recipient: int, message: InFlightMessage) -> int:
        """Give a message to the transport and expect its answer. Returns what `OnDelivery` does."""
        repeated, needed_ns = self._calls.on_delivery(message.key, message.base, message.tally), 0
        if message.key[0] is PLAN:
            needed_ns = self._calls.answer_ns(recipient, message.key[2], message.tally.seeds - repeated)
        elif message.key[0] is MEASURE:
            needed_ns = self._calls.measure_ns(recipient, message.key[2], message.tally.seeds - repeated)
        answered = self.answers.expect(message.key, message.base, self.clock.now_ns + needed_ns)
        self.transport.deliver(recipient, message.frame, answered, message.tail)
        self._flush_soon()
        return repeated

    def _flush_soon(self) -> None:
        """In real time, what the callbacks of one turn of the loop have delivered is sent at its end."""
        if not (self._is_virtual or self._is_flush_due):
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self.transport.flush()

    def _settle(self, message: InFlightMessage, fate: Fate, repeated: int = 0, fault: int = -1) -> None:
        """End a message: it is no longer in flight, and its ledger row is written. Called once for each message."""
        self._in_flight.discard(message)
        framing_bytes = self._framing_bytes(message.size) if self._is_wire else 0
        self.ledger.append(message.row(fate, self.clock.now_ns, framing_bytes, repeated, fault))
        if self.on_free is not None and fate is not DELIVERED and message.key[0] is PLAN:
            self.on_free()

    def _decoded(self, answer: Answer, frames: list[Frame]) -> list[tuple[Envelope | None, int]]:
        """Return envelope and header bytes of each frame of an answer."""
        if answer.decoded is None:
            self._decode_short()
        return answer.decoded or [answer.decode(frame, self._report_limit) for frame in frames]

    def _decode_short(self) -> None:
        """Decode short answers that have come, all that will be sent soon."""
        envelopes = list[Envelope]()
        for answer, frame in self.answers.take_short(_TOGETHER):
            envelope, header_bytes = answer.decode(frame, self._report_limit)
            answer.decoded = [(envelope, header_bytes)]
            if envelope is not None:
                envelopes.append(envelope)
        if len(envelopes) > 1:
            self._calls.on_decoded(envelopes)

    def _send_answer(self, answer: Answer) -> None:
        """Send a follower's answer, which is due and has come."""
        kind, client, round, _, _ = answer.key
        if self.on_free is not None and kind is PLAN:
            self.on_free()
        has_faults = not self.rules.is_empty
        is_exempt = kind is not PLAN and kind in JOIN_REQUESTS
        if has_faults and kind is PLAN and answer.frames and self.rules.is_silent(client, round):
            self.losing.add(client)
            self._record_carried(client, answer.frames)
            return
        if has_faults:
            self.rules.answered(client, round)
        frames = answer.frames or []
        if not frames and self.on_idle is not None and self.is_idle:
            self.on_idle()
        decoded = self._decoded(answer, frames)
        if is_exempt and self.on_no_join is not None:
            if not any(envelope is not None and envelope.kind is Kind.JOIN for envelope, _ in decoded):
                self.on_no_join(client)
        for frame, (envelope, header_bytes) in zip(frames, decoded, strict=True):
            if envelope is None:
                key, base, tally = next_key(self._occurrences, REPORT, client, round), answer.base, NO_TALLY
            else:
                frame_kind, _, frame_round, base, _ = envelope
                key = next_key(self._occurrences, frame_kind, client, frame_round)
                tally = self._calls.tally(envelope)
                if has_faults and frame_kind is REPORT:
                    self.rules.reported(client, frame_round)
                if len(frame) > SHORT:
                    envelope = None  # decoded again at arrival: until then memory would hold the content twice
            message = InFlightMessage(self.clock.now_ns, key, base, header_bytes, tally, frame, envelope)
            message.is_exempt = is_exempt
            self._depart(message)
