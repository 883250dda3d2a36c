"""Messages that others overtake."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.selector import Selector


class Reorder(Selector):
    """Hold the selected messages back at random within a window, so that what is sent later may arrive before."""

    fault: Literal["reorder"] = "reorder"
    window_s: float = Field(gt=0, le=10**6, description="at most so many seconds, evenly drawn for every message")

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(delay_ns=round_ns(self.window_s * passage.draw("hold")))
