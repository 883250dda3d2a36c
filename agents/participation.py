"""Who takes part in a round, and when a round is over: a policy shared by every algorithm.

A cohort is drawn uniformly without replacement, keyed by (seed, round), from the members in order: it depends on who
is a member and on nothing else. A round is over when everybody in the cohort has answered, or at its deadline; with
fewer than `quorum` usable reports it makes no commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus.draws import sample


class Participation(BaseModel):
    """How many clients there are, and how many each round asks."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clients: int = Field(ge=1, lt=2**24, description="N, all clients")
    cohort: int | None = Field(default=None, ge=1, description="m, clients asked each round; default: all")
    fraction: float | None = Field(default=None, gt=0, le=1, description="m as a fraction of N, instead of cohort")
    quorum: int = Field(default=1, ge=1, description="usable reports that a commit needs")
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=10**6,
        description="simulated seconds after which a round closes with what it has",
    )

    @model_validator(mode="after")
    def _sound(self) -> Participation:
        if self.cohort is not None and self.fraction is not None:
            raise ValueError("give cohort or fraction, not both")
        if self.size > self.clients:
            raise ValueError(f"cohort ({self.size}) is larger than clients ({self.clients})")
        if self.quorum > self.size:
            raise ValueError(f"quorum ({self.quorum}) is larger than the cohort ({self.size})")
        return self

    @property
    def size(self) -> int:
        """m, the size of a cohort when all N clients are members."""
        if self.fraction is not None:
            return max(1, round(self.fraction * self.clients))
        return self.clients if self.cohort is None else self.cohort

    def draw(self, members: Sequence[int], seed: int, round: int) -> list[int]:
        """The cohort of `round`, ascending. members: in ascending order."""
        count = min(self.size, len(members))
        return [members[place] for place in sample(len(members), count, seed, "cohort", round)]
