"""A bus in memory with an actor at every address that notes what it gets: what the tests of the bus have in common."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seedbus.bus import (
    EVALUATOR,
    PASS,
    SERVER,
    Bus,
    Envelope,
    Fate,
    Kind,
    Ledger,
    Links,
    MalformedEnvelope,
    MemoryTransport,
    Network,
    Passage,
    Rule,
    Rules,
    Transport,
    Verdict,
    VirtualClock,
)
from seedbus.bus.ledger import COLUMNS, Row

MS = 10**6
SECOND = 10**9
CLIENTS = 4
HORIZON_S = 10**5


@dataclass(frozen=True)
class Letter:
    """What an actor got and when."""

    at_ns: int
    address: int
    content: Envelope | MalformedEnvelope


class Harness:
    """A bus with the server, the evaluator and `CLIENTS` clients. Each notes its letters; nobody answers."""

    def __init__(
        self,
        network: Network | None = None,
        rules: Sequence[Rule] = (),
        *,
        seed: int = 0,
        transport: Transport | None = None,
        clients: int = CLIENTS,
    ) -> None:
        self.clock, self.ledger = VirtualClock(), Ledger(Path("unwritten"))
        links = Links(network or Network(), seed)
        self.bus = Bus(self.clock, transport or MemoryTransport(), self.ledger, links, Rules(rules, seed))
        self.letters: list[Letter] = []
        self._packed = b""
        self._mailboxes = {
            address: self.bus.open(address, f"address {address}") for address in (SERVER, EVALUATOR, *range(clients))
        }

    def run(self, until_ns: int = HORIZON_S * SECOND) -> None:
        """Let everything happen that happens before `until_ns`."""
        self.clock.run(self._run(until_ns))

    async def _run(self, until_ns: int) -> None:
        readers = [asyncio.create_task(self._note(address)) for address in self._mailboxes]
        await asyncio.sleep((until_ns - self.clock.now_ns) / SECOND)
        for reader in readers:
            reader.cancel()

    async def _note(self, address: int) -> None:
        while True:
            content = await self._mailboxes[address].get()
            self.letters.append(Letter(self.clock.now_ns, address, content))

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
        return [letter.at_ns for letter in self.letters]


def plan(client: int = 0, round: int = 0, base: int = 0, size: int = 8) -> Envelope:
    return Envelope(Kind.PLAN, client, round, base, [bytes(size)])


def report(client: int = 0, round: int = 0, base: int = 0, size: int = 8) -> Envelope:
    return Envelope(Kind.REPORT, client, round, base, [bytes(size)])


@dataclass(frozen=True)
class Lose:
    """Drops by a keyed draw; on sending or on arrival."""

    probability: float = 1.0
    arriving: bool = False

    def judge(self, passage: Passage) -> Verdict:
        if passage.arriving != self.arriving or passage.draw("lose") >= self.probability:
            return PASS
        return Verdict(drop=True)


@dataclass(frozen=True)
class Hold:
    """Delays by up to `ns`, by a keyed draw; or by exactly `ns`."""

    ns: int
    is_random: bool = False

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(delay_ns=int(self.ns * passage.draw("hold")) if self.is_random else self.ns)
