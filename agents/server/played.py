"""Rounds as another run's journal has them: whom each asked, and which reports are in its commit.

A federation in real time commits what has come by its deadlines, which no seed repeats. A rehearsal asks the same
clients, waits for all of them, and commits the same reports: what is decided by chance is played, and what is computed
is computed anew. A report that counted late is held back until the round whose commit it entered.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from pydantic import PrivateAttr

from seedbus.agents.journal.metrics import WHEN
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.overdue import OverdueRounds, overdue_rounds
from seedbus.agents.server.round import Round
from seedbus.agents.server.run_spec import RunSpec
from seedbus.algorithms.contract import Algorithm, LateReports


class Switched:
    """Stands for a fault that has already had its effect on who was asked and what counted."""


class AsAsked(Selection):
    """Each round asks whom another run's did. No scenario can name this policy."""

    is_fixed_size: ClassVar[bool] = False

    policy: str = "as-asked"
    _cohorts: Sequence[Sequence[int]] = PrivateAttr(())

    @classmethod
    def of(cls, rounds: Sequence[StoredRound]) -> AsAsked:
        """Return the policy of a run's rounds."""
        policy = cls()
        policy._cohorts = [stored.cohort for stored in rounds]
        return policy

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        return list(self._cohorts[round])


class PlayedRounds(OverdueRounds):
    """Closed rounds whose late reports enter the commits that they entered in another run.

    A round waits for all of its cohort, so a later one finds all reports that it may need.

    Args:
        policy: the other run's, which says how late reports weigh.
        rounds: those of its journal.
    """

    def __init__(self, policy: Participation, rounds: Sequence[StoredRound]) -> None:
        super().__init__(policy)
        self._kind = overdue_rounds(policy)
        self._stored = rounds
        self._counts_later = {
            (number, client) for stored in rounds for number, _, clients in stored.record.late for client in clients
        }
        self._now: StoredRound = rounds[0]
        self._later: dict[int, Any] = {}

    def at_work(self, now_ns: int, deadline_ns: int | None, computing: Container[tuple[int, int]] | None) -> set[int]:
        return set()

    def lacking(self, members: MemberIndex, computing: Container[tuple[int, int]] | None) -> int:
        return 0

    def is_over(self, current: Round) -> bool:
        return not current.waiting

    def keep(self, answered: Round, client: int, report: Any) -> None:
        """Keep a report that came in time in the other run, or that counted later; of the others none."""
        number = answered.plan.round
        if client in self._stored[number].reported:
            answered.reports[client] = report
        if (number, client) in self._counts_later:
            self._later[client] = report

    def count(self, current: Round) -> int:
        self._now = self._stored[current.plan.round]
        if self._now.commit is None:
            return 0
        return len(current.reports) + (sum(map(len, self._due().values())) if self._kind.keeps_reports else 0)

    def _due(self) -> dict[int, dict[int, Any]]:
        """Return the late reports that enter the present commit, by round."""
        due = {}
        for number, _, clients in self._now.record.late:
            held = self._rounds[number].reports if number in self._rounds else {}
            due[number] = {client: held[client] for client in clients if client in held}
        return due

    def divisor(self, closed: Round, total: int) -> int:
        return self._kind.divisor(closed, total)

    def aggregate(
        self, algorithm: Algorithm, state: Any, current: Round, late: Sequence[LateReports], *, share: float
    ) -> tuple[Any, Any]:
        return self._kind.aggregate(algorithm, state, current, late, share=share)

    def take(self, version: int, total: int) -> tuple[list[LateReports], list[tuple[int, int, list[int]]]]:
        remaining = {number: closed.reports for number, closed in self._rounds.items()}
        due = self._due()
        for number, closed in self._rounds.items():
            closed.reports = due.get(number, {})
        taken = super().take(version, total)
        for number, closed in self._rounds.items():
            mine = due.get(number, {})
            closed.reports = {client: each for client, each in remaining[number].items() if client not in mine}
        return taken

    def add(self, closed: Round) -> None:
        closed.reports, self._later = self._later, {}
        super().add(closed)


class Decisions(NamedTuple):
    """What was decided in a run, of which the rest follows.

    Attributes:
        rounds: those of its journal, one at least.
        evaluations: its lines of metrics, each with the clients that have measured it; None: not some of them.
    """

    rounds: Sequence[StoredRound]
    evaluations: Sequence[tuple[dict[str, Any], Sequence[int] | None]] = ()

    def played(self, spec: RunSpec) -> RunSpec:
        """Return a run in simulated time that asks whom this one asked, and commits the reports that it committed."""
        policy, rounds, everybody = spec.participation, self.rounds, range(spec.participation.clients)
        own = {"selection": AsAsked.of(rounds), "deadline_s": None, "deadline": None, "every_s": None}
        ends = {"rounds": len(rounds), "target": None, "bytes": None, "simulated_s": None, "epsilon": None}
        return replace(
            spec,
            participation=policy.model_copy(update=own),
            stop=spec.stop.model_copy(update=ends | {"diverged": "continue"}),
            faults=[Switched() for _ in spec.faults],
            is_virtual=True,
            overdue=lambda _: PlayedRounds(policy, rounds),
            measure={_when(line): everybody if told is None else told for line, told in self.evaluations},
        )

    def difference(self, other: Decisions) -> str | None:
        """Return in what a rehearsal of this run is the first time not as this; None: in nothing."""
        for theirs, ours in zip(self.rounds, other.rounds, strict=True):
            counted, computed = _counted(theirs), _counted(ours)
            if counted != computed:
                number, client = min(counted ^ computed)
                late = f" of round {number}" if number != theirs.round else ""
                return f"round {theirs.round} counted the report{late} of client {client}, and here there is none"
            if theirs.commit != ours.commit:
                whose = ", ".join(map(str, sorted({client for _, client in counted}))) or "nobody"
                return f"round {theirs.round} has another commit: a report of clients {whose} is another one here"
        here = {_when(line): line for line, _ in other.evaluations}
        for line, _ in self.evaluations:
            for name in (name for name in line if name not in (*WHEN, "asked")):
                if line[name] != (computed_value := here.get(_when(line), {}).get(name)):
                    what = f"{name} after round {line['round']:g} is {line[name]!r} there and {computed_value!r} here"
                    return f"{what}, though the model is the same"
        return None


def _when(line: dict[str, Any]) -> tuple[int, int]:
    return int(line["round"]), int(line["version"])


def _counted(stored: StoredRound) -> set[tuple[int, int]]:
    """Return (round, client) of each report that came in time or entered a round's commit."""
    late = {(number, client) for number, _, clients in stored.record.late for client in clients}
    return late | {(stored.round, client) for client in stored.reported}
