"""How a round went, for reports about the run; nothing in the run depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from seedbus.agents.messages import Outgoing
from seedbus.bus.records import Count, Whole
from seedbus.bus.transport import Client

_Lag = Whole  # commits; below 0 if a client says that it is ahead
_Round = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class RoundRecord(NamedTuple):
    """How one round went; the journal stores the fields in order.

    Attributes:
        opened_ns: when it opened, by the run's clock.
        closed_ns: when it closed.
        is_expired: whether its deadline closed it.
        lags: how many commits each client of the cohort had missed when it was asked, in the cohort's order.
        late: reports of earlier rounds in this round's commit: (their round, commits made since it started, clients);
            −1: a journal of version 0.1.0 does not have their round.
    """

    opened_ns: Count = 0
    closed_ns: Count = 0
    is_expired: bool = False
    lags: Sequence[_Lag] = ()
    late: Sequence[tuple[_Round, _Lag, Sequence[Client]]] = ()


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
        outgoing: what its cohort is told now that it is over.
    """

    round: int
    version: int
    cohort: tuple[int, ...]
    reported: tuple[int, ...]
    commit: Any
    record: RoundRecord = NO_RECORD
    outgoing: Sequence[Outgoing] = ()
