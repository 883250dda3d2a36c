"""Which messages a fault strikes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus import Passage


class Selector(BaseModel):
    """What all faults share: by client, direction, kind of message, rounds and probability. Default: every message."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    probability: float = Field(default=1.0, ge=0, le=1, description="chance that a selected message is struck")
    clients: list[int] | None = Field(default=None, description="these clients only")
    direction: Literal["up", "down", "both"] = Field(default="both", description="up: to the server; down: from it")
    kind: Literal["plan", "report"] | None = Field(default=None, description="this kind of message only")
    first_round: int = Field(default=0, ge=0, description="from this round on")
    last_round: int | None = Field(default=None, ge=0, description="up to and including this round; none: to the end")

    @model_validator(mode="after")
    def _ordered(self) -> Selector:
        if self.last_round is not None and self.last_round < self.first_round:
            raise ValueError(f"last_round ({self.last_round}) is before first_round ({self.first_round})")
        return self

    @property
    def may_lose(self) -> bool:
        """True if a message may never arrive."""
        return False

    def strikes(self, passage: Passage) -> bool:
        """True if this message is struck, on sending."""
        if passage.arriving or passage.round < self.first_round:
            return False
        if self.last_round is not None and passage.round > self.last_round:
            return False
        if self.clients is not None and passage.client not in self.clients:
            return False
        if self.kind is not None and passage.kind.name.lower() != self.kind:
            return False
        if self.direction != "both" and passage.kind.is_upward != (self.direction == "up"):
            return False
        return passage.draw("strike") < self.probability
