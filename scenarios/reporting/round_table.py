"""All rounds of a run as columns, read from its journal. The statistics of clients and rounds are computed from them.

Rounds are numbered from 0, and a column of rounds has one entry for every round. The other columns have one entry for
every client that a round asked or counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.journal.records import StoredRound

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """A round and a client for each of n events.

    Attributes:
        round: int64 [n].
        client: int64 [n].
    """

    round: Whole
    client: Whole

    def keys(self, clients: int) -> Whole:
        """Return one number for each pair, [n]. The numbers order pairs by round, then by client.

        Args:
            clients: number of clients, N.
        """
        return self.round * clients + self.client


@dataclass(frozen=True)
class RoundTable:
    """The rounds of a run as columns.

    Attributes:
        clients: number of clients, N.
        opened_ns: int64 [R]; when each round began.
        closed_ns: int64 [R]; when each round ended.
        is_expired: bool [R]; whether the deadline ended the round.
        has_commit: bool [R]; whether the round made a commit.
        asked: the clients of each round's cohort.
        lags: int64, one for each of `asked`; commits that the client had missed when it was asked.
        reported: the clients whose report arrived in time.
        late: the clients whose report of an earlier round is part of a round's commit.
        answered: int64, one for each of `late`; the earlier round, or −1 if it is not known.
        staleness: int64, one for each of `late`; commits made since the earlier round began.
    """

    clients: int
    opened_ns: Whole
    closed_ns: Whole
    is_expired: Flags
    has_commit: Flags
    asked: Pairs
    lags: Whole
    reported: Pairs
    late: Pairs
    answered: Whole
    staleness: Whole

    @staticmethod
    def of(rounds: Iterable[StoredRound], clients: int) -> RoundTable:
        """Build the table from the rounds of a journal, in their order.

        Raises:
            ValueError: a round names a client that there is not.
        """
        times: list[tuple[int, int, bool, bool]] = []
        asked = _Column()
        lags = _Column()
        reported = _Column()
        late = _Column()
        answered = _Column()
        staleness = _Column()
        for stored in rounds:
            record = stored.record
            times.append((record.opened_ns, record.closed_ns, record.is_expired, stored.commit is not None))
            asked.add(stored.cohort)
            lags.add(record.lags)
            reported.add(stored.reported)
            late.add([client for *_, clients in record.late for client in clients])
            answered.add([earlier for earlier, _, clients in record.late for _ in clients])
            staleness.add([age for _, age, clients in record.late for _ in clients])
        for column in (asked, reported, late):
            if (most := column.values().max(initial=0)) >= clients:
                raise ValueError(f"rounds name client {most}, and there are {clients}")
        table = np.array(times, np.int64).reshape(-1, 4)
        is_expired, has_commit = table[:, 2].astype(bool), table[:, 3].astype(bool)
        return RoundTable(
            clients, table[:, 0], table[:, 1], is_expired, has_commit,
            asked.pairs(), lags.values(), reported.pairs(), late.pairs(), answered.values(), staleness.values(),
        )  # fmt: skip

    @property
    def is_counted(self) -> Flags:
        """Whether each entry of `reported` is part of a commit; bool, one for each."""
        counted: Flags = self.has_commit[self.reported.round]
        return counted

    @property
    def counts_late(self) -> Flags:
        """Whether each of `asked` has a report to that round in a later round's commit; bool, one for each."""
        answers = Pairs(self.answered, self.late.client)
        is_counted: Flags = np.isin(self.asked.keys(self.clients), answers.keys(self.clients))
        return is_counted

    @property
    def begun(self) -> Whole:
        """The newest round, up to that of each entry of `reported`, that asked its client; int64, one for each.

        Without a server, it is the round in which a node began the step: while it computes, no round asks it.
        """
        rounds = self.opened_ns.size
        first = self.reported.client * rounds  # stands in where no round asked, as in a journal that someone changed
        asked = np.sort(np.concatenate([first, self.asked.client * rounds + self.asked.round]))
        newest = np.searchsorted(asked, first + self.reported.round, side="right") - 1
        begun: Whole = asked[newest] - first
        return begun

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what is known of each round, [R] each: when it opened, how long it took, whom it asked and heard."""
        rounds = self.opened_ns.size
        lag_max = np.zeros(rounds, np.int64)
        np.maximum.at(lag_max, self.asked.round, self.lags)
        return {
            "opened_s": self.opened_ns / 1e9,
            "took_s": (self.closed_ns - self.opened_ns) / 1e9,
            "is_expired": self.is_expired,
            "has_commit": self.has_commit,
            "asked": np.bincount(self.asked.round, minlength=rounds),
            "reported": np.bincount(self.reported.round, minlength=rounds),
            "late": np.bincount(self.late.round, minlength=rounds),
            "lag_max": lag_max,
        }


class _Column:
    """Values that are collected round by round."""

    def __init__(self) -> None:
        self._parts: list[Whole] = []

    def add(self, values: Iterable[int]) -> None:
        self._parts.append(np.array(list(values), np.int64))

    def values(self) -> Whole:
        return np.concatenate([np.empty(0, np.int64), *self._parts])

    def pairs(self) -> Pairs:
        sizes = [part.size for part in self._parts]
        return Pairs(np.repeat(np.arange(len(sizes)), sizes), self.values())
