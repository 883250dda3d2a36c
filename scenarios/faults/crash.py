"""Clients that crash without notice and return."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from seedbus.agents.availability import Returns
from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector
from seedbus.scenarios.faults.intermittent import ToggleSchedule

_LAST_ROUND = 2**32


class Crash(RoundSelector):
    """Crash the selected clients from at_round for for_rounds. The server is not told and keeps asking them."""

    keyed_as = f"Crash {ROUND_KEY} returns"

    fault: Literal["crash"] = "crash"
    returns: Returns = Field(default="with-state", description="what a client still has when it returns")

    @model_validator(mode="after")
    def _check_returns(self) -> Crash:
        if self.returns != "with-state" and self.for_rounds is None:
            raise ValueError(f"returns ({self.returns}) needs for_rounds, after which clients return")
        return self

    @property
    def is_announced(self) -> bool:
        return False

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        crashing = self.chosen(clients, random) if self.probability else ()
        return ToggleSchedule((), ((client, self._changes(client, random)) for client in crashing), by_rounds=True)

    def _changes(self, client: int, random: KeyedRandom) -> Iterator[int]:
        """Yield the rounds at which the client crashes, returns, crashes, …"""
        period = -1
        while True:
            period += 1 + self._skipped_periods(random.draw("crash", client, period))
            first_round = self.at_round + period * (self.every_rounds or 0)
            if (self.every_rounds is None and period) or first_round >= _LAST_ROUND:
                return
            yield first_round
            if self.for_rounds is None:
                return
            yield first_round + self.for_rounds

    def _skipped_periods(self, draw: float) -> int:
        """Number of periods without a crash before the next one: geometric, so that one draw covers them all."""
        if self.probability == 1:
            return 0
        return int(min(math.log(draw) / math.log1p(-self.probability), _LAST_ROUND))
