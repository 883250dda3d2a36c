"""Whom and which messages a fault strikes, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus import Luck, Passage


class Chosen(BaseModel):
    """Which clients a fault is about. Default: all."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clients: list[int] | None = Field(default=None, description="these clients only")
    fraction: float | None = Field(
        default=None, ge=0, le=1, description="this share of all clients only, drawn once; instead of clients"
    )

    @model_validator(mode="after")
    def _either(self) -> Chosen:
        if self.clients is not None and self.fraction is not None:
            raise ValueError("give clients or fraction, not both")
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Only what was said: draws are keyed by it, and a field that comes with a later version changes none."""
        for name, value in super().__repr_args__():
            if name is None or value != type(self).model_fields[name].default:
                yield name, value

    @property
    def may_lose(self) -> bool:
        """True if a message may never arrive."""
        return False

    def check(self, clients: int) -> str:
        """The digest of what is said elsewhere, in a file; "" if nothing is. Raises `ScenarioError`."""
        return ""

    def is_about(self, client: int, luck: Luck) -> bool:
        """True if this is one of the clients that this is about."""
        if self.fraction is not None:
            return client in luck.share(self.fraction)
        return self.clients is None or client in self.clients

    def chosen(self, clients: int, luck: Luck) -> Iterable[int]:
        """All the clients, of so many, that this is about, ascending."""
        if self.fraction is not None:
            return sorted(luck.share(self.fraction))
        return range(clients) if self.clients is None else sorted(set(self.clients))


class Clients(Chosen):
    """Which clients, in which rounds, with what probability. Default: all, always."""

    probability: float = Field(default=1.0, ge=0, le=1, description="chance that what is selected is struck")
    at_round: int = Field(default=0, ge=0, description="from this round on")
    for_rounds: int | None = Field(default=None, ge=1, description="for so many rounds; none: to the end")
    every_rounds: int | None = Field(default=None, ge=1, description="and again after every so many rounds; none: once")

    @model_validator(mode="after")
    def _consistent(self) -> Clients:
        if self.every_rounds is not None and (self.for_rounds is None or self.for_rounds > self.every_rounds):
            raise ValueError(f"every_rounds ({self.every_rounds}) needs for_rounds, which is at most as many")
        return self

    def is_due(self, round: int) -> bool:
        """True in the rounds that this is about."""
        since = round - self.at_round
        if self.every_rounds is not None and since >= 0:
            since %= self.every_rounds
        return since >= 0 and (self.for_rounds is None or since < self.for_rounds)


class Selector(Clients):
    """Which messages: by client, rounds, probability, direction and kind. Default: every message."""

    direction: Literal["up", "down", "both"] = Field(default="both", description="up: to the server; down: from it")
    kind: Literal["plan", "report"] | None = Field(default=None, description="this kind of message only")

    def selects(self, passage: Passage) -> bool:
        """True if this is one of the messages that this is about, whatever the probability."""
        if self.kind is not None and passage.kind.name.lower() != self.kind:
            return False
        if self.direction != "both" and passage.kind.is_upward != (self.direction == "up"):
            return False
        return self.is_due(passage.round) and self.is_about(passage.client, passage.luck)

    def strikes(self, passage: Passage) -> bool:
        """True if this message is struck, on sending."""
        return not passage.arriving and self.selects(passage) and passage.draw("strike") < self.probability
