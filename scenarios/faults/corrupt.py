"""Messages whose bits flip on their way.

Real links carry checksums, and what fails one is thrown away where it arrives. So it is here: the hub knows which
frame it has damaged, and stands for a checksum that never misses. An envelope has none of its own, and needs none.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.selector import Selector


class Corrupt(Selector):
    """Flip bits of the selected messages; whoever gets one finds it damaged by its checksum and throws it away."""

    fault: Literal["corrupt"] = "corrupt"
    bits: int = Field(
        default=1, ge=1, le=1000, description="how many, at drawn places; a bit that flips twice is as it was"
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        if not self.strikes(passage):
            return PASS
        return Verdict(flips=tuple(passage.draw("bit", number) for number in range(self.bits)))
