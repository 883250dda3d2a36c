"""Progress of what is computed before or after a run, on stderr: a bar, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbus.scenarios.reporting.terminal import console, shown


class Work:
    """A piece of work of a known number of steps.

    Attributes:
        done: the steps done.
    """

    def __init__(self, progress: Progress, name: str, steps: int) -> None:
        self.done = 0.0
        self._progress = progress
        self._task = progress.add_task(shown(name), total=steps)

    def advance(self, steps: float = 1) -> None:
        """Note steps that are done."""
        self.done += steps
        self._progress.advance(self._task, steps)

    def end(self) -> None:
        """Take the bar away."""
        self._progress.remove_task(self._task)


class Meter:
    """Shows progress; a context.

    Args:
        is_quiet: show nothing.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        to = console(file=sys.stderr)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=to,
            transient=True,
            disable=is_quiet or not to.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, name: str, steps: int) -> Work:
        """Show a bar for a piece of work."""
        return Work(self._progress, name, steps)


def lasting(seconds: float) -> str:
    """Return a time that is known roughly, such as 40 s, 12 min or 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
