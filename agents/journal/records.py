"""The records of a journal, by name: what is written, what it holds, and what is read from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from seedbus.agents.journal.base import Base
from seedbus.agents.journal.digests import TableDigests
from seedbus.agents.round_record import NO_RECORD, RoundRecord
from seedbus.bus.records import record
from seedbus.bus.transport import Client


class StoredRound(NamedTuple):
    """A round that was closed.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        record: how it went.
        commit: its packed commit; None if it had no quorum; [] if the commit is not kept; of a dense one the digest,
            until the reader has found it.
    """

    round: int
    version: int
    cohort: list[Client]
    reported: list[Client]
    record: RoundRecord
    commit: Any

    @staticmethod
    def unpack(round: int, version: int, body: Any) -> StoredRound:
        """Return a round of which the journal stores the other fields as one array. Raises `ValueError`."""
        match body:
            case [cohort, reported, [*when, [*late]], commit]:  # version 0.1.0 did not say of which rounds these were
                late = [[-1, *each] if isinstance(each, list) and len(each) == 2 else each for each in late]
                body = [cohort, reported, [*when, late], commit]
        stored = StoredRound(round, version, *record(tuple[list[Client], list[Client], RoundRecord, Any], body))
        for clients in (stored.cohort, stored.reported):
            if any(later <= earlier for earlier, later in pairwise(clients)):
                raise ValueError("clients that do not ascend")
        if len(stored.record.lags) != len(stored.cohort):
            raise ValueError(f"{len(stored.record.lags)} lags of {len(stored.cohort)} clients")
        return stored


class LastRound(NamedTuple):
    """The round after which a run goes on.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        has_commit: whether it had a quorum.
        opened_ns: when it began, by the run's clock.
    """

    round: int
    version: int
    cohort: Sequence[int]
    reported: Sequence[int]
    has_commit: bool
    opened_ns: int


class MemberPosition(NamedTuple):
    """Where the server believes a client to be.

    Attributes:
        version: the version that the client holds.
        is_member: False once it has left the run.
    """

    version: int
    is_member: bool = True

    def pack(self) -> int:
        """Return the number that the journal stores: the version, or of a client that has left its complement."""
        return self.version if self.is_member else ~self.version

    @staticmethod
    def unpack(stored: int) -> MemberPosition:
        """Return the position that `pack` stored."""
        return MemberPosition(max(stored, ~stored), stored >= 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One closed round, to be made durable. Of clients it holds only what changed.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        commit: its packed body; None for a round without quorum.
        positions: (client, position at which the server believes it to be).
        actual_versions: (follower, version to which delivered messages brought it). The server may not know of it, if
            the follower's report was lost.
        metrics: new lines of metrics.
        rows: new rows of the ledger, packed.
        segments: how many files of the ledger are complete.
        is_rotated: whether all rows up to this round are in those files.
        state: what else a resumed run needs, to be packed with msgpack.
        record: how the round went.
        partial_downloads: (client, note of what it has downloaded).
        held: what the server holds for clients that lag, packed; None if it is the same as before.
        is_dense: whether a commit replaces all commits before it.
    """

    round: int
    version: int
    cohort: Sequence[int]
    reported: Sequence[int]
    commit: list[Any] | None
    positions: Iterable[tuple[int, MemberPosition]]
    actual_versions: Iterable[tuple[int, int]]
    metrics: Sequence[dict[str, Any]]
    rows: bytes
    segments: int
    is_rotated: bool
    state: Sequence[Any]
    record: RoundRecord = NO_RECORD
    partial_downloads: Iterable[tuple[int, bytes]] = ()
    held: bytes | None = None
    is_dense: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a resumed run goes on from. Fields that `Entry` has too mean the same, of all rounds together.

    Attributes:
        rows: rows of the ledger that are in none of its files yet.
        last: the last whole round.
        held: what the server holds for clients that lag, packed; b"": nothing.
        base: what the journal has in the place of its first commits; None: it has all.
    """

    state: list[Any]
    segments: int
    rows: bytes
    metrics: list[dict[str, Any]]
    positions: dict[int, MemberPosition]
    actual_versions: dict[int, int]
    last: LastRound
    partial_downloads: dict[int, bytes]
    held: bytes
    base: Base | None = None


class Glance(NamedTuple):
    """What a journal holds at one moment, unverified; enough to show how a run goes.

    Attributes:
        rounds: number of closed rounds.
        version: the newest version.
        positions: the newest position of each client that ever joined.
        segments: how many files of the ledger are complete.
        rows: the rows of the ledger that are in none of these files yet, packed.
        state: the checkpoint's; None before the first round is closed.
    """

    rounds: int
    version: int
    positions: dict[int, MemberPosition]
    segments: int
    rows: bytes
    state: list[Any] | None


class JournalEnd(NamedTuple):
    """What the next round is appended to.

    Attributes:
        chain: the last link of the chain of rounds, 16 bytes.
        tables: digests of the tables that change in place.
    """

    chain: bytes
    tables: TableDigests
