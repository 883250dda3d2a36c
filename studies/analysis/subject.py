"""A finished run as its instruments see it: the models of some rounds, their curvature, and H without a signal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.launcher import unpacked
from seedbus.agents.seeds import of_directions, of_step
from seedbus.algorithms.contract import Algorithm, Declined, Replica, Vector
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.discovery import check_shape
from seedbus.keyed import keyed_bits
from seedbus.models.device import placed_beside
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.partitions.own import Own
from seedbus.models.task import Problem, Task, TwiceDifferentiable
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.client_groups import Groups, groups_of
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import MEMORY, scenario_of
from seedbus.scenarios.running.prepare import followed
from seedbus.scenarios.running.replay import Replayed, replays
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import nearest, quoted
from seedbus.studies.analysis.client_models import Personalises
from seedbus.studies.analysis.curvature import Curvature, Effort, measured
from seedbus.studies.analysis.lanczos import Vector64
from seedbus.studies.analysis.quantities import served_metric

ABOUT_NULLS = (
    "mean [least, most] of {nulls} H for which the run's scalars were folded along other directions than they were "
    "measured on."
)
"""What H without a signal are, in words."""


class NotHere(Exception):
    """An instrument has nothing to measure in this run; the text is a sentence that says why."""


@dataclass
class Model:
    """The model of one round.

    Attributes:
        replayed: the model.
        run: the run.
    """

    replayed: Replayed
    run: Subject

    @property
    def round(self) -> int:
        return self.replayed.round

    @property
    def point(self) -> Vector:
        return self.replayed.point

    def plan(self, client: int) -> Any:
        """Return the plan of a client in the round that begins with the model, as the client has it."""
        algorithm, scenario, round = self.run.algorithm, self.run.scenario, self.round
        if not scenario.has_server:
            return algorithm.plan(round, 0, of_step(scenario.seed, client, round))
        version = self.replayed.replica.version
        sent = algorithm.pack_plan(algorithm.plan(round, version, of_directions(scenario.seed, round))).body
        return algorithm.unpack_plan(sent, round, version)  # with the client's shift

    @cached_property
    def is_personal(self) -> bool:
        """Whether clients have models of their own beside it."""
        try:
            return self._personal(0, None) is not None
        except NotHere:
            return True

    def served(self, client: int) -> Vector:
        """Return the point of the model that a client uses, of all coordinates: its own, or the one that all share.

        Raises:
            NotHere: the client has one of its own, which is not kept or has numbers that are not finite.
        """
        problem: Any = self.run.problem
        if not self.is_personal:
            x = self.point
        elif self.round < len(self.run.stored):
            raise NotHere("what clients remember, which makes their own models, is kept of the run's end alone")
        else:
            own = self._personal(client, self.run.memories.before(client, self.round))
            check_shape(own, self.point.shape, f"`personal` of the algorithm {self.run.algorithm.facts.label}")
            x = np.array(own, np.float32)
            if not np.isfinite(x).all():
                raise NotHere(f"client {client} has no model of its own: its numbers are not finite")
        return problem.whole(x) if isinstance(problem, MaskedProblem) else x

    def _personal(self, client: int, memory: Any) -> Vector | None:
        """Return the own model of a client that remembers this. Raises `NotHere`."""
        algorithm: Any = self.run.algorithm
        if not isinstance(algorithm, Personalises):
            return None
        try:
            objective = self.run.problem.objective(client, self.round)
            return algorithm.personal(self._placed, memory, self.plan(client), objective)
        except Declined as why:
            raise NotHere(f"client {client} has no model of its own: {why}") from None

    @cached_property
    def _placed(self) -> Replica:
        """The replica, where the problem computes."""
        return self.replayed.replica.placed(placed_beside(self.run.problem))

    @cached_property
    def curvature(self) -> Curvature:
        """The Hessian there. Raises `NotHere` for a task without one, and where it is not finite."""
        problem: Any = self.run.problem
        inside = problem.inside if isinstance(problem, MaskedProblem) else problem
        if not isinstance(inside, TwiceDifferentiable):
            raise NotHere(f"task {self.run.scenario.task.name} has no second derivatives here")
        effort, what = self.run.effort, f"round {self.round:,}"
        try:
            with problem.derivatives(self.point, effort.samples) as derivatives:
                return measured(derivatives, problem.dimension, effort, self.run.meter, what)
        except FloatingPointError:
            raise NotHere(f"derivatives of the loss at the model of {what} are not finite numbers") from None

    @cached_property
    def scaling(self) -> Vector64 | None:
        """What divides the squares of directions after this round, HiSo's H, float64 [d]; None: nothing does."""
        algorithm = self.run.algorithm
        if not isinstance(algorithm, ScalarOnly):
            return None
        found = algorithm.divisor(self.replayed.replica.fields, np.empty_like(self.point))
        return None if found is None else np.asarray(found, np.float64) ** 2

    @cached_property
    def null_hessians(self) -> list[Vector64]:
        """H as it would be without a signal, several times, float64 [d] each.

        The run's own scalars are folded along other directions than they were measured on: all is as in the run, but
        what H could know of coordinates.
        """
        algorithm, commits = self.run.algorithm, self.run.commits[: self.replayed.replica.version]
        found, work = [], self.run.meter.begin(f"round {self.round:,}: H without a signal", self.run.effort.nulls)
        for number in range(self.run.effort.nulls):
            replica = algorithm.replica(self.run.problem.x0())
            algorithm.apply(replica, [_elsewhere(commit, number) for commit in commits])
            found.append(replica.fields["hessian"].astype(np.float64))
            work.advance()
        work.end()
        return found


