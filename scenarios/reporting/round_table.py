"""All rounds of a run as columns, out of its journal: what a run says of its clients is computed from these.

Rounds are numbered from 0, so a column of rounds has an entry for every round; the others have one for every client
that a round asked, or counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.journal.records import StoredRound
from seedbus.agents.round_record import RoundRecord

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """A round and a client, an entry for every time that something happened to a client. Both int64 [n]."""

    round: Whole
    client: Whole

    def keys(self, clients: int) -> Whole:
        """One number for each pair; ascending by round, then by client."""
        return self.round * clients + self.client


@dataclass(frozen=True)
class RoundTable:
    """clients: N. Of each of R rounds: times in nanoseconds, whether its deadline closed it, whether it made a commit.

    asked: whom rounds asked, and lags, the commits that they had missed by then; reported: who answered in time; late:
    whose reports of earlier rounds are in a round's commit, and staleness, the commits made since they started.
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
    staleness: Whole

    @staticmethod
    def of(rounds: Iterable[StoredRound], clients: int) -> RoundTable:
        """rounds: as the journal has them."""
        times: list[tuple[int, int, bool, bool]] = []
        asked, lags, reported, late, staleness = _Column(), _Column(), _Column(), _Column(), _Column()
        for stored in rounds:
            record = RoundRecord.unpack(stored.record)
            times.append((record.opened_ns, record.closed_ns, record.is_expired, stored.commit is not None))
            asked.add(stored.cohort)
            lags.add(record.lags)
            reported.add(stored.reported)
            late.add([client for _, clients in record.late for client in clients])
            staleness.add([age for age, clients in record.late for _ in clients])
        table = np.array(times, np.int64).reshape(-1, 4)
        is_expired, has_commit = table[:, 2].astype(bool), table[:, 3].astype(bool)
        return RoundTable(
            clients, table[:, 0], table[:, 1], is_expired, has_commit,
            asked.pairs(), lags.values(), reported.pairs(), late.pairs(), staleness.values(),
        )  # fmt: skip

    @property
    def is_counted(self) -> Flags:
        """Which of `reported` are in a commit."""
        counted: Flags = self.has_commit[self.reported.round]
        return counted


class _Column:
    """Values that come round by round."""

    def __init__(self) -> None:
        self._parts: list[Whole] = []

    def add(self, values: Iterable[int]) -> None:
        self._parts.append(np.array(list(values), np.int64))

    def values(self) -> Whole:
        return np.concatenate([np.empty(0, np.int64), *self._parts])

    def pairs(self) -> Pairs:
        sizes = [part.size for part in self._parts]
        return Pairs(np.repeat(np.arange(len(sizes)), sizes), self.values())
