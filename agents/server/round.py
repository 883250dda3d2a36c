"""A round that was begun: whom it asked, what it was told, who has answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seedbus.agents.messages import AnyAlgorithm
from seedbus.algorithms.contract import LateReports, Packed, ReportRefused
from seedbus.bus import Envelope, Tally


@dataclass(slots=True)
class Round:
    """One round. size: |C_r|, clients asked; reports: those that have come and are in no commit yet.

    lags: commits that each of the cohort had missed when it was asked; members: of how many clients it was drawn; peak:
    what the cohort is told of the reports, once these make a commit.
    """

    plan: Any
    cohort: list[int]
    opened_ns: int
    size: int
    waiting: set[int]
    members: int = 0
    reports: dict[int, Any] = field(default_factory=dict)
    declined: set[int] = field(default_factory=set)
    told: dict[int, tuple[Envelope, Tally]] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)
    is_expired: bool = False
    peak: Packed | None = None
    lags: list[int] = field(default_factory=list)

    def admit(self, envelope: Envelope) -> None:
        """Raises `ReportRefused` if no report is due from this client, or not from there."""
        client, round = envelope.client, self.plan.round
        if client in self.reports or client in self.declined:
            raise ReportRefused("duplicate", f"client {client} has answered in round {round}")
        if client not in self.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked in round {round}")
        if envelope.base != self.plan.version:
            raise ReportRefused("wrong-version", f"it started at version {envelope.base}, not {self.plan.version}")


class OverdueState(NamedTuple):
    """What a checkpoint stores of a closed round that may still be answered; in this order.

    Attributes:
        round: its number, the version at which it started, when it opened in nanoseconds, and the size of its cohort.
        waiting: the clients that have not answered, ascending.
        reports: (client, packed report) of those that came late and are in no commit yet, ascending.
    """

    round: tuple[int, int, int, int]
    waiting: list[int]
    reports: Sequence[tuple[int, list[Any]]]


class OverdueRounds:
    """Rounds that are closed and may still be answered, oldest first; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._attempts: dict[int, Round] = {}

    def get(self, round: int) -> Round | None:
        return self._attempts.get(round)

    def add(self, attempt: Round) -> None:
        """A round has closed; those whom it still waits for may be late."""
        if self._most:
            attempt.told.clear()
            self._attempts[attempt.plan.round] = attempt
        self.forget(attempt.plan.round + 1 - self._most)

    def forget(self, round: int) -> None:
        """Give up what is older than `round`, and rounds that are complete and used up."""
        for number in [n for n, old in self._attempts.items() if n < round or not (old.waiting or old.reports)]:
            del self._attempts[number]

    def dismiss(self, client: int) -> None:
        """Nothing is awaited of a client any more."""
        for attempt in self._attempts.values():
            attempt.waiting.discard(client)

    def busy(self, after_ns: int) -> set[int]:
        """Everybody who is still at work for a round that was opened later than at `after_ns`."""
        recent = (attempt for attempt in self._attempts.values() if attempt.opened_ns > after_ns)
        return {client for attempt in recent for client in attempt.waiting}

    @property
    def is_awaited(self) -> bool:
        """Whether anybody may still answer."""
        return any(attempt.waiting for attempt in self._attempts.values())

    @property
    def count(self) -> int:
        """Late reports that have come and are in no commit yet."""
        return sum(len(attempt.reports) for attempt in self._attempts.values())

    def take(self, weight: Callable[[Round], float]) -> list[LateReports]:
        """The late reports by round, each round with the weight of each of its reports; they are used up."""
        found = []
        for attempt in self._attempts.values():
            if attempt.reports:
                found.append(LateReports(attempt.plan, attempt.reports, weight(attempt)))
                attempt.reports = {}
        return found

    def pack(self, algorithm: AnyAlgorithm) -> list[OverdueState]:
        """Return what a checkpoint stores, oldest first."""
        return [
            OverdueState(
                (attempt.plan.round, attempt.plan.version, attempt.opened_ns, attempt.size),
                sorted(attempt.waiting),
                [
                    (client, algorithm.pack_report(attempt.plan, report).body)
                    for client, report in sorted(attempt.reports.items())
                ],
            )
            for attempt in self._attempts.values()
        ]

    def unpack(self, algorithm: AnyAlgorithm, packed: Sequence[Any], plan: Callable[[int, int], Any]) -> None:
        """plan: what the cohort of a round was told, from the round and its version."""
        self._attempts = {}
        for state in (OverdueState(*each) for each in packed):
            round, version, opened_ns, size = state.round
            told = plan(round, version)
            came = {client: algorithm.unpack_report(body, told) for client, body in state.reports}
            self._attempts[round] = Round(told, [], opened_ns, size, set(state.waiting), reports=came)