@dataclass
class Subject:
    """A finished run.

    Attributes:
        folder: its folder.
        results: its results and its ledger.
        scenario: its scenario.
        problem: its task with its data.
        algorithm: its algorithm, as followers have it.
        stored: its rounds, as they are in the journal.
        models: those of the rounds that are asked for, ascending.
        effort: how much is spent on each.
        meter: shows progress.
        metric: by which it is told how well clients are served.
        groups: its groups of clients.
    """

    folder: Path
    results: Results
    scenario: Scenario
    problem: Problem
    algorithm: Algorithm
    stored: Sequence[StoredRound]
    effort: Effort
    meter: Meter
    metric: str
    groups: Groups
    has_samples: bool
    models: Sequence[Model] = ()

    @staticmethod
    def of(
        folder: Path,
        rounds: Sequence[int],
        effort: Effort,
        meter: Meter,
        task: Task | None = None,
        *,
        own: str = "",
    ) -> Subject:
        """Read a run and rebuild its models.

        Args:
            folder: the run's folder.
            rounds: after how many; none: after the last.
            effort: how much is spent on each, and the metric.
            meter: shows progress.
            task: in the place of the run's own.
            own: all owners' files or folders, as `--own` takes them; "": none.

        Raises:
            RunFolderError, JournalDamaged, LedgerDamaged, DataError, ScenarioError: the run cannot be read or replayed,
                or the task has no such metric.
        """
        results = Results.read(folder)
        chosen: list[int | None] = [*sorted(set(rounds))] or [None]
        scenario = scenario_of(folder).with_task(task)
        metric = effort.metric
        if not (metric is None or metric in scenario.task.metrics):
            what = f"metric: {quoted(metric)} is not measured; {nearest(str(metric), scenario.task.metrics)}"
            raise ScenarioError(str(folder), [what])
        served = served_metric(scenario.task, metric)
        replayed = list(replays(folder, chosen, task=task, own=own))
        with closing(Journal.open(folder, for_writing=False)) as journal:
            stored = list(journal.rounds())
            groups = groups_of(scenario, journal.facts())
        problem = replayed[0].problem
        algorithm = followed(scenario, problem)
        has_samples = bool(own) or not isinstance(scenario.partition, Own)
        run = Subject(folder, results, scenario, problem, algorithm, stored, effort, meter, served, groups, has_samples)
        run.models = [Model(each, run) for each in replayed]
        return run

    @cached_property
    def memories(self) -> ClientStateStore:
        """What clients remember, as it is in the run's folder."""
        return ClientStateStore(self.folder / MEMORY, self.algorithm)

    @cached_property
    def commits(self) -> list[Any]:
        """All commits, oldest first; of a dense algorithm those that are kept.

        Raises:
            NotHere: the first ones were pruned.
        """
        if not self.algorithm.facts.is_dense and any(stored.commit == [] for stored in self.stored):
            raise NotHere("the first commits were pruned from the journal")
        made = (stored for stored in self.stored if stored.commit)
        return [commit for stored in made for commit in unpacked(self.algorithm, stored, self.folder / FILE)]


def _elsewhere(commit: Any, number: int) -> Any:
    """Return a commit with the same scalars along other directions."""
    terms = [replace(term, seed=keyed_bits("null", number, term.seed)) for term in commit.terms]
    return replace(commit, terms=tuple(terms))
