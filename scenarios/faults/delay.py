"""Messages that arrive late."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Duration, Passage, Verdict
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.selector import Selector


class Delay(Selector):
    """Hold the selected messages back, on top of their link's latency; by a distribution, that is jitter."""

    fault: Literal["delay"] = "delay"
    by: Duration = Field(description="how long, in seconds; drawn for every message")

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(delay_ns=round_ns(self.by.quantile(passage.draw("by"))))
