"""The settings of secure aggregation, and the graph of a round: which clients share masks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from seedbus.agents.policies.participation import Participation
from seedbus.bus.keyed_random import bits
from seedbus.capabilities import Fact, Gives, Needs, RulesOut, Statement
from seedbus.settings import Settings

MOST_NEIGHBOURS = 512
"""What a client is sent and sends of each of them fits into messages of 64 KiB."""
LARGEST = 2**31 - 1
"""What a sum may be in magnitude, to be told from its value modulo 2³²."""


class SecureAggregation(Settings):
    """Clients mask their reports, so that the server learns only the sum (docs/secure-aggregation.md)."""

    gives = ((Fact.HIDDEN, ""),)

    threshold: float = Field(
        default=2 / 3,
        ge=0.5,
        lt=1,
        description="more than this fraction of a client and its neighbours have to stay to the end of a round, which "
        "otherwise makes no commit; a higher one resists more clients that collude with the server, and survives fewer "
        "dropouts; below 2/3 a server needs fewer of them",
    )
    neighbours: Annotated[int, Field(ge=2, le=MOST_NEIGHBOURS, multiple_of=2)] | Literal["all"] = Field(
        default="all",
        description="with how many clients of the cohort each one masks: all (Bonawitz et al. 2017), or an even "
        "number of them, drawn for each round (Bell et al. 2020)",
    )

    @model_validator(mode="after")
    def _installed(self) -> Self:
        if find_spec("cryptography") is None:
            raise ValueError("secure_aggregation needs the package cryptography: pip install 'seedbus[secure]'")
        return self

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.SERVER, "adds up what a server is sent")
        yield Needs(Fact.ADDS_UP, "adds up whole numbers")
        yield Needs(Fact.ROUNDS, "hides reports in the sum of a round")
        yield Needs(Fact.IN_TIME, "hides reports in the sum of one round")
        yield Needs(Fact.OPEN_COHORTS, "unmasks no sum of fewer than two reports, which shows that so few came")
        yield RulesOut(Fact.SINGLE_REPORTS, "shows the server their sum only")
        yield Gives(Fact.HIDDEN)

    def check_beside(self, scenario: Any) -> None:
        who: Participation = scenario.participation
        if who.quorum < 2:
            raise ValueError("participation.quorum is 1; with secure_aggregation at least 2: a sum of one is a report")
        terms = Terms.of(self, who)
        if terms.is_complete and who.wanted < (needed := terms.shares_needed(0)):
            raise ValueError(
                f"participation.over_selection: a round asks {who.asked} clients and closes with {who.wanted} "
                f"reports, and secure_aggregation.threshold {self.threshold:.3g} unmasks no sum of fewer than "
                f"{needed}; expected less of either"
            )
        if self.neighbours == "all" and who.most_asked > MOST_NEIGHBOURS + 1:
            raise ValueError(
                f"secure_aggregation.neighbours: all are {who.most_asked - 1} in this cohort; at most "
                f"{MOST_NEIGHBOURS} are accepted, as an even number"
            )

    def shares_needed(self, neighbours: int) -> int:
        """Return t, how many of a client and its neighbours have to give a share of its mask."""
        fraction = Fraction(self.threshold).limit_denominator(1_000_000)  # 0.58 · 50 is 29, as 2/3 · 3 is 2
        return min(math.floor(fraction * (neighbours + 1)), neighbours) + 1  # rounded, the fraction may be 1

    def graph(self, cohort: Sequence[int], seed: int, round: int) -> dict[int, list[int]]:
        """Return the neighbours of each client of a cohort, ascending.

        With a number k of neighbours, clients stand in a circle in an order that is drawn for the round, and each has
        the k/2 nearest to both sides (Bell et al. 2020, Algorithm 1: a Harary graph with random nodes).
        """
        if self.neighbours == "all" or self.neighbours >= len(cohort) - 1:
            return {client: [other for other in cohort if other != client] for client in cohort}
        circle = sorted(cohort, key=lambda client: (bits(seed, "secure-aggregation", round, client), client))
        steps = [step for step in range(-self.neighbours // 2, self.neighbours // 2 + 1) if step]
        count = len(circle)
        return {client: sorted(circle[(at + step) % count] for step in steps) for at, client in enumerate(circle)}


@dataclass(frozen=True, slots=True)
class Terms:
    """What follows from a scenario for every round, whatever a server says of it.

    Attributes:
        settings: the scenario's.
        fewest: how many clients hold shares of a client's secrets, itself included, if none is missing in the cohort
            that the scenario asks for. Where cohorts may have any size, the cohort counts as large as a quorum.
        most: how many hold them at most.
        asked: how many clients a round asks at most.
        quorum: how many reports a commit needs.
    """

    settings: SecureAggregation
    fewest: int
    most: int
    asked: int
    quorum: int

    @staticmethod
    def of(settings: SecureAggregation, participation: Participation) -> Terms:
        """Return the terms of a scenario with these settings and this participation."""
        most = participation.most_asked
        fewest = most if participation.selection.is_fixed_size else participation.quorum
        widest = most if settings.neighbours == "all" else settings.neighbours + 1
        return Terms(settings, min(fewest, widest), min(most, widest), most, participation.quorum)

    @property
    def largest(self) -> int:
        """What a number of a report may be in magnitude, so that a cohort's sum is told from its value modulo 2³²."""
        return LARGEST // self.asked

    @property
    def is_complete(self) -> bool:
        """Whether all clients of a cohort are neighbours, so that all are told of the same clients."""
        return self.most == self.asked

    def shares_needed(self, neighbours: int) -> int:
        """Return t for a client with so many neighbours; no server lowers it by naming fewer than the scenario has."""
        return self.settings.shares_needed(max(neighbours + 1, self.fewest) - 1)
