"""What a server knows of clients beside who is a member; free of extra messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Known:
    """reports: how many reports of a client have counted; worth: the norm of its latest one's values."""

    reports: Counter[int] = field(default_factory=Counter)
    worth: dict[int, float] = field(default_factory=dict)

    def pack(self) -> list[Any]:
        return [[client, count, self.worth[client]] for client, count in sorted(self.reports.items())]

    def unpack(self, packed: list[Any]) -> None:
        self.reports = Counter({client: count for client, count, _ in packed})
        self.worth = {client: worth for client, _, worth in packed}
