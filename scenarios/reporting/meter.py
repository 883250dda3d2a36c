"""Progress of what lasts, on stderr: bars on a terminal; elsewhere a line now and then, ever more seldom."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.reporting.remaining_time import roughly
from seedbus.scenarios.reporting.terminal import console, shown

FIRST_LINE_S = 15.0
"""Seconds after which work without a terminal has its first line; each further one takes twice as long."""

Item = TypeVar("Item")


class Work:
    """A piece of work of a known number of steps.

    Attributes:
        done: the steps done.
    """

    def __init__(self, meter: Meter, name: str, steps: int, unit: str) -> None:
        self.done = 0.0
        self._meter, self._name, self._steps, self._unit = meter, shown(name), steps, unit
        self._task = meter.progress.add_task(self._name, total=steps, unit=unit, left="")
        self._judged: tuple[float, float] | None = None
        self._began_s = wall_seconds()
        self._next_s = self._began_s + FIRST_LINE_S

    @property
    def left(self) -> str:
        """How long it will go on, in words, if that is known; else "".

        It is judged by what follows `judge`, for the first steps have to load and to compile.
        """
        done, at_s = self._judged or (self.done, 0.0)
        rest, since = self._steps - self.done, self.done - done
        return f"about {roughly((wall_seconds() - at_s) * rest / since)} left" if rest > 0 and since > 0 else ""

    def judge(self) -> None:
        """Judge the time left by the steps from here on, unless it is judged already."""
        self._judged = self._judged or (self.done, wall_seconds())

    def advance(self, steps: float = 1) -> None:
        """Note steps that are done."""
        self.set(self.done + steps, self._name)
        self.judge()

    def set(self, done: float, name: str) -> None:
        """Note how many steps are done in all, and what the bar is now called."""
        self.done, self._name = done, shown(name)
        self._meter.progress.update(self._task, completed=done, description=self._name, left=self.left)
        if wall_seconds() >= self._next_s and not self._meter.has_bars and done < self._steps:
            self._next_s += 2 * (self._next_s - self._began_s)
            said = f"{self._name}: {done:,.0f} of {self._steps:,}{self._unit}"
            self._meter.say(", ".join(filter(None, (said, self.left))))

    def end(self) -> None:
        """Take the bar away."""
        self._meter.progress.remove_task(self._task)


class Meter:
    """Shows progress; a context.

    Attributes:
        progress: the bars.
        has_bars: whether they are shown.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        """Make it; is_quiet: show nothing."""
        self._console, self._is_quiet = console(file=sys.stderr), is_quiet
        self.has_bars = self._console.is_terminal and not is_quiet
        self.progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self.has_bars,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def begin(self, name: str, steps: int, unit: str = "") -> Work:
        """Show a bar for a piece of work; unit: what its steps are."""
        return Work(self, name, steps, unit and f" {unit}")

    def over(self, name: str, items: Sequence[Item]) -> Iterator[Item]:
        """Yield the items, and show meanwhile how many of them are done."""
        work = self.begin(name, len(items))
        for item in items:
            yield item
            work.advance()
        work.end()

    def say(self, text: str) -> None:
        """Print a line above the bars, or where no terminal has bars, unless it is to be quiet."""
        if not self._is_quiet:
            self._console.print(shown(text), highlight=False, soft_wrap=True)
