"""Who takes part in a round, and when a round is over: a policy shared by every algorithm.

A round asks a cohort (`selection` says whom). It is over when everybody asked has answered, when as many reports as
were wanted have come (over-selection, buffer), or at its deadline; with fewer than `quorum` usable reports it makes no
commit. What comes later is discarded, or counts in a later commit (`late`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.power_of_choice import PowerOfChoice
from seedbus.agents.policies.selection.rarest import Rarest
from seedbus.agents.policies.selection.uniform import Uniform

Selection = Annotated[Uniform | Rarest | PowerOfChoice, Field(discriminator="policy")]
LONGEST_S = 10**6


class Late(BaseModel):
    """A report that misses its round counts in a later commit, as a term of its own: its seed, its scalars, its weight.

    Its weight is s(τ)/|C_r|, with τ the commits made since it started and s(τ) = (1 + τ)^−discount (Nguyen et al.,
    "Federated Learning with Buffered Asynchronous Aggregation", arXiv:2106.06639, use ½).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    discount: float = Field(default=0.5, ge=0, le=10, description="a in s(τ) = (1 + τ)^−a; 0: all count alike")
    max_staleness: int = Field(default=10, ge=1, le=10_000, description="rounds after which a report is given up")

    def weight(self, staleness: int) -> float:
        """s(τ)."""
        return math.pow(1 + staleness, -self.discount)


class Deadline(BaseModel):
    """A deadline that learns: a quantile of the latest answers' times, times a factor.

    After a round without a commit it learns anew: one that is too short for anybody would hear of nobody else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    quantile: float = Field(default=0.9, gt=0, le=1, description="of the times that the latest answers took")
    factor: float = Field(default=1.5, gt=0, le=1000, description="how much longer than that a round may take")
    window: int = Field(default=100, ge=1, le=10_000, description="so many answers are looked at")

    def after_ns(self, times_ns: Sequence[int]) -> int:
        """Nanoseconds that a round may take, from the times of at least one answer."""
        rank = _up(self.quantile * len(times_ns))
        return round(sorted(times_ns)[rank - 1] * self.factor)


class Participation(BaseModel):
    """How many clients there are, whom each round asks, and when it is over."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clients: int = Field(ge=1, lt=2**24, description="N, all clients")
    cohort: int | None = Field(default=None, ge=1, description="m, clients wanted each round; default: all")
    fraction: float | None = Field(default=None, gt=0, le=1, description="m as a fraction of N, instead of cohort")
    over_selection: float = Field(
        default=1.0,
        ge=1,
        le=100,
        description="ask so many times m clients; the round closes with m reports (Bonawitz et al. 2019: 1.3)",
    )
    selection: Selection = Field(default=Uniform(), description="whom a round asks")
    quorum: int = Field(default=1, ge=1, description="usable reports that a commit needs")
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_S,
        description="simulated seconds after which a round closes with what it has",
    )
    deadline: Deadline | None = Field(
        default=None, description="a deadline that learns from what was seen; deadline_s is its upper limit"
    )
    late: Late | None = Field(default=None, description="what becomes of late reports; none: they are discarded")
    buffer: int | None = Field(
        default=None,
        ge=1,
        description="asynchronous rounds (FedBuff): a commit as soon as so many reports have come, fresh or late; "
        "after it those at work are made up to m again; at work is who has not answered, until the deadline",
    )

    @model_validator(mode="after")
    def _sound(self) -> Participation:
        if self.cohort is not None and self.fraction is not None:
            raise ValueError("give cohort or fraction, not both")
        if self.size > self.clients:
            raise ValueError(f"cohort ({self.size}) is larger than clients ({self.clients})")
        if self.quorum > self.size:
            raise ValueError(f"quorum ({self.quorum}) is larger than the cohort ({self.size})")
        if self.deadline is not None and self.deadline_s is None:
            raise ValueError("deadline learns from answers; set deadline_s too, for rounds in which too few come")
        if self.buffer is not None and self.late is None:
            raise ValueError("buffer needs late: in asynchronous rounds most reports start from an earlier version")
        if self.buffer is not None and not self.quorum <= self.buffer <= self.size:
            raise ValueError(f"buffer ({self.buffer}) is not between quorum ({self.quorum}) and cohort ({self.size})")
        if self.buffer is not None and self.over_selection > 1:
            raise ValueError("give over_selection or buffer, not both")
        return self

    @property
    def size(self) -> int:
        """m, the size of a cohort when all N clients are members."""
        if self.fraction is not None:
            return max(1, round(self.fraction * self.clients))
        return self.clients if self.cohort is None else self.cohort

    @property
    def asked(self) -> int:
        """How many clients a round asks when all N are members."""
        return min(self.clients, _up(self.size * self.over_selection))

    @property
    def staleness(self) -> int:
        """For how many rounds after its own a report may still count."""
        return self.late.max_staleness if self.late is not None else 0

    def draw(self, members: Sequence[int], known: Known, seed: int, round: int, busy: int = 0) -> list[int]:
        """The cohort of `round`, ascending. members: in ascending order; busy: how many are at work already."""
        count = min(self.asked - busy, len(members))
        return self.selection.choose(members, max(0, count), known, seed, round)


def _up(product: float) -> int:
    """The whole number at or above a product of decimal fractions, at least 1: 100 × 1.1 is 110, not 111."""
    return max(1, math.ceil(round(product, 6)))
