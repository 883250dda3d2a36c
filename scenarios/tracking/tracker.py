"""What a tracker is. A tracker is told of a run and decides nothing in it.

It is told on a thread of its own. What it raises ends its part with one note, and the run goes on.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from seedbus.discovery import Variants
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.sentences import variant
from seedbus.settings import Settings

Parameter = str | int | float | bool | None
Ending = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as trackers are told of it.

    Attributes:
        id: hexadecimal digits that no other run has; a resumed run keeps them.
        name: the name of its folder.
        folder: its folder, an absolute path.
        parameters: the scenario's fields by their paths, such as `task.name` and `faults.0.probability`.
        metrics: the names of all values that `TrackerRun.log` may be given.
        tags: of a run of a study: `study`, `row`, `variant` and `condition` if there are any, and `seed`; else none.
        shared: the folder that all runs of the study share, an absolute path; None: there is no study.
    """

    id: str
    name: str
    folder: Path
    parameters: Mapping[str, Parameter]
    metrics: Sequence[str]
    tags: Mapping[str, str] = field(default_factory=dict)
    shared: Path | None = None


class TrackerRun(ABC):
    """A run at a tracker, open for writing.

    Attributes:
        last_step: the highest step that the tracker has of this run; −1 if it has none. It is given later ones only.
    """

    last_step: int = -1

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the values of an evaluation; once this returns, they survive the end of the process.

        Args:
            step: number of rounds that were over; it grows from call to call.
            values: by name; they may be NaN or infinite.
        """

    @abstractmethod
    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        """Close the run; nothing follows.

        Args:
            how: how it ended; a run that is not finished may be begun again.
            figures: closing figures by name, of a finished run; else there are none.
        """


class Tracker(Settings, ABC):
    """Where a run is told of. A tracker is a file of this folder: a model with its name as `tracker`."""

    packages: ClassVar[Sequence[str]] = ()
    """The modules that have to be installed."""
    needs: ClassVar[str] = ""
    """What to give to `pip install`, if it is not `packages`."""

    tracker: str

    @abstractmethod
    def begin(self, run: TrackedRun) -> TrackerRun:
        """Open a run that begins, or go on with the same one if it is there already (`run.id`)."""


TRACKERS = Variants("tracker", "tracker", "seedbus.scenarios.tracking", Tracker)


def drop_empty_variables(prefix: str) -> None:
    """Remove from the environment the variables of a library that are set to nothing, which some libraries refuse."""
    for name in [name for name, value in os.environ.items() if name.startswith(prefix) and not value]:
        del os.environ[name]


def usable(trackers: Iterable[str | Tracker]) -> list[Tracker]:
    """Return trackers, each once; those that are named are made with their defaults.

    Raises:
        ScenarioError: there is no such tracker, or what it needs is not installed.
    """
    made = list[Tracker]()
    if not isinstance(trackers, Iterable):
        raise ScenarioError("track", [f"{trackers!r} is not accepted; expected names of trackers"])
    for tracker in trackers:
        if not isinstance(tracker, str | Tracker):
            raise ScenarioError("track", [f"{repr(tracker)[:80]} is not accepted; expected the name of a tracker"])
        each = tracker if isinstance(tracker, Tracker) else variant(TRACKERS, tracker, "--track", {})
        made += [each] if each not in made else []
        for package in each.packages:
            if find_spec(package) is None:
                install = f'pip install "{each.needs or package}"'
                raise ScenarioError(f"--track {each.tracker}", [f"{package} is not installed: {install}"])
    return made
