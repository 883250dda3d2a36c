"""All clients with the same probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection
from seedbus.bus.keyed_random import sample


class Uniform(Selection):
    """Uniformly, without replacement."""

    policy: Literal["uniform"] = "uniform"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending."""
        return [members[place] for place in sample(len(members), count, seed, "cohort", round)]
