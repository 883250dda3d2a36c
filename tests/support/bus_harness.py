"""A bus in memory whose actors record what they receive, for the tests of the bus."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seedbus.agents.server.positions import Positions
from seedbus.bus import (
    EVALUATOR,
    HOST,
    PASS,
    SERVER,
    Bus,
    Callbacks,
    Declined,
    Envelope,
    Fate,
    FaultHooks,
    HostRequest,
    Kind,
    Ledger,
    Links,
    MalformedEnvelope,
    MemoryTransport,
    Network,
    Offer,
    Passage,
    Tally,
    Transport,
    Verdict,
    VirtualClock,
    decode,
    encode,
)
from seedbus.bus.clock import Clock
from seedbus.bus.ledger import COLUMNS, Row
from seedbus.bus.spans import Span
from seedbus.bus.transport import OPERATOR, Answered, Rights

MS = 10**6
SECOND = 10**9
CLIENTS = 4
HORIZON_S = 10**5
PATIENCE_S = 120.0  # of real time
REPORT_TALLY = Tally(scalars=1)
"""The tally of every answer of a follower here, and of nothing else: it marks their rows in the ledger."""

AnswerFunction = Callable[[Envelope], Sequence[Envelope | bytes]]


class FakeRegistration:
    """A registration that offers each process the clients that it asks for, or all that are left.

    Attributes:
        left: the spans of clients that nobody has been offered.
        evaluates: whether the evaluator is still to be offered.
        missing: addresses that no process has joined with.
        hosts: the processes that are members.
        refusals: the reasons of all refusals, oldest first.
    """

    def __init__(self, *spans: Span, evaluates: bool = True) -> None:
        self.left = list(spans)
        self.evaluates = evaluates
        self.offers: list[Offer] = []
        self.hosts: set[int] = set()
        self.missing = {EVALUATOR} if evaluates else set()
        self.missing |= {client for first, last in spans for client in range(first, last + 1)}
        self.gone_hosts: list[int] = []
        self.refusals: list[str] = []

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        spans = request.spans or tuple(self.left)
        evaluates = request.evaluates and self.evaluates
        if not spans and not evaluates:
            return Declined("no-clients", "nobody is left")
        self.left = [span for span in self.left if span not in spans]
        self.evaluates = self.evaluates and not evaluates
        self.offers.append(Offer(HOST - len(self.offers), spans, evaluates, b"a scenario"))
        return self.offers[-1]

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool]:
        self.hosts.add(host)
        joined = decode(frame).body[0]
        self.missing -= {address for first, last in joined for address in range(first, last + 1)}
        return [encode(Envelope(Kind.WELCOME, host, 0, 0))[0]], True

    @property
    def can_go_on(self) -> bool:
        return not self.missing

    @property
    def could_go_on(self) -> bool:
        return not self.missing

    @property
    def rounds_closed(self) -> int:
        return 0

    @property
    def has_begun(self) -> bool:
        return not self.missing

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        self.hosts.discard(host)
        self.gone_hosts.append(host)

    def refused(self, peer: str, reason: str, detail: str) -> None:
        self.refusals.append(reason)


class Follower:
    """A follower that answers every frame by a function of the test's."""

    def __init__(self, offer: Offer, handle: Callable[[bytes], list[bytes]]) -> None:
        self.offer = offer
        self.handle = handle

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        spans = [*self.offer.spans, *([(EVALUATOR, EVALUATOR)] if self.offer.evaluates else [])]
        return [encode(Envelope(Kind.JOIN, host, 0, 0, [list(map(list, spans))]))[0]]

    def welcome(self, frame: bytes) -> None:
        assert decode(frame).kind is Kind.WELCOME


class ReversedTransport(MemoryTransport):
    """Holds all answers back until a flush, then gives them in reverse order, each in a callback of its own."""

    def __init__(self, recruit: Callable[[Offer], Follower] | None = None) -> None:
        super().__init__(recruit)
        self._pending: list[Callable[[], None]] = []

    def deliver(self, address: int, frame: bytes, answered: Answered, tail: bytes = b"") -> None:
        super().deliver(address, frame, lambda frames: self._pending.append(partial(answered, frames)), tail)

    def flush(self) -> None:
        pending, self._pending = self._pending[::-1], []
        for answer in pending:
            asyncio.get_running_loop().call_soon(answer)


@dataclass(frozen=True)
class Receipt:
    """What an actor received, and when."""

    at_ns: int
    address: int
    content: Envelope | MalformedEnvelope


def bus_on(
    clock: Clock,
    transport: Transport,
    network: Network | None = None,
    rules: Sequence[object] = (),
    *,
    seed: int = 0,
    clients: int = 0,
    **options: Any,
) -> Bus:
    """A bus with a ledger that writes no file."""
    hooks = FaultHooks(rules, seed, clients)
    links = Links(network or Network(), seed, hooks)
    return Bus(clock, transport, Ledger(Path("unwritten")), links, hooks, **options)


