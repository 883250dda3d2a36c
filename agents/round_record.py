"""How a round went, for reports about the run; nothing in the run depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seedbus.agents.refusals import Refusal


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """How one round went.

    Attributes:
        opened_ns: when it opened, by the run's clock.
        closed_ns: when it closed.
        is_expired: whether its deadline closed it.
        lags: how many commits each client of the cohort had missed when it was asked, in the cohort's order.
        late: reports of earlier rounds in this round's commit: (their round, commits made since it started, clients);
            −1: a journal of version 0.1.0 does not have their round.
    """

    opened_ns: int = 0
    closed_ns: int = 0
    is_expired: bool = False
    lags: Sequence[int] = ()
    late: Sequence[tuple[int, int, Sequence[int]]] = ()

    def pack(self) -> list[Any]:
        """Return what the journal stores: the fields in order."""
        late = [[round, staleness, list(clients)] for round, staleness, clients in self.late]
        return [self.opened_ns, self.closed_ns, self.is_expired, list(self.lags), late]

    @staticmethod
    def unpack(packed: list[Any]) -> RoundRecord:
        """Return the record that `pack` stored."""
        opened_ns, closed_ns, is_expired, lags, late = packed
        late = [(round[0] if round else -1, staleness, clients) for *round, staleness, clients in late]
        return RoundRecord(opened_ns, closed_ns, is_expired, lags, late)


NO_RECORD = RoundRecord()


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A round that is over.

    Attributes:
        round: its number, from 0.
        version: the version after it.
        cohort: the clients that it asked, ascending.
        reported: those whose reports came in time, ascending.
        commit: its commit; None if it had no quorum.
        record: how it went.
        refusals: of what was found wrong only when the round was over.
    """

    round: int
    version: int
    cohort: tuple[int, ...]
    reported: tuple[int, ...]
    commit: Any
    record: RoundRecord = NO_RECORD
    refusals: tuple[Refusal, ...] = ()
