"""The settings of differential privacy, and the noise that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from seedbus.capabilities import Fact, Gives, Needs, RulesOut, Statement
from seedbus.settings import Settings

LARGEST = 2**31 - 1
LEAST_DELTA = 1e-12
"""With secret cohorts of a fixed size ε is known for this δ and larger ones: float64 adds up probabilities to 1e−15."""
FINEST = 64
"""σ² of a draw is at least this, in units²: what makes it discrete is then below the precision of float64."""
TAIL = 14
"""A draw beyond so many σ has a probability below 2⁻¹⁴⁰; sums have room for it."""


class Privacy(Settings):
    """Client-level differential privacy of what the commits show (docs/privacy.md)."""

    gives = ((Fact.NOISE, ""),)

    mechanism: Literal["central", "distributed"] = Field(
        default="central",
        description="where the noise is added: central, by the server, to each round's sum; distributed, by each "
        "client, a share of it, to its own report, which secure_aggregation hides",
    )
    clip: int = Field(
        ge=1,
        lt=2**31,
        description="C, the largest L2 norm of a client's report, K·P or d whole numbers, in units of 2^-s (unit_bits)",
    )
    noise_multiplier: Annotated[float, Field(gt=0, le=1e6)] = Field(
        description="σ of the noise in a round's sum, as a multiple of clip"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="δ, for which ε is stated; below 1/clients"
    )
    cohorts: Literal["public", "secret"] = Field(
        default="public",
        description="public: the cohorts are known, and ε is that of the client that reported most often; secret: they "
        "are not known, and ε has amplification by sampling, over all rounds (selection: uniform or poisson)",
    )
    noise: Literal["seeded", "system"] | None = Field(
        default=None,
        description="bits of the noise: seeded, by the scenario's seed, to repeat a run; system, by the operating "
        "system, as privacy needs; default: seeded in simulated time, system in real time",
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if find_spec("dp_accounting") is None:
            raise ValueError("privacy needs the package dp-accounting: pip install 'seedbus[privacy]'")
        if self.cohorts == "secret" and self.mechanism == "distributed":
            raise ValueError(
                "cohorts: secret is for mechanism: central: distributed protects from the server, which draws the "
                "cohorts; public is accepted"
            )
        if self.cohorts == "secret" and self.noise == "system":
            raise ValueError(
                "noise: system hides reports from those who have the scenario's seed, and that seed draws the cohorts, "
                "which are not secret then; with cohorts: secret seeded is accepted"
            )
        return self

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.SERVER, "accounts for what a server commits")
        yield Needs(Fact.ADDS_UP, "clips and adds up whole numbers")
        yield Needs(Fact.FORGETFUL, "clips reports, of which clients would remember more")
        yield Needs(Fact.ROUNDS, "accounts for the sum of a round")
        yield Needs(Fact.IN_TIME, "has noise for the sum of one round")
        yield RulesOut(Fact.SINGLE_REPORTS, "has noise for their sum only")
        yield RulesOut(Fact.CLEAN, "does not count that in ε")
        yield Gives(Fact.NOISE)
        if self.mechanism == "distributed":
            yield Needs(Fact.HIDDEN, "gives a report a share of the noise only, so none may see it", "mechanism")
        if self.cohorts == "secret":
            yield Needs(Fact.UNIFORM, "accounts for uniform samples of the clients", "cohorts")
            yield Needs(Fact.ALL_PRESENT, "samples from all clients", "cohorts")
            yield RulesOut(Fact.OPEN_COHORTS, "has ε count on it that nobody knows whom rounds ask", "cohorts")

    def check_beside(self, scenario: Any) -> None:
        who, quorum = scenario.participation, scenario.participation.quorum
        if self.delta >= 1 / who.clients:
            raise ValueError(
                f"privacy.delta is {self.delta:g}: of {who.clients:,} clients it lets one be exposed; below "
                f"{1 / who.clients:g} is accepted"
            )
        if self.cohorts == "secret":
            self._check_secret(scenario)
        variance = self.variance(quorum)
        if variance < FINEST:
            raise ValueError(
                f"privacy.clip is {self.clip} and noise_multiplier {self.noise_multiplier:g}: noise of σ = "
                f"{variance**0.5:.3g} units is too coarse; at least {FINEST**0.5:g} is accepted (a larger unit_bits "
                "makes units smaller)"
            )
        largest = self.largest_sum(quorum, who.most_asked)
        if largest > LARGEST:
            raise ValueError(
                f"privacy.clip is {self.clip}: a sum of {who.most_asked} reports with noise may reach {largest:.3g} "
                f"units; at most {LARGEST} is accepted (a smaller unit_bits makes units larger)"
            )

    def _check_secret(self, scenario: Any) -> None:
        """Raise `ValueError` where what others see depends on whether a client is in a secret cohort."""
        who = scenario.participation
        if who.selection.is_fixed_size and self.delta < LEAST_DELTA:
            raise ValueError(
                f"privacy.delta is {self.delta:g}: with privacy.cohorts: secret and selection: uniform at least "
                f"{LEAST_DELTA:g} is accepted"
            )
        for field in ("shared_up_mbps", "shared_down_mbps"):
            if who.deadline_s is not None and getattr(scenario.network, field) is not None:
                raise ValueError(
                    f"network.{field}: who is in time for deadline_s would depend on who else was asked; with "
                    "privacy.cohorts: secret leave it or deadline_s out, or use cohorts: public"
                )
        if who.quorum > 1:
            raise ValueError(
                f"participation.quorum is {who.quorum}: a round without a commit would show how few of its cohort "
                "reported; with privacy.cohorts: secret 1 is accepted, and a round without reports commits noise"
            )

    def is_seeded(self, *, is_virtual: bool) -> bool:
        """Return whether the scenario's seed keys the noise, in a run of simulated (virtual) or of real time."""
        return self.noise_of(is_virtual=is_virtual) == "seeded"

    def noise_of(self, *, is_virtual: bool) -> Literal["seeded", "system"]:
        """Return where the random bits come from, in a run of simulated (virtual) or of real time."""
        return self.noise or ("seeded" if is_virtual else "system")

    def variance(self, quorum: int) -> int:
        """Return σ² of one draw, in units², rounded up: of a round's noise, or of a client's share of it.

        The shares of `quorum` clients, the fewest that a commit has, amount to the whole noise.
        """
        whole = (Fraction(self.noise_multiplier) * self.clip) ** 2
        return math.ceil(whole / quorum if self.mechanism == "distributed" else whole)

    def share(self, quorum: int, reports: int) -> float:
        """Return what a commit of so many reports costs each of their clients, in commits of `quorum` reports."""
        return quorum / reports if self.mechanism == "distributed" else 1.0

    def sigma(self, quorum: int) -> float:
        """Return σ of one draw, in units."""
        return math.sqrt(self.variance(quorum))

    def largest_sum(self, quorum: int, reporters: int) -> float:
        """Return what a sum of reports with its noise does not exceed in magnitude, but with probability 2⁻¹⁴⁰."""
        draws = reporters if self.mechanism == "distributed" else 1
        return reporters * self.clip + draws * TAIL * self.sigma(quorum)
