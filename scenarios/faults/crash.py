"""Clients that vanish without a word, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seedbus.agents.population import Returns
from seedbus.bus import Luck
from seedbus.scenarios.faults.presence import Toggling
from seedbus.scenarios.faults.selector import Clients


class Crash(Clients):
    """The selected clients are off from at_round for for_rounds; the server is not told, and asks them in vain."""

    fault: Literal["crash"] = "crash"
    returns: Returns = Field(default="with-state", description="with what a client comes back")

    @property
    def is_announced(self) -> bool:
        return False

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def schedule(self, clients: int, luck: Luck) -> Toggling:
        struck = self.chosen(clients, luck) if self.probability else ()
        return Toggling((), ((client, self._changes(client, luck)) for client in struck), by_rounds=True)

    def _changes(self, client: int, luck: Luck) -> Iterator[int]:
        number, begins = 0, self.at_round
        while True:
            if luck.draw("crash", client, number) < self.probability:
                yield begins
                if self.for_rounds is None:
                    return
                yield begins + self.for_rounds
            if self.every_rounds is None:
                return
            number, begins = number + 1, begins + self.every_rounds
