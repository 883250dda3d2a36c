"""A registration with all that it needs, for tests of processes that join, are refused and go."""

from __future__ import annotations

from array import array
from typing import Any

from bus_harness import bus_on
from coordinator_cases import ALGORITHM, PROOF, cohort_of, report

from seedbus.agents import messages
from seedbus.agents.admission import bound
from seedbus.agents.messages import Join, Span
from seedbus.agents.observer import NullObserver
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.registration import Registration
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.bus import (
    Declined,
    Envelope,
    Fate,
    HostRequest,
    Kind,
    MemoryTransport,
    Offer,
    VirtualClock,
    WallClock,
    decode,
    encode,
)
from seedbus.bus.ledger import COLUMNS, Row
from seedbus.bus.transport import OPERATOR, Rights


class Hall:
    """A registration with everything that it needs."""

    def __init__(
        self,
        clients: int = 6,
        *,
        processes: int = 3,
        is_virtual: bool = True,
        cohort: int | None = None,
        proofs: dict[str, bytes] = PROOF,
    ) -> None:
        clock = VirtualClock() if is_virtual else WallClock()
        bus = bus_on(clock, MemoryTransport())
        self.ledger = bus.ledger
        self.coordinator = Coordinator(
            ALGORITHM,
            Participation(clients=clients, cohort=cohort),
            seed=7,
            stop=Stop(rounds=100),
            evaluation=Cadence(),
            proofs=proofs,
            believes=not is_virtual,
        )
        self.actual_versions: dict[int, int] = {}
        self.changes: list[list[tuple[int, int]]] = []
        """Each time a process joined or was gone: (client, round) of the plans that are to be sent again."""
        self.told = Told()
        self.registration = Registration(
            bus,
            self.coordinator,
            self.told,
            scenario=b"the scenario",
            processes=processes,
            actual_versions=lambda: self.actual_versions,
            on_change=lambda: self.changes.append(
                [(plan.client, plan.round) for plan, _ in self.coordinator.take_outbox()]
            ),
        )

    def offered(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer:
        offer = self.registration.greet(request, rights)
        assert isinstance(offer, Offer), offer
        return offer

    def declined(self, request: HostRequest, rights: Rights = OPERATOR) -> Declined:
        answer = self.registration.greet(request, rights)
        assert isinstance(answer, Declined)
        return answer

    def joins(self, host: int, *spans: Span, **proofs: bytes) -> tuple[list[Envelope], bool]:
        admitted = self.registration.admit(host, joining(host, *spans, **proofs))
        assert not isinstance(admitted, Declined), admitted
        return [decode(frame) for frame in admitted[0]], admitted[1]

    def joining(self, offer: Offer, *spans: Span, **proofs: bytes) -> bytes:
        """A JOIN whose proofs are bound to an offer."""
        return joining(offer.host, *spans, **bound(PROOF | proofs, offer.nonce))

    def comes(self, request: HostRequest, version: int = 0, *, rights: Rights = OPERATOR) -> Offer:
        """A process comes and joins; all of its clients say that they hold `version`."""
        offer = self.offered(request, rights)
        spans = [Span(first, last, version) for first, last in offer.spans]
        admitted = self.registration.admit(offer.host, self.joining(offer, *spans))
        assert not isinstance(admitted, Declined) and admitted[1], admitted
        return offer

    def stands(self, host: int, *spans: Span) -> tuple[list[int], int]:
        """The versions that a WELCOME tells, and how many commits."""
        (welcome,), _ = self.joins(host, *spans)
        assert (welcome.kind, welcome.client, welcome.base) == (Kind.WELCOME, host, self.coordinator.version)
        versions, log, _ = messages.unpack_welcome(ALGORITHM, welcome, len(welcome.body[0]) // 4)
        assert [commit.version for commit in log] == list(range(1, len(log) + 1))
        return versions, len(log)

    def close_rounds(self, count: int) -> None:
        for _ in range(count):
            for client in cohort_of(self.coordinator):
                self.coordinator.reported(report(self.coordinator, client))
            self.coordinator.close_round()

    @property
    def rows(self) -> list[tuple[str, int, int, int, str]]:
        """(kind, sender, recipient, bytes, fate) of the messages since this was last asked for."""
        numbers = array("q", self.ledger.take_new())
        rows = [Row(*numbers[start : start + len(COLUMNS)]) for start in range(0, len(numbers), len(COLUMNS))]
        sizes = [row.header_bytes + row.payload_bytes for row in rows]
        return [
            (Kind(row.kind).name, row.sender, row.recipient, size, Fate(row.fate).name)
            for row, size in zip(rows, sizes, strict=True)
        ]


class Told(NullObserver):
    """Notes what an observer is told."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []

    def refused(self, refusal: Any) -> None:
        self.refusals.append(refusal.reason)

    def noted(self, event: str, **facts: Any) -> None:
        self.notes.append((event, facts))


def joining(host: int, *spans: Span, **proofs: bytes) -> bytes:
    return encode(Join(host, spans, **(PROOF | proofs)).pack())[0]
