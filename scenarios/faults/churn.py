"""Clients that repeatedly leave and return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seedbus.bus import Duration, KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.intermittent import INTERMITTENT_KEY, IntermittentClients, ToggleSchedule

_SHORTEST_NS = 10**6  # durations of zero would give infinitely many changes at one instant


class Churn(IntermittentClients):
    """Each client alternates between being available and being away, for random times in simulated seconds."""

    keyed_as = f"Churn {INTERMITTENT_KEY} stays away initially"

    fault: Literal["churn"] = "churn"
    stays: Duration = Field(description="seconds for which a client is available; drawn for each period")
    away: Duration = Field(description="seconds for which a client is away; drawn for each period")
    initially: float = Field(
        default=1.0, ge=0, le=1, description="fraction of the selected clients that is available at the start"
    )

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        chosen = self.chosen(clients, random)
        absent = {client for client in chosen if random.draw("initially", client) >= self.initially}
        changes = ((client, self._changes(client, client in absent, random)) for client in chosen)
        return ToggleSchedule(absent, changes, by_rounds=False)

    def _changes(self, client: int, is_away: bool, random: KeyedRandom) -> Iterator[int]:
        """Yield the nanoseconds at which the client leaves or returns, without end."""
        number = 0
        now_ns = 0
        while True:
            duration = self.away if is_away else self.stays
            now_ns += max(_SHORTEST_NS, round_ns(duration.quantile(random.draw("lasts", client, number))))
            yield now_ns
            number += 1
            is_away = not is_away
