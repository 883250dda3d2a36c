"""Rounds under the participation policy: their cohorts, which reports count, when they are over, and their commits."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from seedbus.agents.errors import Unfinishable
from seedbus.agents.policies.deadline import Deadlines
from seedbus.agents.policies.selection.known import Known, KnownState
from seedbus.agents.round_record import RoundRecord
from seedbus.agents.seeds import of_directions
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.overdue import OverdueState
from seedbus.agents.server.round import Round
from seedbus.agents.server.run_spec import RunSpec
from seedbus.algorithms.contract import ReportRefused, Total, sums
from seedbus.bus.records import Count
from seedbus.vector import norm


class RoundsState(NamedTuple):
    """What a checkpoint stores of the rounds; in this order.

    Attributes:
        number: of the round that opens next.
        known: what selection knows of clients; nothing if its policy needs nothing.
        answer_times_ns: how long the latest answers took, oldest first; [] if the deadline does not adapt.
        overdue: closed rounds that may still be answered.
        algorithm: the algorithm's own state at the server.
    """

    number: Count
    known: KnownState
    answer_times_ns: list[Count]
    overdue: list[OverdueState]
    algorithm: Any


class Rounds:
    """The open round, and the closed ones that may still be answered.

    Args:
        spec: the run.

    Attributes:
        number: of the open round, or of the one that opens next.
        current: the open round; None between rounds.
        deadlines: how long rounds may take.
    """

    def __init__(self, spec: RunSpec) -> None:
        participation = spec.participation
        self.algorithm = spec.algorithm
        self._channel = spec.algorithm.facts.channel
        self.policy = participation
        self._seed = spec.seed
        self.number = 0
        self.current: Round | None = None
        self._overdue = spec.overdue(participation)
        self._known = Known()
        self._needs_known = participation.selection.needs_known
        self.deadlines = Deadlines(participation.deadline_s, participation.deadline)
        self._state = spec.first_state()
        self._noise = spec.noise
        self._divisor = None if spec.noise is None else spec.noise.divisor
        self._filters = spec.filters
        self._lost = -1
        self._dismissed: set[int] = set()  # since the last checkpoint

    def open(
        self, members: MemberIndex, version: int, now_ns: int, computing: Container[tuple[int, int]] | None = None
    ) -> Round:
        """Begin the next round.

        Args:
            members: the clients that may be asked.
            version: the version at which the round starts.
            now_ns: when it begins: now, or when it began to wait for clients at work.
            computing: (client, round) of each plan that a client has to work on, or will get; None: of all that are not
                answered.

        Raises:
            PluginError: the selection policy chose other clients than it may.
        """
        is_short = self.lacking(members, computing) > 0
        at_work = self._overdue.at_work(now_ns, self.deadlines.ns, computing)
        with members.without(at_work):
            chosen = [] if is_short else self.policy.draw(members, self._known, self._seed, self.number, len(at_work))
        plan = self._plan(self.number, version, self._state)
        if self._channel is not None:
            seed = of_directions(self._seed, self.number)
            chosen = [client for client in chosen if self._channel.reaches(seed, client)]
        self.current = Round(plan, chosen, now_ns, now_ns, len(chosen), set(chosen), len(members), is_expired=is_short)
        return self.current

    def lacking(self, members: MemberIndex, computing: Container[tuple[int, int]] | None = None) -> int:
        """Return how many clients at work have to be free before a round can make a commit; 0: enough are.

        A round that opens all the same asks nobody and is over at once.
        """
        return self._overdue.lacking(members, computing)

    def get(self, number: int | None) -> Round | None:
        """Return a round that may still be answered, by default the open one; None if there is none."""
        return self.current if number is None or number == self.number else self._overdue.get(number)

    def answered_round(self, number: int) -> Round:
        """Return the round that an answer is for.

        Raises:
            ReportRefused: the round has not begun, or may not be answered any more.
        """
        answered = self.get(number)
        if answered is not None:
            return answered
        if number == self.number == self._lost:
            raise ReportRefused("not-asked", f"the server crashed in round {number}, and has not begun it again")
        if number >= self.number:
            raise ReportRefused("wrong-round", f"round {number} has not begun; this is round {self.number}")
        raise self._overdue.refusal(number, self.number)

    def add_report(self, answered: Round, client: int, report: Any, now_ns: int) -> None:
        """Add a report that has passed all checks to the round that it answers. Raises `ReportRefused`."""
        if answered.exchange.sums_reports:
            answered.exchange.read(client, sums(self.algorithm).numbers(report))
        self._overdue.keep(answered, client, report)
        answered.waiting.discard(client)
        self.deadlines.answered(now_ns - answered.asked_ns)
        if self._needs_known:
            worth = norm(self.algorithm.values(report))
            self._known.add(client, worth, now_ns - answered.asked_ns, self.number)

    def dismiss(self, client: int, *, open_too: bool = False) -> None:
        """Stop waiting for a client in all closed rounds, and with `open_too` in the open one as well."""
        self._overdue.dismiss(client)
        self._dismissed.add(client)
        if self.current is None:
            return
        self.current.dismissed.add(client)
        if open_too:
            self.current.waiting.discard(client)
            self.current.exchange.waiting.discard(client)

    def was_dismissed(self, client: int) -> bool:
        """Whether a client has left, or joined anew, since the open round began."""
        return self.current is not None and client in self.current.dismissed

    @property
    def awaited(self) -> list[tuple[int, int]]:
        """(client, round) of each answer that the open round waits for, ascending."""
        current = self.current
        if current is None:
            return []
        waiting = current.exchange.waiting or current.waiting
        return sorted([*((client, self.number) for client in waiting), *self._overdue.awaited])

    @property
    def is_over(self) -> bool:
        """Whether the open round is to be closed."""
        current = self.current
        return current is not None and (current.is_expired or self._overdue.is_over(current))

    def close(self, version: int, now_ns: int) -> tuple[Round, list[int], Any, RoundRecord]:
        """Close the open round and aggregate its reports.

        Args:
            version: the newest version.
            now_ns: the current time.

        Returns:
            The round, the clients that reported in it in ascending order, its commit (None without a quorum), and the
            record of how it went.

        Raises:
            ValueError: no round is open.
        """
        if self.current is None:
            raise ValueError(f"round {self.number} cannot be closed: it is not open")
        closed, reported = self.current, sorted(self.current.reports)
        commit, late = self._commit(closed, version)
        record = RoundRecord(closed.opened_ns, now_ns, closed.is_expired, closed.lags, late)
        self.current = None
        if commit is None and closed.is_expired:
            self.deadlines.missed()
        if commit is not None and self._channel is not None:
            closed.peak = self._channel.peak(closed.reports.values())
        if commit is not None or not self._overdue.keeps_reports:
            closed.reports = {}
        self._overdue.add(closed)
        self.number += 1
        return closed, reported, commit, record

    @property
    def is_half_reported(self) -> bool:
        """Whether at least half of the open round's cohort have reported."""
        return self.current is not None and 2 * len(self.current.reports) >= len(self.current.cohort)

    def pack(self) -> RoundsState:
        """Return what a checkpoint stores, to which `crashed` goes back; the open round is not part of it."""
        self._dismissed.clear()
        return RoundsState(
            number=self.number,
            known=self._known.pack(),
            answer_times_ns=self.deadlines.pack(),
            overdue=self._overdue.pack(self.algorithm),
            algorithm=self._state,
        )

    def unpack(self, state: RoundsState) -> None:
        """Go on from what `pack` returned, with no round open; raises `BadPayload` for a state of another algorithm."""
        self.algorithm.check_state(state.algorithm)
        self.current = None
        self.number = state.number
        self._state = state.algorithm
        self._known.unpack(state.known)
        self.deadlines.unpack(state.answer_times_ns)
        self._overdue.unpack(self.algorithm, state.overdue, self._plan)

    def crashed(self, state: RoundsState) -> None:
        """Go on as `unpack` does. The open round is lost, and its answers come too early until it begins again.

        Clients that have left or joined anew since are not awaited in earlier rounds: who is a member is not lost.
        """
        self._lost = self.number
        self.unpack(state)
        for client in self._dismissed:
            self._overdue.dismiss(client)

    def _plan(self, number: int, version: int, state: Any = None) -> Any:
        return self.algorithm.plan(number, version, of_directions(self._seed, number), state)

    def _commit(self, current: Round, version: int) -> tuple[Any, list[tuple[int, int, list[int]]]]:
        """Aggregate the reports of the open round and those that came late.

        Returns:
            The commit, None without a quorum; and what `RoundRecord.late` has of the reports of earlier rounds in it.
        """
        total = self._overdue.count(current)
        if total < self.policy.quorum and self._divisor is None:
            return None, []
        if current.exchange.sums_reports or self._noise is not None:
            return self._of_sum(current), []
        fresh_count = len(current.reports)
        current.reports = self._filtered(current.plan, current.reports)
        overdue, late = self._overdue.take(version, total)
        overdue = [each._replace(reports=self._filtered(each.plan, dict(each.reports))) for each in overdue]
        try:
            commit, self._state = self._overdue.aggregate(
                self.algorithm, self._state, current, overdue, share=fresh_count / total
            )
        except OverflowError as error:
            raise Unfinishable(f"round {current.plan.round} can make no commit: {error}") from None
        return commit, late

    def _filtered(self, plan: Any, reports: dict[int, Any]) -> dict[int, Any]:
        for change in self._filters:
            reports = change(self.algorithm, plan, reports)
        return reports

    def _of_sum(self, current: Round) -> Any:
        """Return the commit of the sum of reports, with noise; None if the sum is not known.

        Where how many reports there are is secret, the sum is divided by m, and may be noise alone.
        """
        algorithm, round, noise = sums(self.algorithm), current.plan.round, self._noise
        numbers = {client: algorithm.numbers(report) for client, report in current.reports.items()}
        if not current.exchange.sums_reports:
            nothing = algorithm.numbers(algorithm.of_numbers(current.plan, 0))
            total = None if noise is None else noise.sum(round, [nothing, *numbers.values()])
        elif (total := current.exchange.total(numbers)) is not None and noise is not None:
            total = noise.noised(round, total)
        if total is None:
            return None
        try:
            whole = Total(total, self._divisor or len(numbers))
            commit, self._state = self.algorithm.aggregate(self._state, current.plan, whole, members=current.members)
        except OverflowError as error:
            raise Unfinishable(f"round {round} can make no commit: {error}") from None
        return commit
