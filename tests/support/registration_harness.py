"""A registration with everything that it needs, for tests of how processes are offered clients, join and leave."""

from __future__ import annotations

from array import array
from typing import Any

from bus_harness import bus_on
from coordinator_cases import ALGORITHM, PROOF, cohort_of, new_coordinator, report

from seedbus.agents import messages
from seedbus.agents.admission import bound
from seedbus.agents.messages import Join, Span
from seedbus.agents.observer import NullObserver
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.registration import Registration
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


class RegistrationHarness:
    """A registration with a coordinator, a bus and an observer.

    Attributes:
        sent_plans: for each time that a process joined or left, (client, round) of the plans to send because of it.
    """

    def __init__(
        self,
        clients: int = 6,
        *,
        processes: int = 3,
        is_virtual: bool = True,
        proofs: dict[str, bytes] = PROOF,
    ) -> None:
        clock = VirtualClock() if is_virtual else WallClock()
        bus = bus_on(clock, MemoryTransport())
        self.ledger = bus.ledger
        self.observer = RecordingObserver()
        self.coordinator = new_coordinator(
            Participation(clients=clients), proofs=proofs, is_virtual=is_virtual, observer=self.observer
        )
        self.sent_plans: list[list[tuple[int, int]]] = []
        self.registration = Registration(
            bus,
            self.coordinator,
            self.observer,
            scenario=b"the scenario",
            processes=processes,
            on_change=lambda clients: self.sent_plans.append(
                [(plan.client, plan.round) for plan, _ in self.coordinator.take_sent()]
            ),
        )

    def offer(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer:
        offer = self.registration.greet(request, rights)
        assert isinstance(offer, Offer), offer
        return offer

    def decline(self, request: HostRequest, rights: Rights = OPERATOR) -> Declined:
        answer = self.registration.greet(request, rights)
        assert isinstance(answer, Declined)
        return answer

    def join(self, host: int, *spans: Span, **proofs: bytes) -> tuple[list[Envelope], bool]:
        """Let a host send a JOIN; return the answers to it, and whether the host is a member now."""
        admitted = self.registration.admit(host, join_frame(host, *spans, **proofs))
        assert not isinstance(admitted, Declined), admitted
        return [decode(frame) for frame in admitted[0]], admitted[1]

    def join_frame(self, offer: Offer, *spans: Span, **proofs: bytes) -> bytes:
        """Return a JOIN whose proofs are bound to an offer."""
        return join_frame(offer.host, *spans, **bound(PROOF | proofs, offer.nonce))

    def register(self, request: HostRequest, version: int = 0, *, rights: Rights = OPERATOR) -> Offer:
        """Let a process ask for clients and join with all that it is offered, each of them at `version`."""
        offer = self.offer(request, rights)
        spans = [Span(first, last, version) for first, last in offer.spans]
        admitted = self.registration.admit(offer.host, self.join_frame(offer, *spans))
        assert not isinstance(admitted, Declined) and admitted[1], admitted
        return offer

    def welcomed_versions(self, host: int, *spans: Span) -> tuple[list[int], int]:
        """Let a host join; return the versions that the WELCOME names, and how many commits it holds."""
        (welcome,), _ = self.join(host, *spans)
        assert (welcome.kind, welcome.client, welcome.base) == (Kind.WELCOME, host, self.coordinator.version)
        stated = [span.version for span in spans for _ in range(span.first, span.last + 1)]
        held = [0] * (len(welcome.body[0]) // 4 - len(stated)) + stated  # it has an evaluator, or has not
        versions, log, *_ = messages.unpack_welcome(ALGORITHM, welcome, held)
        assert [commit.version for commit in log] == list(range(1, len(log) + 1))
        return versions, len(log)

    def close_four_rounds(self) -> None:
        for _ in range(4):
            for client in cohort_of(self.coordinator):
                self.coordinator.reported(report(self.coordinator, client))
            self.coordinator.close_round()

    @property
    def rows(self) -> list[tuple[str, int, int, int, str]]:
        """Return (kind, sender, recipient, bytes, fate) of the messages since the last call."""
        numbers = array("q", self.ledger.take_new())
        rows = [Row(*numbers[start : start + len(COLUMNS)]) for start in range(0, len(numbers), len(COLUMNS))]
        sizes = [row.header_bytes + row.payload_bytes for row in rows]
        return [
            (Kind(row.kind).name, row.sender, row.recipient, size, Fate(row.fate).name)
            for row, size in zip(rows, sizes, strict=True)
        ]


class RecordingObserver(NullObserver):
    """Records the reasons of refusals, and the events with their facts, oldest first."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def refused(self, refusal: Any) -> None:
        self.refusals.append(refusal.reason)

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))


def join_frame(host: int, *spans: Span, **proofs: bytes) -> bytes:
    return encode(Join(host, spans, **(PROOF | proofs)).pack())[0]
