"""Network partitions: clients without a connection to the server for some time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.base import TrafficSelector


class Partition(TrafficSelector):
    """Cut the connection between the selected clients and the server, in both directions or one, for a time.

    Messages in flight at the start are lost too: the connection must be open both on sending and on arrival.
    """

    fault: Literal["partition"] = "partition"
    probability: float = Field(
        default=1.0, ge=0, le=1, description="chance that a selected client is cut off, drawn once"
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        is_cut = self.selects(passage) and passage.random.draw("strike", passage.client) < self.probability
        return Verdict(drop=True) if is_cut else PASS
