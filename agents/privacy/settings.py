"""The settings of differential privacy, and the noise that follows from them."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from seedbus.settings import Settings

FINEST = 64
"""σ² of a draw is at least this, in units²: what makes it discrete is then below the precision of float64."""
TAIL = 14
"""A draw beyond so many σ has a probability below 2⁻¹⁴⁰; sums have room for it."""


class Privacy(Settings):
    """Client-level differential privacy of what the commits show (docs/privacy.md)."""

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
        return self

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
