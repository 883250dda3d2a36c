"""Messages that never arrive."""

from __future__ import annotations

from typing import Literal

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.base import MESSAGE_KEY, MessageSelector


class Drop(MessageSelector):
    """Lose the selected messages. The sender is not told, and the bytes count as sent."""

    keyed_as = f"Drop {MESSAGE_KEY}"

    fault: Literal["drop"] = "drop"

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=True) if self.strikes(passage) else PASS
