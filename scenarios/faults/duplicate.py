"""Messages that arrive more than once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.selector import Selector


class Duplicate(Selector):
    """Send the selected messages more than once; each copy has its own latency, its own bytes and its own fortune."""

    fault: Literal["duplicate"] = "duplicate"
    copies: int = Field(default=1, ge=1, le=1000, description="how many more times a struck message is sent")

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(copies=self.copies) if self.strikes(passage) else PASS
