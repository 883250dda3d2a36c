"""The clients that have reported least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection, drawn
from seedbus.bus.keyed_random import uniform


class Rarest(Selection):
    """Of candidates drawn uniformly, those with the fewest reports that counted; ties are broken at random."""

    needs_known: ClassVar[bool] = True

    policy: Literal["rarest"] = "rarest"
    candidates: int = Field(default=3, ge=1, le=1000, description="candidates for every place in the cohort")

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending."""
        candidates = drawn(members, min(len(members), count * self.candidates), seed, round)
        candidates.sort(key=lambda client: (known.reports[client], uniform(seed, "rarest", round, client)))
        return sorted(candidates[:count])
