"""A study: runs of one scenario with many settings and seeds, made once, kept, and compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from seedbus.agents.errors import AgentError
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError, check_methods, not_accepted, path_of
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.progress import in_notebook
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import is_whole
from seedbus.scenarios.tracking.tracker import Tracker, usable
from seedbus.studies.study import MOST_PROCESSES, search, tuning
from seedbus.studies.study.cells import Cell, Plan, is_rising, metric_of, plan_of
from seedbus.studies.study.estimate import Wanted
from seedbus.studies.study.finished_runs import RowRun, kept_run, read_run
from seedbus.studies.study.intervals import smallest_step
from seedbus.studies.study.pool import Answer, Job, Pool
from seedbus.studies.study.possible import refuse_impossible_rows
from seedbus.studies.study.progress import StudyProgress
from seedbus.studies.study.results import Failure, StudyResults
from seedbus.studies.study.store import Store, StoredRun
from seedbus.studies.study.study_report import StudyReport
from seedbus.studies.study.trials import Trial, Tuned, in_words
from seedbus.studies.study.tuning import Values
from seedbus.studies.study.worker import done, make_run

STUDIES = "studies"
RUNS = "runs"  # all that are not trials


class Watcher(Protocol):
    """Is told how a study goes on."""

    def begins(self, plan: Plan, what: str, runs: int, rounds: int, finished: int) -> None:
        """Runs begin.

        Args:
            plan: the study.
            what: the kind of runs.
            runs: their number, with those that are finished already.
            rounds: rounds of the runs that are to be made.
            finished: number of runs that are finished already.
        """
        ...

    def advanced(self, row: str, seed: int, rounds: int) -> None:
        """A run has closed rounds."""
        ...

    def ended(self, row: str, seed: int, rounds: int, failure: str | None) -> None:
        """A run has ended."""
        ...


@dataclass(frozen=True)
class _Subject:
    """The run that a job makes."""

    row: str
    stored: StoredRun

    @property
    def seed(self) -> int:
        return self.stored.scenario.seed

    @property
    def rounds(self) -> int:
        """How many rounds it has at most; 1 where only time ends it, so that it is one step of the study's progress."""
        return self.stored.scenario.stop.rounds or 1


