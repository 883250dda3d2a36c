"""All clients with the same probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection, drawn


class Uniform(Selection):
    """Uniformly, without replacement."""

    is_uniform: ClassVar[bool] = True

    policy: Literal["uniform"] = "uniform"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending."""
        return drawn(members, count, seed, round)
