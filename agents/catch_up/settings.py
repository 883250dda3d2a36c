"""How clients that lag catch up: within a budget they replay the commits that they missed, else they get a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from seedbus.capabilities import Fact, Gives, Needs, Statement
from seedbus.settings import Settings

UNSET = "the field lag, a budget for snapshots, is not set"
MOST_WINDOW = 64
"""The most chunks that may be requested at a time."""


class Lag(Settings):
    """When a client gets a snapshot instead of the commits that it missed, from which source, and in what chunks."""

    gives = ((Fact.SNAPSHOTS, ""),)

    snapshot_after_commits: int | None = Field(
        default=None, ge=1, lt=2**32, description="a client that misses more commits than this gets a snapshot"
    )
    snapshot_after_bytes: Annotated[int, Field(ge=1, lt=2**60)] | Literal["snapshot"] | None = Field(
        default=None,
        description="… that misses more bytes of commits, each packed alone, or of their sum if the algorithm sends "
        "sums; snapshot: for which a snapshot, with all of its messages, takes fewer bytes",
    )
    snapshot_after_s: float | None = Field(
        default=None,
        gt=0,
        le=10**6,
        description="… whose replay would take longer; compute.replay says how long a commit takes, and is constant",
    )
    source: Literal["evaluator", "peer"] = Field(
        default="evaluator",
        description="whose replica it is: the evaluator's, at no cost; or that of the first client to report, whose "
        "uplink carries it (the evaluator's, if that client does not deliver)",
    )
    chunk_bytes: int = Field(default=2**15, ge=64, le=2**16 - 256, description="bytes of the snapshot in one message")
    window: int = Field(default=8, ge=1, le=MOST_WINDOW, description="how many chunks a client asks for at a time")

    @model_validator(mode="before")
    @classmethod
    def _refuse_number(cls, value: Any) -> Any:
        """Refuse `lag: 10`, which looks as if it made clients lag."""
        if not isinstance(value, dict | Lag):
            raise PydanticCustomError(
                "budget",
                "a snapshot budget such as {snapshot_after_commits: 10}, beyond which a client gets the model, not the "
                "commits that it missed; what makes clients lag is a participation.cohort that is a small part of the "
                "clients, and faults such as churn, dropout and drop (docs/lag.md)",
            )
        return value

    @model_validator(mode="after")
    def _budgeted(self) -> Lag:
        if self.snapshot_after_commits is self.snapshot_after_bytes is self.snapshot_after_s is None:
            raise ValueError("give snapshot_after_commits, _bytes or _s; or leave lag out, for no snapshots")
        return self

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.SERVER, "is for snapshots from a server")
        yield Needs(Fact.LOG, "chooses between a snapshot and the commits that a client missed")
        yield Needs(Fact.SERVER_MODEL, "sends snapshots of the model through the server")
        yield Gives(Fact.SNAPSHOTS)
        if self.snapshot_after_s is not None:
            yield Needs(Fact.CONSTANT_REPLAY, "needs to know how long it takes to fold a commit", "snapshot_after_s")

    def is_beyond(self, commits: int) -> bool:
        """Whether no client that misses at most so many commits gets a snapshot, whatever they take."""
        most = self.snapshot_after_commits
        return most is not None and most >= commits and self.snapshot_after_bytes is self.snapshot_after_s is None

    def resolved(self, replay_s: float) -> Lag:
        """Return the same with the budget of time as one of commits. replay_s: seconds to replay one commit."""
        update: dict[str, int] = {}
        if self.snapshot_after_s is not None:
            affordable = max(1, int(min(self.snapshot_after_s / replay_s, 2**32 - 1)))
            update["snapshot_after_commits"] = min(affordable, self.snapshot_after_commits or affordable)
        return self.model_copy(update=update)

    @property
    def bytes_of_commits(self) -> int | None:
        """`snapshot_after_bytes`, if it is a number."""
        return None if self.snapshot_after_bytes == "snapshot" else self.snapshot_after_bytes

    @property
    def is_cheapest(self) -> bool:
        """Whether a client gets a snapshot where that takes fewer bytes than what it missed."""
        return self.snapshot_after_bytes == "snapshot"
