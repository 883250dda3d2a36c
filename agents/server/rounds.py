"""Rounds, as the participation policy has them: who is asked, what counts, when a round is over, what it commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from seedbus.agents.messages import AnyAlgorithm
from seedbus.agents.policies.participation import Late, Participation
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.round_record import RoundRecord
from seedbus.agents.seeds import of_directions
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.round import OverdueRounds, Round
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus.network import round_ns
from seedbus.vector import norm


class RoundsState(NamedTuple):
    """What a checkpoint stores of the rounds; in this order.

    Attributes:
        number: of the round that opens next.
        known: what selection knows of clients; [] if its policy needs nothing.
        answer_times_ns: how long the latest answers took, oldest first; of a deadline that learns.
        overdue: closed rounds that may still be answered.
        algorithm: the algorithm's own state at the server.
    """

    number: int
    known: list[Any]
    answer_times_ns: list[int]
    overdue: list[Any]
    algorithm: Any


class Rounds:
    """The round under way, and those before it that may still be answered. state: the algorithm's own, the server's,
    before the first commit."""

    def __init__(self, algorithm: AnyAlgorithm, participation: Participation, seed: int, state: Any = None) -> None:
        self.algorithm, self.policy, self._seed = algorithm, participation, seed
        self.number = 0
        self.current: Round | None = None
        self._overdue = OverdueRounds(participation.staleness)
        self._known = Known()
        self._answer_times_ns = deque[int](maxlen=participation.deadline.window if participation.deadline else 0)
        self._state = state

    def open(self, members: MemberIndex, version: int, now_ns: int) -> Round:
        """Begin the next round at a version."""
        busy = set[int]()
        if self.policy.buffer is not None:  # whoever has not answered by the deadline may be asked again
            busy = self._overdue.busy(-1 if self.deadline_ns is None else now_ns - self.deadline_ns)
        with members.without(busy):
            cohort = self.policy.draw(members, self._known, self._seed, self.number, len(busy))
        plan = self._plan(self.number, version)
        cohort = self.algorithm.reachable(plan, cohort)
        self.current = Round(plan, cohort, now_ns, len(cohort), set(cohort), len(members))
        return self.current

    @property
    def deadline_ns(self) -> int | None:
        """How long the round that opens now may take; None: as long as its cohort does."""
        if self.policy.deadline_s is None:
            return None
        latest = round_ns(self.policy.deadline_s)
        if self.policy.deadline is None or not self._answer_times_ns:
            return latest
        return min(latest, self.policy.deadline.after_ns(self._answer_times_ns))

    def attempt(self, round: int | None) -> Round | None:
        """A round that is still to be answered; by default the open one."""
        return self.current if round in (None, self.number) else self._overdue.get(round or 0)

    def asking(self, round: int) -> Round:
        """The round that a report is for. Raises `ReportRefused`."""
        if round > self.number or (round == self.number and self.current is None):
            raise ReportRefused("wrong-round", f"round {round} has not begun; this is round {self.number}")
        attempt = self.attempt(round)
        if attempt is None:
            raise ReportRefused("late", f"round {round} is closed")
        return attempt

    def count(self, attempt: Round, client: int, report: Any, now_ns: int) -> None:
        """A report is good."""
        attempt.reports[client] = report
        attempt.waiting.discard(client)
        self._answer_times_ns.append(now_ns - attempt.opened_ns)
        if self.policy.selection.needs_known:
            self._known.reports[client] += 1
            self._known.worth[client] = norm(self.algorithm.values(report))

    def dismiss(self, client: int, *, open_too: bool = False) -> None:
        """Nothing is awaited of a client any more for earlier rounds, or for any."""
        self._overdue.dismiss(client)
        if open_too and self.current is not None:
            self.current.waiting.discard(client)

    @property
    def is_over(self) -> bool:
        """Whether the open round is to be closed."""
        now, policy = self.current, self.policy
        if now is None:
            return False
        if policy.buffer is not None:
            is_full = len(now.reports) + self._overdue.count >= policy.buffer
            return now.is_expired or is_full or not (now.waiting or self._overdue.is_awaited)
        is_enough = policy.over_selection > 1 and len(now.reports) >= policy.size
        return now.is_expired or is_enough or not now.waiting

    def close(self, version: int, now_ns: int) -> tuple[Round, list[int], Any, RoundRecord]:
        """The round that was open, who reported in it, its commit, None without a quorum, and how it went.

        version: the newest before it. Raises `ValueError` if no round is open.
        """
        if self.current is None:
            raise ValueError(f"round {self.number} cannot be closed: it is not open")
        closed, reported = self.current, sorted(self.current.reports)
        late: list[tuple[int, list[int]]] = []
        commit = self._commit(closed, version, late)
        record = RoundRecord(closed.opened_ns, now_ns, closed.is_expired, closed.lags, late)
        self.current = None
        if commit is not None:
            closed.peak = self.algorithm.max_norm(closed.plan, closed.reports)
        if commit is None:
            self._answer_times_ns.clear()
        if commit is not None or self.policy.buffer is None:
            closed.reports = {}  # a round without quorum is void, but a buffer goes on filling
        self._overdue.add(closed)
        self.number += 1
        return closed, reported, commit, record

    @property
    def is_half_in(self) -> bool:
        """True once half of the reports of the open round are there."""
        return self.current is not None and 2 * len(self.current.reports) >= len(self.current.cohort)

    def pack(self) -> RoundsState:
        """Return what a checkpoint stores. A round that is open is not in it."""
        return RoundsState(
            number=self.number,
            known=self._known.pack() if self.policy.selection.needs_known else [],
            answer_times_ns=list(self._answer_times_ns),
            overdue=self._overdue.pack(self.algorithm),
            algorithm=self._state,
        )

    def unpack(self, packed: Sequence[Any]) -> None:
        """Go on from what `pack` returned; no round is open then."""
        state = RoundsState(*packed)
        self.current = None
        self.number = state.number
        self._state = state.algorithm
        self._known.unpack(state.known)
        self._answer_times_ns.clear()
        self._answer_times_ns.extend(state.answer_times_ns)
        self._overdue.unpack(self.algorithm, state.overdue, self._plan)

    def _plan(self, round: int, version: int) -> Any:
        return self.algorithm.plan(round, version, of_directions(self._seed, round))

    def _commit(self, now: Round, version: int, late_ones: list[tuple[int, list[int]]]) -> Any:
        """late_ones: takes those of earlier rounds that are in the commit."""
        policy, fresh, late = self.policy, len(now.reports), self._overdue.count
        total = fresh + late if policy.buffer is not None else fresh
        if total < policy.quorum:
            return None

        def weight(discount: Late, attempt: Round) -> float:
            asked = attempt.size if policy.buffer is None else total
            staleness = version - attempt.plan.version
            late_ones.append((staleness, sorted(attempt.reports)))
            return discount.weight(staleness) / asked

        share = 1.0 if policy.buffer is None else fresh / total
        overdue = self._overdue.take(partial(weight, policy.late)) if late and policy.late is not None else []
        commit, self._state = self.algorithm.aggregate(
            self._state, now.plan, now.reports, share=share, late=overdue, members=now.members
        )
        return commit
