"""What every tracker promises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr

from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.files import temporary_folder
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.running.run import run
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun
from seedbus.studies.check.promises import require
from seedbus.studies.check.runs import end_of, ended, require_equal_ends, world

STEPS = [0, 4, 8, 12]
"""The steps of the evaluations of `world`."""
ODD = {
    "nothing": None,
    "a name/with: ü, spaces and 名": "text\nof two lines",
    "long": "x" * 10_000,
    **{f"many.{number}": number for number in range(250)},
}
"""Parameters of which not every tracker's library takes every one as it is."""


class _Watched(Tracker):
    """Passes everything on to a tracker, and notes it; raises at one of the calls of `log`, if asked to."""

    tracker: Literal["watched"] = "watched"
    inner: Any
    fails_at: int | None = None
    _steps: list[int] = PrivateAttr(default_factory=list)

    def begin(self, run: TrackedRun) -> TrackerRun:
        return _WatchedRun(self.inner.begin(run), self._steps, self.fails_at)


class _WatchedRun(TrackerRun):
    def __init__(self, inner: TrackerRun, steps: list[int], fails_at: int | None) -> None:
        self._inner, self._steps, self._fails_at = inner, steps, fails_at
        self.last_step = inner.last_step

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step == self._fails_at:
            raise OSError("the disk is full")
        self._inner.log(step, values)
        self._steps.append(step)

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        self._inner.end(how, figures)


class _Notes(NullObserver):
    """Keeps what is said of trackers that failed; interrupts the run after a round, if asked to."""

    def __init__(self, last: int | None = None) -> None:
        self.failures: list[str] = []
        self._last = last

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if closed.round == self._last:
            raise KeyboardInterrupt

    def noted(self, event: str, **facts: Any) -> None:
        if event == "untracked":
            self.failures.append(facts["what"])


@contextmanager
def _folder() -> Iterator[Path]:
    with temporary_folder() as own:
        yield own / "run"


def _told(folder: Path, tracker: Tracker, *, last: int | None = None, resume: bool = False) -> Any:
    """Run the world with a tracker that must not fail, and return its results; last: interrupt it after this round."""
    notes = _Notes(last)
    results = None
    with suppress(Interrupted):
        results = run(world(), folder, observer=notes, resume=resume, track=tracker)
    require(not notes.failures, "; ".join(notes.failures))
    return results


def a_run_has_the_same_bits_and_messages_with_it_as_without(tracker: Any) -> None:
    """A run has the same bits and messages with it as without."""
    with _folder() as folder:
        results = _told(folder, tracker)
        found = end_of(results.summary), (folder / "metrics.jsonl").read_text()
    require_equal_ends(found, ended(world()), "with it", "without")


def a_resumed_run_goes_on_at_the_last_step_that_it_has(tracker: Any) -> None:
    """Of a run that is interrupted and resumed it is given every evaluation once, in order (`last_step`)."""
    with _folder() as folder:
        watched = _Watched(inner=tracker)
        _told(folder, watched, last=5)
        _told(folder, watched, resume=True)
        _told(folder, watched, resume=True)
        require(watched._steps == STEPS, f"it was given the steps {watched._steps}; the evaluations are {STEPS}")


def what_it_lacks_after_a_failure_it_takes_later(tracker: Any) -> None:
    """An error in it stops no run; resumed, it is given what it lacks."""
    with _folder() as folder:
        failing, notes = _Watched(inner=tracker, fails_at=8), _Notes()
        results = run(world(), folder, observer=notes, track=failing)
        require(len(notes.failures) == 1, f"one failure was expected, and there were {notes.failures}")
        require_equal_ends((end_of(results.summary), ""), (ended(world())[0], ""), "after a failure", "without")
        whole = _Watched(inner=tracker)
        _told(folder, whole, resume=True)
        steps = [*failing._steps, *whole._steps]
        require(steps == STEPS, f"it was given the steps {steps}; the evaluations are {STEPS}")


def it_takes_all_numbers_texts_and_names(tracker: Any) -> None:
    """It takes values that are not finite, and parameters of any name and length."""
    with _folder() as folder:
        folder.mkdir()
        described = TrackedRun("0" * 32, folder.name, folder, ODD, ["loss", "bytes_up"])
        try:
            at_tracker = tracker.begin(described)
            for step, value in enumerate((math.nan, math.inf, -math.inf, 1e300, -0.0)):
                at_tracker.log(step, {"loss": value, "bytes_up": 2.0**50})
            at_tracker.end("failed", {})
            again = tracker.begin(described)
        except Exception as error:
            raise AssertionError(f"it raised {type(error).__name__}: {error}") from error
        require(again.last_step == 4, f"after step 4, `last_step` is {again.last_step}")
        again.end("finished", {"loss": math.nan, "bytes": 1, "digest": "0" * 32})


CONTRACT: Sequence[Any] = [it_takes_all_numbers_texts_and_names]
RUNS: Sequence[Any] = [
    a_run_has_the_same_bits_and_messages_with_it_as_without,
    a_resumed_run_goes_on_at_the_last_step_that_it_has,
    what_it_lacks_after_a_failure_it_takes_later,
]
