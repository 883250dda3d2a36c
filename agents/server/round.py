"""A round that has begun: its plan, its cohort and the answers so far."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from seedbus.agents.extensions import Exchange
from seedbus.agents.messages import AnyAlgorithm
from seedbus.algorithms.contract import LateReports, Packed, ReportRefused
from seedbus.bus import Envelope
from seedbus.bus.records import Count
from seedbus.bus.transport import Client

Phase = Literal["asking", "gathering", "committing", "publishing"]
"""What the server is about to do in a round, or in the middle of."""


@dataclass(slots=True)
class Round:
    """One round, open or closed.

    Attributes:
        plan: the algorithm's plan.
        cohort: the clients that it asked, ascending; [] if the round was restored from a checkpoint.
        opened_ns: when it began, in nanoseconds of the run's clock.
        asked_ns: when its plans were sent: later, where it waits for clients at work, or has questions before plans.
        size: |C_r|, number of clients asked.
        waiting: the clients of the cohort whose answers are awaited.
        members: number of members when it began, those at work for earlier rounds included.
        reports: client → its report, until this is in a commit.
        declined: the clients that have declined to report.
        dismissed: the clients that have left, or joined anew, since it began.
        too_large: the clients whose answers, while it was open, were refused because of their magnitude.
        lags: how many commits each client of the cohort had missed, in its order.
        is_expired: whether the deadline has passed, or has passed before enough clients were free.
        max_norm: the algorithm's packed maximum of the reports' norms, which the cohort is sent; None before the commit
            or if the algorithm sends none.
        exchange: what it asks beside reports.
    """

    plan: Any
    cohort: list[int]
    opened_ns: int
    asked_ns: int
    size: int
    waiting: set[int]
    members: int = 0
    reports: dict[int, Any] = field(default_factory=dict)
    declined: set[int] = field(default_factory=set)
    dismissed: set[int] = field(default_factory=set)
    lags: Sequence[int] = ()
    is_expired: bool = False
    max_norm: Packed | None = None
    exchange: Exchange = field(default_factory=Exchange)
    too_large: set[int] = field(default_factory=set)

    def admit(self, envelope: Envelope) -> None:
        """Check that an answer to this round is due.

        Raises:
            ReportRefused: the client has answered already or was not asked, or its answer is based on another version.
        """
        client, number = envelope.client, self.plan.round
        if client in self.reports or client in self.declined:
            raise ReportRefused("duplicate", f"client {client} has answered in round {number}")
        if client not in self.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked in round {number}")
        if envelope.base != self.plan.version:
            raise ReportRefused("wrong-version", f"it started at version {envelope.base}, not {self.plan.version}")


class OverdueState(NamedTuple):
    """What a checkpoint stores of a closed round that may still be answered; in this order.

    Attributes:
        round: its number, the version at which it started, when its plans were sent in nanoseconds, and the size of its
            cohort.
        waiting: the clients that have not answered, ascending.
        reports: (client, packed report) of late reports that are in no commit yet, ascending.
        declined: the clients that have declined to report, ascending.
    """

    round: tuple[Count, Count, Count, Count]
    waiting: list[Client]
    reports: list[tuple[Client, list[Any]]]
    declined: list[Client]


class OverdueRounds:
    """Rounds that are closed and may still be answered, oldest first.

    Args:
        max_rounds: how many rounds after its own a report may still be used; 0: never.
    """

    def __init__(self, max_rounds: int) -> None:
        self._max_rounds = max_rounds
        self._rounds: dict[int, Round] = {}

    def get(self, number: int) -> Round | None:
        return self._rounds.get(number)

    def add(self, closed: Round) -> None:
        """Add a round that has just closed; the clients that it still waits for may answer late."""
        if self._max_rounds:
            self._rounds[closed.plan.round] = closed
        self.forget(closed.plan.round + 1 - self._max_rounds)

    def forget(self, number: int) -> None:
        """Remove the rounds before `number`, and those that wait for no client and have no unused reports."""
        for old in [n for n, closed in self._rounds.items() if n < number or not (closed.waiting or closed.reports)]:
            del self._rounds[old]

    def dismiss(self, client: int) -> None:
        """Stop waiting for a client."""
        for closed in self._rounds.values():
            closed.waiting.discard(client)

    def busy(self, after_ns: int = -1, computing: Container[tuple[int, int]] | None = None) -> set[int]:
        """Return the clients that have not answered in a round whose plans were sent later than `after_ns`.

        Args:
            after_ns: time of the run's clock.
            computing: only those that are in here with the round; None: all.
        """
        recent = (closed for closed in self._rounds.values() if closed.asked_ns > after_ns)
        if computing is None:
            return {client for closed in recent for client in closed.waiting}
        return {client for closed in recent for client in closed.waiting if (client, closed.plan.round) in computing}

    @property
    def is_awaited(self) -> bool:
        """Whether any client may still answer."""
        return any(closed.waiting for closed in self._rounds.values())

    @property
    def awaited(self) -> Iterator[tuple[int, int]]:
        """(client, round) of each answer that may still come."""
        return ((client, number) for number, closed in self._rounds.items() for client in closed.waiting)

    @property
    def report_count(self) -> int:
        """Number of late reports that are in no commit yet."""
        return sum(len(closed.reports) for closed in self._rounds.values())

    def take(self, weight: Callable[[Round], float]) -> list[LateReports]:
        """Remove and return the late reports, by round.

        Args:
            weight: returns the weight of each report of a round.
        """
        overdue = []
        for closed in self._rounds.values():
            if closed.reports:
                overdue.append(LateReports(closed.plan, closed.reports, weight(closed)))
                closed.reports = {}
        return overdue

    def pack(self, algorithm: AnyAlgorithm) -> list[OverdueState]:
        """Return what a checkpoint stores, oldest first."""
        return [
            OverdueState(
                (closed.plan.round, closed.plan.version, closed.asked_ns, closed.size),
                sorted(closed.waiting),
                [
                    (client, algorithm.pack_report(closed.plan, report).body)
                    for client, report in sorted(closed.reports.items())
                ],
                sorted(closed.declined),
            )
            for closed in self._rounds.values()
        ]

    def unpack(
        self, algorithm: AnyAlgorithm, packed: Sequence[OverdueState], make_plan: Callable[[int, int], Any]
    ) -> None:
        """Go on from what `pack` returned.

        Args:
            algorithm: unpacks the reports.
            packed: what `pack` returned.
            make_plan: returns the plan of a round, given its number and its version.
        """
        self._rounds = {}
        for state in packed:
            number, version, asked_ns, size = state.round
            plan = make_plan(number, version)
            reports = {client: algorithm.unpack_report(body, plan) for client, body in state.reports}
            waiting, declined = set(state.waiting), set(state.declined)
            self._rounds[number] = Round(
                plan, [], asked_ns, asked_ns, size, waiting, reports=reports, declined=declined
            )
