"""Clients that vanish without a word, and come back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seedbus.agents.availability import Returns
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.presence import Toggling
from seedbus.scenarios.faults.selector import Clients

_LAST_ROUND = 2**32


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

    def schedule(self, clients: int, random: KeyedRandom) -> Toggling:
        struck = self.chosen(clients, random) if self.probability else ()
        return Toggling((), ((client, self._changes(client, random)) for client in struck), by_rounds=True)

    def _changes(self, client: int, random: KeyedRandom) -> Iterator[int]:
        number = -1
        while True:
            number += 1 + self._spared(random.draw("crash", client, number))
            begins = self.at_round + number * (self.every_rounds or 0)
            if (self.every_rounds is None and number) or begins >= _LAST_ROUND:
                return
            yield begins
            if self.for_rounds is None:
                return
            yield begins + self.for_rounds

    def _spared(self, draw: float) -> int:
        """How many periods pass until one strikes: geometric, so one draw does for all of them."""
        if self.probability == 1:
            return 0
        return int(min(math.log(draw) / math.log1p(-self.probability), _LAST_ROUND))
