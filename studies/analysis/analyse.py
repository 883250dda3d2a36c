"""Analyse a finished run: every instrument on the models of some rounds, as tables and in RUN/report.html."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from seedbus.models.numeric_state import numeric_state
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError, not_accepted, path_of
from seedbus.scenarios.reporting.findings import Finding, keep, kept
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.page import write_page
from seedbus.scenarios.run_folder import writable
from seedbus.scenarios.sentences import is_whole, nearest, quoted
from seedbus.studies.analysis.break_even import TITLE as BREAK_EVEN
from seedbus.studies.analysis.break_even import break_even
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.divergence import TITLE as DIVERGENCE
from seedbus.studies.analysis.divergence import divergence
from seedbus.studies.analysis.fairness import TITLE as FAIRNESS
from seedbus.studies.analysis.fairness import fairness
from seedbus.studies.analysis.hessian import TITLE as HESSIAN
from seedbus.studies.analysis.hessian import hessian
from seedbus.studies.analysis.spectrum import TITLE as SPECTRUM
from seedbus.studies.analysis.spectrum import spectrum
from seedbus.studies.analysis.subject import NotHere, Subject
from seedbus.studies.analysis.whitening import TITLE as WHITENING
from seedbus.studies.analysis.whitening import whitening

INSTRUMENTS: dict[str, tuple[str, Callable[[Subject], Finding]]] = {
    "spectrum": (SPECTRUM, spectrum),
    "whitening": (WHITENING, whitening),
    "hessian": (HESSIAN, hessian),
    "divergence": (DIVERGENCE, divergence),
    "fairness": (FAIRNESS, fairness),
    "break-even": (BREAK_EVEN, break_even),
}
"""name → title, and the instrument."""


@numeric_state()
def analyse(
    folder: str | Path,
    rounds: int | Sequence[int] = (),
    *,
    only: str | Sequence[str] = (),
    effort: Effort | None = None,
    meter: Meter | None = None,
    task: Task | None = None,
    own: str = "",
    page: bool = True,
) -> list[Finding]:
    """Measure a finished run; write what is found to `analysis.json` in its folder, and into its `report.html`.

    A finding takes the place of an earlier one of the same instrument; those of other instruments stay.

    Args:
        folder: the run's folder.
        rounds: the models after so many rounds; none: after the last.
        only: names of instruments: spectrum, whitening, hessian, divergence, fairness, break-even; none: all.
        effort: how much is spent on each model.
        meter: shows progress; None: nothing does.
        task: the run's task, if it holds functions or data sets that only a Python program has.
        own: with `partition: own`, all owners' files or folders, as `seedbus run --own` takes them.
        page: whether `report.html` is written anew.

    Raises:
        RunFolderError, JournalDamaged, LedgerDamaged: the run cannot be read, or its folder cannot be written.
        DataError: the task's data is missing.
        ScenarioError: there is no such round, instrument or metric, or an argument is not accepted.
    """
    folder = path_of(folder, "folder", "the folder of a run")
    at = list(rounds) if isinstance(rounds, Iterable) else [rounds]
    for number in at:
        if not is_whole(number):
            raise not_accepted(number, "rounds", "numbers of rounds, like [0, 100]")
    if not (effort is None or isinstance(effort, Effort)):
        raise not_accepted(effort, "effort", "an Effort of seedbus.studies.analysis.curvature")
    names = list(only) if isinstance(only, Iterable) and not isinstance(only, str) else [only]
    for name in names:
        if name not in list(INSTRUMENTS):
            raise ScenarioError("--only", [f"{quoted(name)} is no instrument; {nearest(str(name), INSTRUMENTS)}"])
    before = {each.name: each for each in kept(folder)}
    with meter or Meter(is_quiet=True) as shown:
        run = Subject.of(folder, at, effort or Effort(), shown, task, own=own)
        found = [_found(name, run) for name in INSTRUMENTS if not names or name in names]
    all_found = before | {each.name: each for each in found}
    with writable(folder):
        keep(folder, [all_found[name] for name in INSTRUMENTS if name in all_found])
        if page:
            write_page(run.results)
    return found


def _found(name: str, run: Subject) -> Finding:
    title, instrument = INSTRUMENTS[name]
    try:
        if not (run.has_samples or instrument is break_even):
            raise NotHere("the run's samples are with their owners; --own gives all of them")
        return instrument(run)
    except NotHere as why:
        return Finding(name, title, notes=[f"Nothing to measure: {why}."], facts={"nothing": str(why)})
