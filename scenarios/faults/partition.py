"""Clients that are cut off from the server for a while."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seedbus.bus import PASS, Passage, Verdict
from seedbus.scenarios.faults.selector import Exchange


class Partition(Exchange):
    """Cut the selected clients off from the server, both ways or one, until its rounds or its seconds are over.

    What is under way when it begins is cut too: a message must find the way open when it is sent and when it arrives.
    """

    fault: Literal["partition"] = "partition"
    probability: float = Field(
        default=1.0, ge=0, le=1, description="chance that a selected client is behind the cut, drawn once"
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def judge(self, passage: Passage) -> Verdict:
        is_cut = self.covers(passage) and passage.random.draw("strike", passage.client) < self.probability
        return Verdict(drop=True) if is_cut else PASS
