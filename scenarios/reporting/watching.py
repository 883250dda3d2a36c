"""Where the progress of a run is shown: in a notebook, on a terminal, or as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from seedbus.agents.observer import Observer
from seedbus.scenarios.reporting.notebook import NotebookBar
from seedbus.scenarios.reporting.progress import Bar, Lines
from seedbus.scenarios.reporting.terminal import console
from seedbus.scenarios.schema.scenario import Scenario


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def watching(scenario: Scenario) -> Iterator[Observer]:
    """Yield what shows a run's progress: a bar in a notebook or on a terminal, else an observer that prints lines."""
    stderr = console(file=sys.stderr)
    watcher: Bar | Lines | NotebookBar
    if in_notebook():
        watcher = NotebookBar(scenario)
    else:
        watcher = Bar(scenario, stderr) if stderr.is_terminal else Lines(scenario, stderr)
    try:
        yield watcher
    finally:
        watcher.close()
