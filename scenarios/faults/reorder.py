"""Messages that arrive in another order than they were sent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.base import MESSAGE_KEY, MessageSelector


class Reorder(MessageSelector):
    """Delay the selected messages at random within a window, so that later messages may arrive before them."""

    keyed_as = f"Reorder {MESSAGE_KEY} window_s"

    fault: Literal["reorder"] = "reorder"
    window_s: float = Field(gt=0, le=10**6, description="longest delay in seconds; drawn uniformly for every message")

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(delay_ns=round_ns(self.window_s * passage.draw("hold")))
