"""Whom and which messages a fault strikes, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus import KeyedRandom, Passage
from seedbus.bus.network import round_ns

_LATEST_S = 10**7  # past the end of simulated time


class Fault(BaseModel):
    """What a scenario needs to know of any fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Only what was said: draws are keyed by it, and a field that comes with a later version changes none."""
        for name, value in super().__repr_args__():
            if name is None or value != type(self).model_fields[name].default:
                yield name, value

    @property
    def may_lose(self) -> bool:
        """True if a message may never arrive."""
        return False

    @property
    def named(self) -> list[int]:
        """The clients that it names."""
        return []

    def check(self, clients: int) -> str:
        """The digest of what is said elsewhere, in a file; "" if nothing is. Raises `ScenarioError`."""
        return ""


class Chosen(Fault):
    """Which clients a fault is about. Default: all."""

    clients: list[int] | None = Field(default=None, description="these clients only")
    fraction: float | None = Field(
        default=None, ge=0, le=1, description="this share of all clients only, drawn once; instead of clients"
    )

    @model_validator(mode="after")
    def _either(self) -> Chosen:
        if self.clients is not None and self.fraction is not None:
            raise ValueError("give clients or fraction, not both")
        return self

    @property
    def named(self) -> list[int]:
        return self.clients or []

    def is_about(self, client: int, random: KeyedRandom) -> bool:
        """True if this is one of the clients that this is about."""
        if self.fraction is not None:
            return client in random.share(self.fraction)
        return self.clients is None or client in self.clients

    def chosen(self, clients: int, random: KeyedRandom) -> Iterable[int]:
        """All the clients, of so many, that this is about, ascending."""
        if self.fraction is not None:
            return sorted(random.share(self.fraction))
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
        return _falls(round, self.at_round, self.for_rounds, self.every_rounds)

    def strikes_client(self, client: int, round: int, random: KeyedRandom) -> bool:
        """True if this client is struck in a round, all through it."""
        if not (self.is_due(round) and self.is_about(client, random)):
            return False
        return self.probability == 1 or random.draw("strike", client, round) < self.probability


class Exchange(Clients):
    """What passes between server and clients, by direction, and by simulated time beside rounds. Default: all of it."""

    direction: Literal["up", "down", "both"] = Field(default="both", description="up: to the server; down: from it")
    at_s: float = Field(default=0.0, ge=0, le=_LATEST_S, description="from this simulated second on")
    for_s: float | None = Field(
        default=None, ge=1e-9, le=_LATEST_S, description="for so many simulated seconds; none: to the end"
    )
    every_s: float | None = Field(
        default=None, ge=1e-9, le=_LATEST_S, description="and again after every so many simulated seconds; none: once"
    )

    @model_validator(mode="after")
    def _consistent_in_time(self) -> Exchange:
        if self.every_s is not None and (self.for_s is None or self.for_s > self.every_s):
            raise ValueError(f"every_s ({self.every_s:g}) needs for_s, which is at most as long")
        return self

    def covers(self, passage: Passage) -> bool:
        """True if this is about a message at this moment, whatever the probability."""
        if self.direction != "both" and passage.kind.is_upward != (self.direction == "up"):
            return False
        spans_ns = (None if seconds is None else round_ns(seconds) for seconds in (self.for_s, self.every_s))
        if not _falls(passage.now_ns, round_ns(self.at_s), *spans_ns):
            return False
        return self.is_due(passage.round) and self.is_about(passage.client, passage.random)


class Selector(Exchange):
    """Which messages: by client, rounds, time of sending, probability, direction and kind. Default: every message."""

    kind: Literal["plan", "report", "join", "snapshot", "pull"] | None = Field(
        default=None,
        description="this kind of message only; join: a client says that it is not where the server believes; "
        "snapshot: the offer of a snapshot, or a chunk of it, for one that lags; pull: it asks for them",
    )

    def strikes(self, passage: Passage) -> bool:
        """True if this message is struck, on sending."""
        if passage.arriving or (self.kind is not None and passage.kind.name.lower() != self.kind):
            return False
        return self.covers(passage) and passage.draw("strike") < self.probability


def _falls(now: int, at: int, length: int | None, period: int | None) -> bool:
    """True from `at` on for `length`, and again after every `period`."""
    since = now - at
    if period is not None and since >= 0:
        since %= period
    return since >= 0 and (length is None or since < length)
