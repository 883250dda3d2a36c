"""Clients that drop out of a round, independently or in groups."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedbus.bus import PASS, KeyedRandom, Kind, Passage, Verdict
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector

_LOST = {"before-training": Kind.PLAN, "before-landing": Kind.REPORT}  # kind of message that is lost, by `when`


class Dropout(RoundSelector):
    """Let the selected clients drop out of a round: before training, after training, or after sending their report."""

    keyed_as = f"Dropout {ROUND_KEY} when rates groups"

    fault: Literal["dropout"] = "dropout"
    when: Literal["before-training", "after-training", "before-landing"] = Field(
        default="before-training",
        description="before-training: the plan is lost; after-training: the client trains and sends no report; "
        "before-landing: the report is sent and lost",
    )
    rates: tuple[float, float] | None = Field(
        default=None,
        description="range of probabilities, [low, high]: each client, or group, draws its own once; instead of "
        "probability",
    )
    groups: int | None = Field(
        default=None, ge=1, description="number of random groups of clients; each group drops out as a whole"
    )

    @model_validator(mode="after")
    def _check_rates(self) -> Dropout:
        if self.rates is not None:
            low, high = self.rates
            if not 0 <= low <= high <= 1:
                raise ValueError(f"rates ({low:g}, {high:g}) are not a lowest and a highest probability from 0 to 1")
            if self.probability != 1:
                raise ValueError("give probability or rates, not both")
        return self

    @property
    def may_lose(self) -> bool:
        return (self.probability if self.rates is None else self.rates[1]) > 0

    def judge(self, passage: Passage) -> Verdict:
        is_lost = not passage.arriving and passage.kind is _LOST.get(self.when)
        return Verdict(drop=True) if is_lost and self.drops_out(passage.client, passage.round, passage.random) else PASS

    def is_silent(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.when == "after-training" and self.drops_out(client, round, random)

    def drops_out(self, client: int, round: int, random: KeyedRandom) -> bool:
        """Return whether a client drops out of a round, whenever in it."""
        if not (self.is_due(round) and self.selects_client(client, random)):
            return False
        if self.groups is None:
            return random.draw("out", f"client {client}", round) < self._rate(client, random)
        group = f"group {int(random.draw('group', client) * self.groups)}"
        return random.draw("out", group, round) < self._rate(group, random)

    def _rate(self, unit: int | str, random: KeyedRandom) -> float:
        """Return the probability of a client, or of a group."""
        if self.rates is None:
            return self.probability
        low, high = self.rates
        return low + (high - low) * random.draw("rate", unit)