class Harness:
    """A bus with the server, the evaluator and clients 0, 1, …

    Each has a mailbox and nobody answers. With `answers`, only the server has one and all others are followers.

    Attributes:
        asked: what the followers received.
        receipts: what arrived in the mailboxes.
        unsent: number → (time in ns, envelope) of what is to be sent later.
    """

    def __init__(
        self,
        network: Network | None = None,
        rules: Sequence[object] = (),
        *,
        seed: int = 0,
        clients: int = CLIENTS,
        transport: type[MemoryTransport] = MemoryTransport,
        answers: AnswerFunction | None = None,
        answer_ns: Callable[[int, int, int], int] = lambda client, round, seeds: 0,
    ) -> None:
        self.clock = VirtualClock()
        self.asked: list[Receipt] = []
        self.receipts: list[Receipt] = []
        self.unsent: dict[int, tuple[int, Envelope]] = {}
        self._answers = answers
        self._sends = 0
        self._packed = b""
        self.transport = transport(None if answers is None else lambda offer: Follower(offer, self._handle))
        self.positions = Positions(clients)
        calls = Callbacks(
            tally=lambda envelope: REPORT_TALLY,
            answer_ns=answer_ns,
            on_answer=self.positions.on_answer,
            on_delivery=self.positions.on_delivery,
        )
        self.bus = bus_on(self.clock, self.transport, network, rules, seed=seed, clients=clients, calls=calls)
        self.ledger = self.bus.ledger
        with_mailbox = range(clients)
        if answers is not None:
            self.transport.start(FakeRegistration((0, clients - 1)))
            with_mailbox = range(0)
        addresses = (SERVER, *([EVALUATOR] if answers is None else []), *with_mailbox)
        self._mailboxes = {address: self.bus.open(address, f"address {address}") for address in addresses}

    def send(self, envelope: Envelope, after_ns: int = 0) -> None:
        """Send an envelope from its sender, `after_ns` from now."""
        if after_ns > 0:
            self.send_at(self.clock.now_ns + after_ns, envelope)
        else:
            self.bus.send(envelope)

    def send_at(self, due_ns: int, envelope: Envelope) -> None:
        """Send an envelope at `due_ns`, before anything else that happens at that instant."""
        self._sends += 1
        self.unsent[self._sends] = (due_ns, envelope)
        self.clock.at(due_ns, (0, self._sends), partial(self._send, self._sends))

    def _send(self, number: int) -> None:
        self.bus.send(self.unsent.pop(number)[1])

    def _handle(self, frame: bytes) -> list[bytes]:
        assert self._answers is not None
        envelope = decode(frame)
        self.asked.append(Receipt(self.clock.now_ns, envelope.client, envelope))
        return [each if isinstance(each, bytes) else encode(each)[0] for each in self._answers(envelope)]

    def run(self, until_ns: int = HORIZON_S * SECOND) -> None:
        """Run everything that happens before `until_ns`."""
        self.clock.run(self._run(until_ns))

    async def _run(self, until_ns: int) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        # the virtual clock waits for an answer that never comes, and so would the test
        watchdog = threading.Timer(PATIENCE_S, loop.call_soon_threadsafe, (task.cancel,))
        watchdog.start()
        readers = [asyncio.create_task(self._record(address)) for address in self._mailboxes]
        try:
            await asyncio.sleep((until_ns - self.clock.now_ns) / SECOND)
        finally:
            watchdog.cancel()
        for reader in readers:
            reader.cancel()

    async def _record(self, address: int) -> None:
        while True:
            content = await self._mailboxes[address].get()
            self.receipts.append(Receipt(self.clock.now_ns, address, content))

    @property
    def rows(self) -> list[Row]:
        """All rows of the ledger so far."""
        self._packed += self.ledger.take_new()
        numbers = array("q", self._packed)
        return [Row(*numbers[start : start + len(COLUMNS)]) for start in range(0, len(numbers), len(COLUMNS))]

    @property
    def fates(self) -> list[Fate]:
        return [Fate(row.fate) for row in self.rows]

    @property
    def arrivals_ns(self) -> list[int]:
        return [receipt.at_ns for receipt in self.receipts]


def plan(client: int = 0, round: int = 0, base: int = 0, size: int = 8) -> Envelope:
    return Envelope(Kind.PLAN, client, round, base, [bytes(size)])


def report(client: int = 0, round: int = 0, base: int = 0, size: int = 8) -> Envelope:
    return Envelope(Kind.REPORT, client, round, base, [bytes(size)])


def reported(asked: Envelope) -> list[Envelope]:
    """Answer a plan with a report of the plan's round, version and size."""
    return [Envelope(Kind.REPORT, asked.client, asked.round, asked.base, asked.body)]


@dataclass(frozen=True)
class Lose:
    """Drops messages by a keyed draw, when they are sent or when they arrive."""

    probability: float = 1.0
    arriving: bool = False

    def judge(self, passage: Passage) -> Verdict:
        if passage.arriving != self.arriving or passage.draw("lose") >= self.probability:
            return PASS
        return Verdict(drop=True)


@dataclass(frozen=True)
class Hold:
    """Delays messages by exactly `ns`, or by a keyed draw of up to `ns`."""

    ns: int
    is_random: bool = False

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=int(self.ns * passage.draw("hold")) if self.is_random else self.ns)


@dataclass(frozen=True)
class Copy:
    """Sends `copies` more of every message."""

    copies: int

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(copies=self.copies)


@dataclass(frozen=True)
class Flip:
    """Flips a bit of the messages that a keyed draw chooses: the one at `place`, or a drawn one."""

    probability: float = 1.0
    place: float | None = None

    def judge(self, passage: Passage) -> Verdict:
        if passage.arriving or passage.draw("flip") >= self.probability:
            return PASS
        return Verdict(flips=(passage.draw("place") if self.place is None else self.place,))
