"""A study as its live page shows it: how its runs go on, and the report of those that are finished."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from seedbus.scenarios.reporting.closing_table import grouped
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study.cells import Plan
from seedbus.studies.study.plots import plots
from seedbus.studies.study.pool import Pool
from seedbus.studies.study.store import Store
from seedbus.studies.study.study import Conduct, Watcher
from seedbus.studies.study.study_page import content

MAX_LISTED = 64  # runs that are being made, and failures


class LiveStudy:
    """Watches a study, and tells another watcher of it.

    Args:
        plan: the study.
        store: the folder of studies.
        watcher: is told of everything, too; None: nobody is.
    """

    def __init__(self, plan: Plan, store: Store, watcher: Watcher | None) -> None:
        self.title = plan.study.name
        self.changes = 0
        self._plan, self._store, self._watcher = plan, store, watcher
        self._what, self._all, self._finished, self._ended = "runs", 0, 0, 0
        self._running: dict[tuple[str, int], int] = {}
        self._failures: list[str] = []
        self._read, self._report = 0, ""
        self._most = {cell.name: cell.scenario.stop.rounds for cell in plan.cells}

    def begins(self, plan: Plan, what: str, runs: int, rounds: int, finished: int) -> None:
        self._what, self._all, self._finished = what, runs, finished
        self._ended += 1  # finished ones are read, too
        self._running = {}
        self.changes += 1
        if self._watcher is not None:
            self._watcher.begins(plan, what, runs, rounds, finished)

    def advanced(self, row: str, seed: int, rounds: int) -> None:
        self._running[row, seed] = rounds
        self.changes += 1
        if self._watcher is not None:
            self._watcher.advanced(row, seed, rounds)

    def ended(self, row: str, seed: int, rounds: int, failure: str | None) -> None:
        self._running.pop((row, seed), None)
        self._finished += failure is None
        self._ended += 1
        if failure is not None and len(self._failures) < MAX_LISTED:
            self._failures.append(f"{shown(row)}, seed {seed}: {shown(failure)}")
        self.changes += 1
        if self._watcher is not None:
            self._watcher.ended(row, seed, rounds, failure)

    def drawn(self) -> str:
        ended = self._ended
        if ended != self._read:
            results = Conduct(self._plan, self._store, Pool(0), is_idle=True).run()
            has_runs = any(results.members.values())
            self._report = content(results, list(plots(results))) if has_runs else ""
            self._read = ended
        failed = "".join(f"<p>failed: {escape(each)}</p>\n" for each in self._failures)
        return f"{grouped([self._rows()])}\n{failed}{self._report}"

    def _rows(self) -> Iterable[tuple[str, str]]:
        yield self._what, f"{self._finished:,} of {self._all:,} are finished"
        for (row, seed), rounds in list(self._running.items())[:MAX_LISTED]:
            most = self._most.get(row)
            of = f" of {most:,}" if most else ""
            yield f"{shown(row)}, seed {seed}", f"{rounds:,}{of} rounds"
