"""The records of a journal, by name. In the file each is a row, or an array whose fields have this order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seedbus.agents.journal.digests import TableDigests


class StoredRound(NamedTuple):
    """A round that was closed.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        record: how it went, as `RoundRecord.pack` returned it.
        commit: its packed commit; None if it had no quorum; [] if the commit is not kept.
    """

    round: int
    version: int
    cohort: list[int]
    reported: list[int]
    record: list[Any]
    commit: list[Any] | None


class LastRound(NamedTuple):
    """The round after which a run goes on.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        has_commit: whether it had a quorum.
    """

    round: int
    version: int
    cohort: Sequence[int]
    reported: Sequence[int]
    has_commit: bool


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


class Glance(NamedTuple):
    """What a journal holds at one moment, unverified; enough to show how a run goes.

    Attributes:
        rounds: number of closed rounds.
        version: the newest version.
        positions: the newest position of each client that ever joined.
        rows: the rows of the ledger that are in none of its files yet, packed.
        state: the checkpoint's; None before the first round is closed.
    """

    rounds: int
    version: int
    positions: dict[int, MemberPosition]
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
