"""The bus: the only place where messages are encoded, counted, judged and delivered.

send → encode → rules and links say whether, when and how often it arrives → at that instant: rules once more, the
recipient gets it, the ledger its row. The server reads its mailbox; followers answer through a transport, and their
answer is sent when they have had the time for it that the scenario gives them. What is under way is part of a
checkpoint (`checkpoint`, `restore`): a run that is killed and resumed loses no message and sends none twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from seedbus.bus.clock import Clock
from seedbus.bus.codec import Encoder, encode
from seedbus.bus.envelope import NO_TALLY, PLAN, REFUSE, REPORT, SERVER, SHORT, Envelope, Kind, Tally
from seedbus.bus.errors import MalformedEnvelope
from seedbus.bus.fault_hooks import FaultHooks, Verdict
from seedbus.bus.in_flight import Answer, InFlightMessage, next_key
from seedbus.bus.ledger import DELIVERED, DROPPED, INSTRUMENT, REFUSED, Fate, Ledger, Row
from seedbus.bus.mailbox import Mailbox
from seedbus.bus.network import Links
from seedbus.bus.opening import opened, said
from seedbus.bus.pending_replies import SETS_BACK, Learned, PendingReplies
from seedbus.bus.transport import Transport


def _untallied(envelope: Envelope) -> Tally:
    return NO_TALLY


class Bus:
    """Sends envelopes between actors in time.

    tally: what a follower's message carries beside its length; answer_ns: how long a client needs to answer a plan of
    a round; report_limit: bytes that a REPORT of this run may have; learned: called with every answer.
    """

    def __init__(
        self,
        clock: Clock,
        transport: Transport,
        ledger: Ledger,
        links: Links,
        rules: FaultHooks,
        *,
        tally: Callable[[Envelope], Tally] = _untallied,
        answer_ns: Callable[[int, int, int], int] = lambda client, round, seeds: 0,
        report_limit: int = SHORT,
        learned: Learned = lambda message, base, frames, notes: False,
    ) -> None:
        self.clock, self.transport, self.ledger, self.links, self.rules = clock, transport, ledger, links, rules
        self._tally, self._answer_ns, self._most = tally, answer_ns, max(report_limit, SHORT)
        self._encoder = Encoder()
        self.answers = PendingReplies(clock, transport, speak=self._speak, noted=self._book_carried, learned=learned)
        self.refused: Counter[tuple[int | None, str]] = Counter()
        """Malformed frames by (peer, the part that was wrong): bounded, as whole sentences would not be."""
        self._mailboxes: dict[int, Mailbox] = {}
        self._in_flight: set[InFlightMessage] = set()  # in no order: see `_under_way`
        self._occurrences: dict[tuple[Kind, int, int], int] = {}
        self._is_wire, self._is_virtual, self._is_closed = transport.is_wire, clock.is_virtual, False

    def open(self, address: int, name: str) -> Mailbox:
        """The mailbox of the actor at `address`, in this process."""
        mailbox = self._mailboxes[address] = Mailbox(name, self.clock)
        return mailbox

    def send(self, envelope: Envelope, tally: Tally = NO_TALLY) -> None:
        """Send a message now. Returns at once. Raises `EnvelopeTooLong`."""
        header, body = self._encoder.parts(envelope)
        frame, tail = (header, body) if len(body) > SHORT else (header + body, b"")
        kind, client, round, base, _ = envelope
        key, is_sure = next_key(self._occurrences, kind, client, round), kind is REFUSE
        self._depart(InFlightMessage(self.clock.now_ns, key, base, len(header), tally, frame, is_sure, envelope, tail))

    def send_frame(self, envelope: Envelope, frame: bytes, header: int, tally: Tally = NO_TALLY) -> None:
        """Send bytes in the place of an envelope's own: what a test of bad peers does."""
        kind, client, round, base, _ = envelope
        key, is_sure = next_key(self._occurrences, kind, client, round), kind is REFUSE
        self._depart(InFlightMessage(self.clock.now_ns, key, base, header, tally, frame, is_sure))

    def book(self, envelope: Envelope) -> bytes:
        """A message that takes no simulated time, of a process that comes or goes: its frame; its row is written."""
        frame, header = encode(envelope)
        key = (envelope.kind, envelope.client, envelope.round, 0, 0)
        self._settle(InFlightMessage(self.clock.now_ns, key, envelope.base, header, NO_TALLY, frame), DELIVERED)
        return frame

    def book_refused(self, host: int, frame: bytes) -> None:
        """The row of what came from a host in the place of a JOIN."""
        key = (Kind.JOIN, host, 0, 0, 0)
        self._settle(InFlightMessage(self.clock.now_ns, key, 0, 0, NO_TALLY, frame), REFUSED)

    def wake(self, client: int, round: int, body: list[int], most: int) -> None:
        """Tell a client what has befallen it: no message, so it has no row, and its answer is sent now.

        most: the newest version that it can still hold.
        """
        frame, _ = encode(Envelope(Kind.WAKE, client, round, most, list(body)))
        answered = self.answers.promise((Kind.WAKE, client, round, 0, 0), most, self.clock.now_ns)
        self.transport.deliver(client, frame, answered)
        self._book_bytes(SERVER, client, len(frame) + self.transport.framing_bytes(len(frame)))

    def sent_bytes(self, kind: Kind) -> int:
        """Bytes of one kind sent to or by clients so far, without the digests of verification."""
        totals = self.ledger.totals
        settled = totals[kind, "header_bytes"] + totals[kind, "payload_bytes"] - totals[kind, "digest_bytes"]
        flights = (f for f in self._in_flight if f.key[0] is kind and f.key[1] >= 0)
        return settled - totals[kind, INSTRUMENT] + sum(f.size - f.tally.digest_bytes for f in flights)

    def checkpoint(self) -> list[Any]:
        """All that the future depends on: the time, the busy links, what is under way, every answer to come; and how
        often faults have struck."""
        self.links.forget(self.clock.now_ns)
        flights = self._under_way()
        # occurrences are counted anew: only what is still under way could be mistaken for what is sent next
        self._occurrences = {flight.key[:3]: flight.key[3] + 1 for flight in flights}
        return [
            self.clock.now_ns,
            [[client, upward, free_ns] for (client, upward), free_ns in sorted(self.links.busy.items())],
            [flight.pack() for flight in flights],
            self.answers.checkpoint(),
            self.rules.checkpoint(),
        ]

    def restore(self, checkpoint: list[Any]) -> None:
        """Put back what `checkpoint` gave, into a bus that has not sent anything yet."""
        self.clock.now_ns, busy, flights, answers, struck = checkpoint
        self.links.busy = {(client, upward): free_ns for client, upward, free_ns in busy}
        for flight in map(InFlightMessage.unpack, flights):
            self._occurrences[flight.key[:3]] = flight.key[3] + 1
            self._schedule(flight)
        self.answers.restore(answers)
        self.rules.restore(struck)

    def close(self) -> None:
        """Settle what is still under way; nothing is delivered from now on."""
        self._is_closed = True
        for flight in self._under_way():
            self._settle(flight, Fate.UNDER_WAY)
        for answer in self.answers.close():
            self._book_unsent(answer)
        self.book_link_bytes()

    def book_link_bytes(self) -> None:
        """A row for what each host's link has carried, each way, that belongs to no message."""
        for host, up, down in self.transport.link_bytes():
            self._book_bytes(host, SERVER, up)
            self._book_bytes(SERVER, host, down)

    # -- messages

    def _book_unsent(self, answer: Answer) -> None:
        """An answer that came over the wire, and that its follower never sends."""
        self._book_carried(answer.key[1], answer.frames or [])

    def _book_carried(self, follower: int, frames: list[bytes]) -> None:
        """What a follower said that is no message."""
        size = sum(len(frame) + self.transport.framing_bytes(len(frame)) for frame in frames)
        self._book_bytes(follower, SERVER, size)

    def _book_bytes(self, sender: int, recipient: int, size: int) -> None:
        if size and self._is_wire:
            now_ns = self.clock.now_ns
            row = Row(now_ns, now_ns, 0, Kind.LINK, sender, recipient, 0, 0, size, 0, 0, 0, 0, DELIVERED)
            self.ledger.append(row)

    def _under_way(self) -> list[InFlightMessage]:
        """All that has not arrived, by name."""
        return sorted(self._in_flight, key=lambda flight: flight.key)

    def _schedule(self, flight: InFlightMessage) -> None:
        """Under way until it arrives."""
        self._in_flight.add(flight)
        self.clock.post(flight.due_ns, flight.key, self._arrive, flight)

    def _depart(self, flight: InFlightMessage) -> None:
        """The moment of sending: rules say how often it is sent, and what becomes of it and of each copy."""
        if flight.is_sure or self.rules.are_none:
            flight.due_ns = self.links.arrival_ns(flight.key, flight.size, flight.sent_ns)
            self._schedule(flight)
            return
        verdict = self.rules.judge(flight.key, flight.sent_ns)
        copies = [flight.copied(number) for number in range(1, verdict.copies + 1)]
        self._launch(flight, verdict)
        for copy in copies:
            self._launch(copy, self.rules.judge(copy.key, copy.sent_ns))

    def _launch(self, flight: InFlightMessage, verdict: Verdict) -> None:
        arrival_ns = self.links.arrival_ns(flight.key, flight.size, flight.sent_ns)
        flight.due_ns = arrival_ns + verdict.delay_ns
        if verdict.flips:
            flight.flip(verdict.flips)
        if verdict.drop:
            self._settle(flight, DROPPED)
        else:
            self._schedule(flight)

    def _arrive(self, flight: InFlightMessage) -> None:
        if self._is_closed:
            return
        is_dropped = not (flight.is_sure or self.rules.are_none) and (
            self.rules.judge(flight.key, self.clock.now_ns, arriving=True).drop
        )
        if is_dropped or flight.is_damaged:
            # a checksum finds the damage, and what fails it is nobody's: its recipient never hears of it
            self._settle(flight, DROPPED if is_dropped else REFUSED)
            return
        recipient = SERVER if flight.is_upward else flight.key[1]
        letter: Envelope | MalformedEnvelope | None = flight.envelope
        fate = DELIVERED
        if letter is None:
            try:
                letter = opened(flight, self._most)
            except MalformedEnvelope as error:
                letter, fate = error, REFUSED
                self.refused[flight.ends[0], error.where] += 1
        if recipient in self._mailboxes:
            self._settle(flight, fate)  # first, for it is acted upon as soon as it is there
            self._mailboxes[recipient].put(letter)
            return
        if not self.transport.reaches(recipient):
            fate = DROPPED  # in real time its process may have gone while it was under way
        elif fate is DELIVERED:
            self._deliver(recipient, flight)
        self._settle(flight, fate)

    def _deliver(self, recipient: int, flight: InFlightMessage) -> None:
        needs_ns = self._answer_ns(recipient, flight.key[2], flight.tally.seeds) if flight.key[0] is PLAN else 0
        answered = self.answers.promise(flight.key, flight.base, self.clock.now_ns + needs_ns)
        self.transport.deliver(recipient, flight.frame, answered, flight.tail)
        if not self._is_virtual:
            asyncio.get_running_loop().call_soon(self.transport.flush)

    def _settle(self, flight: InFlightMessage, fate: Fate) -> None:
        """The end of every message: its row, once, and it is no longer under way."""
        self._in_flight.discard(flight)
        framing_bytes = self.transport.framing_bytes(flight.size) if self._is_wire else 0
        self.ledger.append(flight.row(fate, self.clock.now_ns, framing_bytes))

    def _speak(self, answer: Answer) -> None:
        """The moment at which a follower sends what it had to say."""
        kind, client, round, _, _ = answer.key
        judges, sets_back = not self.rules.are_none, kind is not PLAN and kind in SETS_BACK
        if judges and kind is PLAN and answer.frames and self.rules.is_silent(client, round):
            self._book_unsent(answer)
            return
        if judges:
            self.rules.answered(client, round)
        for frame in answer.frames or ():
            envelope, header = said(client, frame, self._most)
            if envelope is None:
                key, base, tally = next_key(self._occurrences, REPORT, client, round), answer.base, NO_TALLY
            else:
                word, _, of_round, base, _ = envelope
                key, tally = next_key(self._occurrences, word, client, of_round), self._tally(envelope)
                if judges and word is REPORT:
                    self.rules.reported(client, of_round)
                if len(frame) > SHORT:
                    envelope = None  # decoded once more when it arrives, for memory would hold it twice until then
            self._depart(InFlightMessage(self.clock.now_ns, key, base, header, tally, frame, sets_back, envelope))
