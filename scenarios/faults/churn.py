"""Clients that come and go all the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seedbus.bus import Duration, KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.presence import IntermittentClients, Toggling

_SHORTEST_NS = 10**6  # a draw of zero seconds, for ever, would never end


class Churn(IntermittentClients):
    """Each client stays for a while, is away for a while, and so on, in simulated time."""

    fault: Literal["churn"] = "churn"
    stays: Duration = Field(description="seconds that a client is there, drawn anew each time")
    away: Duration = Field(description="seconds that it is away, drawn anew each time")
    initially: float = Field(default=1.0, ge=0, le=1, description="share of these clients that is there at first")

    def schedule(self, clients: int, random: KeyedRandom) -> Toggling:
        chosen = self.chosen(clients, random)
        absent = {client for client in chosen if random.draw("initially", client) >= self.initially}
        changes = ((client, self._changes(client, client in absent, random)) for client in chosen)
        return Toggling(absent, changes, by_rounds=False)

    def _changes(self, client: int, is_away: bool, random: KeyedRandom) -> Iterator[int]:
        number, now_ns = 0, 0
        while True:
            lasts = self.away if is_away else self.stays
            now_ns += max(_SHORTEST_NS, round_ns(lasts.quantile(random.draw("lasts", client, number))))
            yield now_ns
            number, is_away = number + 1, not is_away
