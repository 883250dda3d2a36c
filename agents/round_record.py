"""How a round went, for whoever looks at a run afterwards; nothing in the run depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round. Times in nanoseconds of the run's clock; is_expired: the deadline closed it.

    lags: commits that each of the cohort had missed when it was asked, in the cohort's order. late: reports of earlier
    rounds that are in this round's commit, as (commits made since they started, their clients).
    """

    opened_ns: int = 0
    closed_ns: int = 0
    is_expired: bool = False
    lags: Sequence[int] = ()
    late: Sequence[tuple[int, Sequence[int]]] = ()

    def pack(self) -> list[Any]:
        late = [[staleness, list(clients)] for staleness, clients in self.late]
        return [self.opened_ns, self.closed_ns, self.is_expired, list(self.lags), late]

    @staticmethod
    def unpack(packed: list[Any]) -> RoundRecord:
        opened_ns, closed_ns, is_expired, lags, late = packed
        return RoundRecord(
            opened_ns, closed_ns, is_expired, lags, [(staleness, clients) for staleness, clients in late]
        )


NO_RECORD = RoundRecord()


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A round that is over; commit is None if it had no quorum."""

    round: int
    version: int
    cohort: tuple[int, ...]
    reported: tuple[int, ...]
    commit: Any
    record: RoundRecord = NO_RECORD
