"""Messages that arrive late."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Duration, Passage, Verdict
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.base import MESSAGE_KEY, MessageSelector


class Delay(MessageSelector):
    """Delay the selected messages, in addition to the latency of their link. A distribution makes jitter."""

    keyed_as = f"Delay {MESSAGE_KEY} by"

    fault: Literal["delay"] = "delay"
    by: Duration = Field(description="seconds of delay, drawn for every message")

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(delay_ns=round_ns(self.by.quantile(passage.draw("by"))))
