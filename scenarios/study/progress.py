"""Progress of a study on stderr: a progress bar on a terminal, a line for every run elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbus.scenarios.reporting.terminal import console, shown
from seedbus.scenarios.study.cells import Plan

if TYPE_CHECKING:
    from rich.console import Console


class StudyProgress:
    """Shows how many runs are finished, and how many rounds of those that are being made."""

    def __init__(self, name: str) -> None:
        self._console: Console = console(file=sys.stderr)
        self._rounds: dict[tuple[str, int], int] = {}
        self._runs = self._finished = 0
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._name = shown(name)
        self._task = self._progress.add_task(self._name, total=0)
        self._progress.start()

    def begins(self, plan: Plan, what: str, runs: int, rounds: int, finished: int) -> None:
        self._what, self._runs, self._finished = what, runs, finished
        self._rounds.clear()
        self._progress.reset(self._task, total=rounds)
        self._update()
        if finished < runs:
            self._say(f"{self._name}: {runs:,} {what}, {finished:,} of them finished already")

    def advanced(self, row: str, seed: int, rounds: int) -> None:
        self._rounds[row, seed] = rounds
        self._update()

    def ended(self, row: str, seed: int, rounds: int, failure: str | None) -> None:
        self._rounds[row, seed] = rounds
        self._finished += failure is None
        how = "done" if failure is None else f"failed: {failure}"
        self._say(f"{self._finished:,}/{self._runs:,}  {shown(row)}, seed {seed}: {how}")
        self._update()

    def close(self) -> None:
        self._progress.stop()

    def _update(self) -> None:
        description = f"{self._name}  {self._finished:,}/{self._runs:,} {self._what}"
        self._progress.update(self._task, completed=sum(self._rounds.values()), description=description)

    def _say(self, text: str) -> None:
        self._console.print(shown(text), highlight=False, soft_wrap=True)
