"""Progress of a study on stderr: a line for every run that has ended, and on a terminal a bar of rounds."""

from __future__ import annotations

import itertools

from seedbus.bus.text import counted
from seedbus.scenarios.reporting.meter import Meter, Work
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study.cells import Plan

MAX_NAMED = 4  # runs that are being made


class StudyProgress:
    """Tells how many runs are finished, and how many rounds of those that are being made.

    Args:
        name: the study's.
        meter: shows it.
    """

    def __init__(self, name: str, meter: Meter) -> None:
        self._name, self._meter = shown(name), meter
        self._rounds: dict[tuple[str, int], int] = {}
        self._running: dict[tuple[str, int], int] = {}
        self._missing = 0
        self._runs = self._finished = 0
        self._work: Work | None = None

    def begins(self, plan: Plan, what: str, runs: int, rounds: int, finished: int) -> None:
        self.close()
        self._what, self._runs, self._finished = what, runs, finished
        self._missing = runs - finished
        self._rounds.clear()
        self._running.clear()
        if finished < runs:
            kind, *which = what.split(" ", 1)
            said = " ".join([counted(runs, kind.removesuffix("s")), *which])
            already = f", {finished:,} of them finished already" if runs > 1 else ""
            self._meter.say(f"{self._name}: {said}{already}")
            self._work = self._meter.begin(self._name, rounds, "rounds")
            self._update()

    def advanced(self, row: str, seed: int, rounds: int) -> None:
        self._rounds[row, seed] = self._running[row, seed] = rounds
        self._update()
        if self._work is not None and self._missing == 1:
            self._work.judge()

    def ended(self, row: str, seed: int, rounds: int, failure: str | None) -> None:
        self._rounds[row, seed] = rounds
        self._running.pop((row, seed), None)
        self._finished += failure is None
        self._update()
        if self._work is not None:
            self._work.judge()  # not by the first run: it loads and compiles, and other rows may be slower
        left = "" if self._work is None else self._work.left
        how = "done" if failure is None else f"failed: {failure}"
        more = f"; {left}" if left and not self._meter.has_bars else ""  # a bar has it already
        self._meter.say(f"{self._finished:,}/{self._runs:,}  {shown(row)}, seed {seed}: {how}{more}")
        self._missing -= 1
        if not self._missing:
            self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._work is not None:
            self._work.end()
            self._work = None

    def _update(self) -> None:
        if self._work is not None:
            runs = (f"{shown(row)}, seed {seed}: {rounds:,}" for (row, seed), rounds in self._running.items())
            named = "; ".join(itertools.islice(runs, MAX_NAMED))
            name = f"{self._name}  {self._finished:,}/{self._runs:,} {self._what}{named and f' ({named})'}"
            self._work.set(sum(self._rounds.values()), name)
