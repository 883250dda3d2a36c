"""All clients with the same probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from seedbus.agents.policies.selection.known import Known
from seedbus.bus.keyed_random import sample


class Uniform(BaseModel):
    """Uniformly, without replacement."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_known: ClassVar[bool] = False

    policy: Literal["uniform"] = "uniform"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending."""
        return [members[place] for place in sample(len(members), count, seed, "cohort", round)]