@dataclass
class Conduct:
    """Carries out a study.

    Attributes:
        plan: the study and its rows.
        store: the folder of studies.
        pool: the processes that make the runs.
        watcher: is told how it goes on; may be None.
        is_idle: make nothing, and return what is there.
        launch: where the clients of runs are, see `worker`; None: in the process that makes the run.
        trackers: names of the trackers that are told of all runs but trials, also of those that are finished.
        failures: runs that could not be made.
        notes: why trackers are told no more, each once.
        batches: the trials, in the order in which they were asked for.
        meter: shows how far the reading of finished runs is.
    """

    plan: Plan
    store: Store
    pool: Pool
    watcher: Watcher | None = None
    is_idle: bool = False
    launch: dict[str, Any] | None = None
    trackers: Sequence[str] = ()
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    batches: list[list[StoredRun]] = field(default_factory=list)
    meter: Meter = field(default_factory=lambda: Meter(is_quiet=True))

    def run(self) -> StudyResults:
        """Tune if asked for, make all runs that are missing, and return what was found.

        Raises:
            ScenarioError, DataError: a scenario, or a file that it names, is not valid, or a row can never run.
        """
        metric = metric_of(self.plan)
        if not self.is_idle:
            refuse_impossible_rows(self.plan, 0 if self.launch is None else self.launch["workers"])
        values = self.tuned(metric) if self.plan.study.tuned_fields else {}
        wanted = dict(wanted_runs(self.plan, self.store, {row: each.chosen for row, each in values.items()}))
        self._make(RUNS, [_Subject(row, run) for (row, _), run in wanted.items()], self.plan.study.ask.parts(metric))
        found = results_of(self.plan, self.store, metric, wanted, values, self.failures, self.meter)
        known = [run for batch in self.batches for run in batch]
        return replace(found, trial_runs=(sum(run.is_finished for run in known), len(known)))

    def tuned(self, metric: str) -> dict[str, Tuned]:
        """Choose the values of every row by trials, which are made if they are missing."""
        choose = search.searched if self.plan.study.is_searched else tuning.tuned
        return choose(self.plan, is_rising(self.plan, metric), lambda batch: self._tried(batch, metric))

    def _tried(self, batch: list[tuple[Cell, Values]], metric: str) -> list[Trial]:
        """Make trials, and return what they found; see `tuning.Batch`."""
        seeds = self.plan.study.tuning.seeds or self.plan.study.seeds[:1]
        trials = [
            [self.store.stored(trial_of(self.plan, cell, values, seed)) for seed in seeds] for cell, values in batch
        ]
        named = [f"{cell.name}, {in_words(values)}" for cell, values in batch]
        subjects = [_Subject(name, run) for name, runs in zip(named, trials, strict=True) for run in runs]
        self.batches.append([subject.stored for subject in subjects])
        what = f"trials ({self._batch})"
        self._make(what, subjects, [])
        if self.is_idle and not any(subject.stored.is_finished for subject in subjects):
            return []
        made = list(zip(named, batch, trials, strict=True))
        return [
            self._found(name, values, runs, metric)
            for name, (_, values), runs in self.meter.over(f"{self.plan.study.name}: reading {what}", made)
        ]

    @property
    def _batch(self) -> str:
        """Which batch of trials the last one is, in words."""
        study = self.plan.study
        most = math.ceil(study.tuning.trials / search.BATCH) if study.is_searched else 1 + study.tuning.further
        return f"batch {len(self.batches)} of {'' if study.is_searched else 'at most '}{most}"

    def _found(self, name: str, values: Values, runs: list[StoredRun], metric: str) -> Trial:
        """Return what a trial found; its score is NaN unless all of its runs have a final moving average.

        Those have none that are not finished, cannot be read, or diverged.
        """
        finals, measured = [], list[float]()
        for stored in runs:
            if stored.is_finished:
                final = None
                with _noting(self.failures, name, stored):
                    run = kept_run(stored, metric)
                    final = None if run.divergence else run.at(metric, run.rounds[-1], is_average=True)
                    measured += run.values(metric)
                finals.append(math.nan if final is None else final)
        score = sum(finals) / len(finals) if len(finals) == len(runs) else math.nan
        return Trial(values, score, tuple(finals), smallest_step(measured))

    def _make(self, what: str, subjects: list[_Subject], parts: Sequence[str]) -> None:
        """Make those of the runs that are missing, each once, and measure parts of their final models."""
        if self.is_idle:
            return
        missing: dict[Path, _Subject] = {}
        for subject in subjects:
            is_told, stored = bool(self.trackers) and what == RUNS, subject.stored
            with _noting(self.failures, subject.row, stored):
                if is_told or not stored.is_finished or set(parts) - stored.measured().keys():
                    missing.setdefault(stored.folder, subject)
        rounds = sum(subject.rounds for subject in missing.values())
        count = len({subject.stored.folder for subject in subjects})
        if self.watcher is not None:
            self.watcher.begins(self.plan, what, count, rounds, count - len(missing))
        jobs = []
        for folder, subject in missing.items():
            scenario = subject.stored.scenario
            facts: dict[str, Any] = {"scenario": scenario.resolved(), "folder": str(folder), "parts": list(parts)}
            track = self._track(subject) if self.trackers and what == RUNS else None
            # a tracker would take a copy of a run, which has its identifier, for that run
            is_new = not (subject.stored.has_begun or self.trackers)
            shorter = self.store.shorter(scenario) if is_new else None
            facts |= {"launch": self.launch, "track": track, "shorter": None if shorter is None else str(shorter)}
            jobs.append(Job("run", subject, facts))
        for answer in self.pool.do(jobs) if self.plan.task is None else self._done_here(jobs):
            self._note(answer)

    def _done_here(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """Do all jobs in this process, which alone has the task, and yield the last answer to each.

        Raises:
            KeyboardInterrupt: on Ctrl-C, which stops the study too.
        """
        for job in jobs:
            told = partial(self._told, job)
            yield Answer(job, done(job.facts, told, partial(make_run, task=self.plan.task)))

    def _told(self, job: Job, facts: dict[str, Any]) -> None:
        self._note(Answer(job, facts))

    def _track(self, subject: _Subject) -> dict[str, Any]:
        """Return what trackers are told of a run, see `worker`."""
        cell = next(cell for cell in self.plan.cells if cell.name == subject.row)
        study, seed = self.plan.study.name, str(subject.seed)
        tags = {"study": study, "row": subject.row, "variant": cell.variant, "condition": cell.condition, "seed": seed}
        return {
            "trackers": list(self.trackers),
            "folder": str(self.store.folder / study),
            "name": f"{subject.row}, seed {seed}",
            "tags": {name: text for name, text in tags.items() if text},
        }

    def _note(self, answer: Answer) -> None:
        subject: _Subject = answer.job.subject
        if not answer.is_last:
            if self.watcher is not None:
                self.watcher.advanced(subject.row, subject.seed, min(subject.rounds, answer.facts["rounds"]))
            return
        if answer.failure is not None:
            self.failures.append(Failure(subject.row, subject.seed, answer.failure))
        else:
            if answer.facts["measured"]:
                with _noting(self.failures, subject.row, subject.stored):
                    subject.stored.add(answer.facts["measured"])
            self.notes += [note for note in answer.facts["notes"] if note not in self.notes]
        if self.watcher is not None:
            self.watcher.ended(subject.row, subject.seed, subject.rounds, answer.failure)


def study(
    source: str | Path | dict[str, Any],
    folder: str | Path = STUDIES,
    *,
    jobs: int = 1,
    task: Task | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    watcher: Watcher | None = None,
    progress: bool | None = None,
    track: str | Sequence[str] = (),
) -> StudyReport:
    """Make all runs of a study that are missing, and return what was found.

    Args:
        source: the file of a study, or its fields.
        folder: the folder of studies, where runs are kept and looked for.
        jobs: number of processes, 1 to 1,024.
        task: what all rows train, in the place of their scenarios' tasks; None: these. Runs of a task with objects of
            this program, as of a `TorchTask`, are made in this process; they are kept by the task's weights, its data
            and its metrics of these weights.
        settings: fields that are changed in the scenario of every row, as by `--set`: a mapping from fields, such as
            "stop.rounds", to values, or `field=value` entries.
        watcher: is told how it goes on; None: as `progress` says.
        progress: show the progress of the study; None: in a notebook only.
        track: names of the trackers that are told of every run but trials, such as "tensorboard".

    Raises:
        ScenarioError, DataError: the study, a scenario of it, or a file that one names, is not valid.
    """
    if not is_whole(jobs) or not 1 <= jobs <= MOST_PROCESSES:
        what = f"expected a whole number of processes, 1 to {MOST_PROCESSES:,}"
        raise ScenarioError("jobs", [f"{jobs!r} is not accepted; {what}"])
    if watcher is not None:
        check_methods(watcher, Watcher, "watcher")
    plan = plan_of(source, settings, task)
    if plan.task is not None and jobs != 1:
        what = f"{jobs} processes do not have the objects of task; expected 1, or functions of a plug-in as the task"
        raise ScenarioError("jobs", [what])
    store = Store(path_of(folder, "folder", "the folder of studies").absolute(), plan.task)
    is_one = isinstance(track, str | Tracker) or not isinstance(track, Iterable)
    trackers: list[Any] = [track] if is_one else list(track)
    for each in trackers:
        if not isinstance(each, str):  # the study's processes make trackers from names
            raise not_accepted(each, "track", "names of trackers")
    usable(trackers)
    is_shown = in_notebook() if progress is None else progress
    with Pool(int(jobs)) as pool, Meter(is_quiet=watcher is not None or not is_shown) as meter:
        watcher = StudyProgress(plan.study.name, meter) if watcher is None and is_shown else watcher
        found = Conduct(plan, store, pool, watcher, trackers=trackers, meter=meter).run()
    return StudyReport(**{each.name: getattr(found, each.name) for each in fields(found)})


@dataclass(frozen=True)
class Missing:
    """What a study has still to make, as far as the finished trials tell.

    Attributes:
        certain: the trials and runs that will be made.
        further: what stands for those that may be made too.
        least_trials: number of trials, with those that are finished, at least; 0 if none is missing.
        most_trials: the same at most.
    """

    certain: list[Wanted]
    further: list[Wanted]
    least_trials: int
    most_trials: int


def missing_runs(plan: Plan, store: Store, meter: Meter) -> Missing:
    """Return what a study has still to make. Raises `ScenarioError` or `DataError` for what cannot be run."""
    study, chosen = plan.study, dict[str, Values]()
    conduct = Conduct(plan, store, Pool(0), is_idle=True, meter=meter)
    if study.tuned_fields:
        chosen = {row: each.chosen for row, each in conduct.tuned(metric_of(plan)).items()}
    wanted = list(wanted_runs(plan, store, chosen))
    parts = study.ask.parts(metric_of(plan))
    runs = [Wanted(run.scenario, parts) for _, run in wanted if not run.is_finished]
    if not conduct.batches:
        return Missing(runs, [], 0, 0)
    first = [Wanted(run.scenario) for run in conduct.batches[0]]
    each = sum(bool(cell.tune) for cell in plan.cells) * len(study.tuning.seeds or study.seeds[:1])
    further: list[Wanted] = []
    if study.is_searched:
        least = most = each * study.tuning.trials
        finished = sum(run.is_finished for batch in conduct.batches for run in batch)
        # later ones depend on what the first ones find
        trials = list(itertools.islice(itertools.cycle(first), least - finished))
    else:
        known: list[StoredRun] = []
        for number, batch in enumerate(conduct.batches):
            known += batch
            if not all(run.is_finished for run in batch):  # nobody knows yet what follows it
                of_each_row = [first[number * len(first) // each] for number in range(each)]
                further = of_each_row * (study.tuning.further - number)
                break
        least, most = len(known), len(known) + len(further)
        trials = [Wanted(run.scenario) for run in known if not run.is_finished]
    if not trials:
        return Missing(runs, [], 0, 0)
    # the trials may choose other values than those of finished runs
    further += [Wanted(run.scenario, parts) for (row, _), run in wanted if run.is_finished and row in chosen]
    return Missing([*trials, *runs], further, least, most)


def wanted_runs(plan: Plan, store: Store, chosen: dict[str, Values]) -> Iterator[tuple[tuple[str, int], StoredRun]]:
    """Yield the runs of a study by row and seed, all rows with the first seed first.

    Args:
        plan: the study.
        store: the folder of studies.
        chosen: row → the values that were chosen for it.
    """
    cells = [cell.with_settings(chosen[cell.name]) if chosen.get(cell.name) else cell for cell in plan.cells]
    for seed, cell in itertools.product(plan.study.seeds, cells):
        yield (cell.name, seed), store.stored(with_seed(cell.scenario, seed))


def results_of(
    plan: Plan,
    store: Store,
    metric: str,
    wanted: dict[tuple[str, int], StoredRun],
    values: dict[str, Tuned],
    failures: list[Failure],
    meter: Meter,
) -> StudyResults:
    """Return what the finished ones of the wanted runs say; those that cannot be read are added to the failures."""
    members: dict[str, list[RowRun]] = {cell.name: [] for cell in plan.cells}
    finished = [(row, stored) for (row, _), stored in wanted.items() if stored.is_finished]
    for row, stored in meter.over(f"{plan.study.name}: reading runs", finished):
        with _noting(failures, row, stored):
            members[row].append(read_run(stored, metric, plan))
    return StudyResults(store.folder / plan.study.name, plan, metric, members, values, failures)


def with_seed(scenario: Scenario, seed: int) -> Scenario:
    return scenario.model_copy(update={"seed": seed})


def trial_of(plan: Plan, cell: Cell, values: Values, seed: int) -> Scenario:
    """Return the scenario of a trial: short, and measured on the validation split.

    Raises:
        ScenarioError: the row does not accept the values.
    """
    stop, rounds = cell.scenario.stop, plan.study.tuning.rounds
    short: Values = {"evaluation.split": "validation"}
    if rounds is not None or stop.rounds is not None:
        short["stop.rounds"] = rounds or max(1, stop.most_rounds // 4)
    if rounds is None and stop.simulated_s is not None:
        short["stop.simulated_s"] = stop.simulated_s / 4
    return with_seed(cell.with_settings(values | short).scenario, seed)


@contextmanager
def _noting(failures: list[Failure], row: str, stored: StoredRun) -> Iterator[None]:
    """Add a run that cannot be read to the failures, unless it has failed already, and go on without it."""
    try:
        yield
    except (AgentError, ScenarioError) as error:
        seed = stored.scenario.seed
        if (row, seed) not in [(each.row, each.seed) for each in failures]:
            told = error.sentences if isinstance(error, ScenarioError) else [str(error)]
            failures.append(Failure(row, seed, "; ".join(told)))
