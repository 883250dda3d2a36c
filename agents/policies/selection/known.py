"""What the server knows of clients from their earlier reports, without extra messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Known:
    """What selection may use.

    Attributes:
        reports: client → how many of its reports have counted.
        worth: client → the norm of the values of its latest report.
    """

    reports: Counter[int] = field(default_factory=Counter)
    worth: dict[int, float] = field(default_factory=dict)

    def pack(self) -> list[Any]:
        """Return what a checkpoint stores: [client, reports, worth] of each, ascending."""
        return [[client, count, self.worth[client]] for client, count in sorted(self.reports.items())]

    def unpack(self, packed: list[Any]) -> None:
        """Go on from what `pack` returned."""
        self.reports = Counter({client: count for client, count, _ in packed})
        self.worth = {client: worth for client, _, worth in packed}
