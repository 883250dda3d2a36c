"""Messages that arrive more than once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.base import MESSAGE_KEY, MessageSelector


class Duplicate(MessageSelector):
    """Send the selected messages more than once. Each copy has its own latency and bytes, and faults of its own."""

    keyed_as = f"Duplicate {MESSAGE_KEY} copies"

    fault: Literal["duplicate"] = "duplicate"
    copies: int = Field(default=1, ge=1, le=1000, description="number of additional copies of a message")

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(copies=self.copies) if self.strikes(passage) else PASS
