"""Rounds that are closed and may still be answered. With them go when the open one is over, and what its commit is of.

A run has one of three kinds: `OverdueRounds`, whose rounds are synchronous; `Buffered`; `Streamed`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

from seedbus.agents import messages
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.round import Round
from seedbus.algorithms.contract import Algorithm, BadPayload, LateReports, ReportRefused
from seedbus.bus.records import Count
from seedbus.bus.transport import Client


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

    The open round waits for its own cohort; a late report joins the commit of a later round than its own.

    Attributes:
        keeps_reports: whether the reports of a round without a commit enter the next one.
    """

    keeps_reports = False

    def __init__(self, policy: Participation) -> None:
        self._policy = policy
        self._max_rounds = policy.staleness  # how many rounds after its own a report may still be used
        self._rounds: dict[int, Round] = {}

    def at_work(self, now_ns: int, deadline_ns: int | None, computing: Container[tuple[int, int]] | None) -> set[int]:
        """Return the clients that a round asks no more while they work for earlier ones.

        Args:
            now_ns: when the round begins.
            deadline_ns: how long it may take; None: until all have answered.
            computing: (client, round) of each plan that a client has to work on, or will get; None: of all that are not
                answered.
        """
        return self.busy(computing=computing)

    def lacking(self, members: MemberIndex, computing: Container[tuple[int, int]] | None) -> int:
        """Return how many clients at work have to be free before a round can make a commit; 0: enough are.

        Too few members are no reason to wait for clients at work.
        """
        if self._policy.quorum > len(members):
            return 0
        at_work = sum(client in members for client in self.busy(computing=computing))
        return max(0, self._policy.quorum - (len(members) - at_work))

    def is_over(self, current: Round) -> bool:
        """Whether the open round is to be closed, apart from its deadline."""
        is_enough = self._policy.over_selection > 1 and len(current.reports) >= self._policy.size
        return not current.waiting or is_enough

    def keep(self, answered: Round, client: int, report: Any) -> None:
        """Keep a report for the commit of the open round, or if it is late of a later one."""
        answered.reports[client] = report

    def count(self, current: Round) -> int:
        """Return how many reports there are for the quorum, when the open round closes."""
        return len(current.reports)

    def divisor(self, closed: Round, total: int) -> int:
        """Return by what a late report of a round is divided; total: as `count` returned it."""
        return closed.size

    def refusal(self, number: int, newest: int) -> ReportRefused:
        """Return why an answer of a round that is over does not count; newest: the number of the newest round."""
        return ReportRefused("late", f"round {number} is closed")

    def aggregate(
        self, algorithm: Algorithm, state: Any, current: Round, late: Sequence[LateReports], *, share: float
    ) -> tuple[Any, Any]:
        """Return the commit of the open round's reports and of late ones, and the algorithm's next state.

        share: the part of them that the fresh ones are.
        """
        return algorithm.aggregate(
            state, current.plan, current.reports, share=share, late=late, members=current.members
        )

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

    def take(self, version: int, total: int) -> tuple[list[LateReports], list[tuple[int, int, list[int]]]]:
        """Remove and return the late reports, by round.

        Args:
            version: the newest version.
            total: as `count` returned it.

        Returns:
            The reports with their weights, and for each round its number, its staleness and whose they are.
        """
        overdue, records = list[LateReports](), list[tuple[int, int, list[int]]]()
        discount = self._policy.late
        for closed in self._rounds.values():
            if closed.reports and discount is not None:
                staleness = version - closed.plan.version
                weight = discount.weight(staleness) / self.divisor(closed, total)
                overdue.append(LateReports(closed.plan, closed.reports, weight))
                records.append((closed.plan.round, staleness, sorted(closed.reports)))
                closed.reports = {}
        return overdue, records

    def pack(self, algorithm: Algorithm) -> list[OverdueState]:
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
        self, algorithm: Algorithm, packed: Sequence[OverdueState], make_plan: Callable[[int, int], Any]
    ) -> None:
        """Go on from what `pack` returned.

        Args:
            algorithm: unpacks the reports.
            packed: what `pack` returned.
            make_plan: returns the plan of a round, given its number and its version.

        Raises:
            BadPayload: a report is none that was kept.
        """
        self._rounds = {}
        for state in packed:
            number, version, asked_ns, size = state.round
            plan = make_plan(number, version)
            try:
                reports = {client: messages.read_report(algorithm, body, plan) for client, body in state.reports}
            except ReportRefused as refused:
                raise BadPayload(f"a late report: {refused}") from None
            waiting, declined = set(state.waiting), set(state.declined)
            self._rounds[number] = Round(
                plan, [], asked_ns, asked_ns, size, waiting, reports=reports, declined=declined
            )


class Buffered(OverdueRounds):
    """A commit takes a buffer of reports, fresh or late, of clients that are at work (FedBuff)."""

    keeps_reports = True

    def at_work(self, now_ns: int, deadline_ns: int | None, computing: Container[tuple[int, int]] | None) -> set[int]:
        """Return all that have not answered; one that has missed the deadline may be asked again."""
        return self.busy(-1 if deadline_ns is None else now_ns - deadline_ns)

    def lacking(self, members: MemberIndex, computing: Container[tuple[int, int]] | None) -> int:
        return 0  # a commit takes the reports of those at work

    def is_over(self, current: Round) -> bool:
        is_full = self._policy.buffer is not None and self.count(current) >= self._policy.buffer
        return is_full or not (current.waiting or self.is_awaited)

    def count(self, current: Round) -> int:
        return len(current.reports) + self.report_count

    def divisor(self, closed: Round, total: int) -> int:
        return total


class Streamed(Buffered):
    """Each report is a commit as it comes, and weighs 1/m."""

    def divisor(self, closed: Round, total: int) -> int:
        return self._policy.size

    def refusal(self, number: int, newest: int) -> ReportRefused:
        if number >= newest - self._max_rounds:
            return ReportRefused("duplicate", f"all whom round {number} asked have answered or left")
        return super().refusal(number, newest)

    def aggregate(
        self, algorithm: Algorithm, state: Any, current: Round, late: Sequence[LateReports], *, share: float
    ) -> tuple[Any, Any]:
        fresh = [LateReports(current.plan, current.reports, 1 / self._policy.size)] if current.reports else []
        return algorithm.aggregate(state, current.plan, None, late=[*late, *fresh])


def overdue_rounds(policy: Participation) -> OverdueRounds:
    """Return no rounds yet, of the kind that a policy has."""
    kind = Streamed if policy.is_streamed else Buffered if policy.is_asynchronous else OverdueRounds
    return kind(policy)
