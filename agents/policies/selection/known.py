"""What the server knows of clients from their earlier reports, without extra messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from seedbus.bus.records import Count, Number
from seedbus.bus.transport import Client

KnownState = tuple[list[tuple[Client, Count, Number, Count, Count]], list[Number]]
"""What a checkpoint stores: (client, reports, worth, answer_ns, latest), ascending, and the policy's memory."""


@dataclass(slots=True)
class Known:
    """What selection may use.

    Attributes:
        reports: client → how many of its reports have counted.
        worth: client → the norm of the values of its latest report.
        answer_ns: client → how long that report took, in nanoseconds from the sending of the plans on.
        latest: client → the round that was open when it came.
        memory: numbers that the policy itself remembers: `choose` may put others in their place.
    """

    reports: Counter[int] = field(default_factory=Counter)
    worth: dict[int, float] = field(default_factory=dict)
    answer_ns: dict[int, int] = field(default_factory=dict)
    latest: dict[int, int] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)

    def add(self, client: int, worth: float, answer_ns: int, round: int) -> None:
        """Note a report that counts."""
        self.reports[client] += 1
        self.worth[client] = worth
        self.answer_ns[client] = answer_ns
        self.latest[client] = round

    def pack(self) -> KnownState:
        """Return what a checkpoint stores."""
        clients = [
            (client, count, self.worth[client], self.answer_ns[client], self.latest[client])
            for client, count in sorted(self.reports.items())
        ]
        return clients, list(self.memory)

    def unpack(self, state: KnownState) -> None:
        """Go on from what `pack` returned."""
        clients, memory = state
        self.reports = Counter({client: count for client, count, *_ in clients})
        self.worth = {client: worth for client, _, worth, *_ in clients}
        self.answer_ns = {client: answer_ns for client, *_, answer_ns, _ in clients}
        self.latest = {client: latest for client, *_, latest in clients}
        self.memory = list(memory)
