"""The instruments of a server: what it knows of itself, as one reading.

They are read on the server's loop, between two callbacks, and cost nothing while nobody reads them but a note of each
report. The ledger's totals are read when a round closes: while a round is made durable, another thread may write the
ledger's files.
"""

from __future__ import annotations

from collections.abc import Mapping

from seedbus.agents.monitor import Reading
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.registration import Registration
from seedbus.bus import EVALUATOR, Bus, Envelope, Kind
from seedbus.bus.mailbox import Mailbox

_SIZES = ("header_bytes", "payload_bytes", "framing_bytes")


class Instruments:
    """What a server knows of itself.

    Args:
        bus: counts messages and bytes.
        mailbox: the server's.
        coordinator: knows rounds, members and refusals.
        registration: knows processes.
    """

    def __init__(self, bus: Bus, mailbox: Mailbox, coordinator: Coordinator, registration: Registration) -> None:
        self._bus = bus
        self._mailbox = mailbox
        self._coordinator = coordinator
        self._registration = registration
        self._answered_ns: dict[int, int] = {}  # client → when it answered, in the open round
        self._slowest: tuple[int, float] | None = None
        self._traffic: Mapping[tuple[str, str], tuple[int, int]] = {}

    def reported(self, report: Envelope, now_ns: int) -> None:
        """A report has come; it counts, unless it was refused."""
        now = self._coordinator.rounds.current
        if now is not None and report.round == now.plan.round and report.client in now.reports:
            self._answered_ns.setdefault(report.client, now_ns)

    def closed(self, opened_ns: int) -> None:
        """A round that opened at this time was closed."""
        self._slowest = None
        if self._answered_ns:
            client = max(self._answered_ns, key=self._answered_ns.__getitem__)
            self._slowest = client, (self._answered_ns[client] - opened_ns) / 1e9
        self._answered_ns = {}
        totals = self._bus.ledger.totals
        self._traffic = {
            (kind.name.lower(), _direction(kind)): (count, sum(totals[kind, size] for size in _SIZES))
            for kind in Kind
            if (count := totals[kind, "messages"])
        }

    def read(self) -> Reading:
        """Return what the instruments show now."""
        coordinator, registration = self._coordinator, self._registration
        clients = coordinator.participation.clients
        return Reading(
            rounds=coordinator.round,
            last_round=coordinator.stop.rounds,
            version=coordinator.version,
            clock_s=self._bus.clock.now_ns / 1e9,
            clients=clients,
            hosted=clients - len(registration.missing) + (EVALUATOR in registration.missing),
            joined=len(coordinator.positions.members),
            processes=len(registration.hosts),
            can_go_on=registration.can_go_on,
            awaited=None if coordinator.rounds.current is None else len(coordinator.missing),
            evaluations=coordinator.progress.awaited,
            replicas=coordinator.positions.by_version,
            queues={"mailbox": len(self._mailbox)} | self._bus.queues,
            traffic=self._traffic,
            refusals=dict(coordinator.refusals.reasons),
            slowest=self._slowest,
        )


def _direction(kind: Kind) -> str:
    if kind is Kind.LINK:
        return "both"
    return "up" if kind.is_upward else "down"
