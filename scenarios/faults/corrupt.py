"""Messages whose bits flip in transit.

Real links use checksums, and the receiver discards a message whose checksum does not match. This is modelled without a
checksum in the envelope: the hub knows which frames it has damaged, so every damaged frame is detected.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.base import MESSAGE_KEY, MessageSelector


class Corrupt(MessageSelector):
    """Flip bits of the selected messages. The receiver detects the damage by a checksum and discards the message."""

    keyed_as = f"Corrupt {MESSAGE_KEY} bits"

    fault: Literal["corrupt"] = "corrupt"
    bits: int = Field(
        default=1, ge=1, le=1000, description="number of flips, at drawn positions; two flips of one bit cancel"
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(flips=tuple(passage.draw("bit", number) for number in range(self.bits)))
