"""Tells trackers of a run as it goes on.

A tracker is told of an evaluation once the journal has it, and of none that it has already. So a run that is killed
anywhere and resumed leaves every evaluation once. Each tracker has a thread of its own, so that none delays the run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from seedbus.agents.errors import StopRequested
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.observer import NullObserver, Observer
from seedbus.agents.round_record import ClosedRound, RoundRecord
from seedbus.agents.server.stopping import rounds_done
from seedbus.bus.clock import wall_seconds
from seedbus.bus.text import printable
from seedbus.scenarios.errors import with_type
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.open_run import OpenRun
from seedbus.scenarios.schema.expectations import AVERAGE_SUFFIX, FIGURES, found
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.tracking.tracker import Ending, Parameter, TrackedRun, Tracker, TrackerRun

PATIENCE_S = 60.0  # for which the end of a run waits for its trackers, all together
OWN = {"version": "version", "simulated_s": "time_s", "bytes_up": "bytes_up", "bytes_down": "bytes_down"}
"""Values of every evaluation: name → its name in a line of metrics."""
PASSES = "forward_passes"
_MAX_TEXT = 500  # characters of a tracker's error


class _Teller(threading.Thread):
    """Tells one tracker.

    Attributes:
        failure: why it has ended before its time, in a sentence; "" if it has not.
    """

    def __init__(self, tracker: Tracker, run: TrackedRun) -> None:
        super().__init__(name=f"tracker {tracker.tracker}", daemon=True)
        self.tracker, self.failure = tracker, ""
        self._run = run
        self._steps = queue.SimpleQueue[tuple[int, dict[str, float]] | tuple[Ending, Mapping[str, str | float]]]()

    def tell(self, step: int, values: dict[str, float]) -> None:
        if not self.failure:
            self._steps.put((step, values))

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        self._steps.put((how, figures))

    def run(self) -> None:
        with self._failing():
            at_tracker = self.tracker.begin(self._run)
            with self._failing():
                self._pass_on(at_tracker)
            if self.failure:
                at_tracker.end("interrupted", {})  # so that it lets go of its files

    def _pass_on(self, at_tracker: TrackerRun) -> None:
        """Pass on what comes until the end."""
        newest = at_tracker.last_step
        while True:
            step, values = self._steps.get()
            if isinstance(step, str):
                at_tracker.end(step, values)
                return
            if step > newest:
                newest = step
                at_tracker.log(step, values)  # type: ignore[arg-type]

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Keep an error of the tracker as a sentence; it stops nothing else."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.failure = self.failure or printable(" ".join(with_type(error).split()), _MAX_TEXT)


class Tracking(NullObserver):
    """Tells trackers of one run.

    Args:
        trackers: those that get the run.
        scenario: the run's.
        folder: the run's.
        run_id: identifies the run, hexadecimal digits.
        rounds: the rounds that the run had before.
        lines: the evaluations that it had before.
        observer: is told of trackers that fail.
    """

    def __init__(
        self,
        trackers: Iterable[Tracker],
        scenario: Scenario,
        folder: Path,
        run_id: str,
        rounds: Iterable[StoredRound],
        lines: Sequence[Mapping[str, Any]],
        observer: Observer,
    ) -> None:
        algorithm = scenario.algorithm
        self._work = algorithm.work if algorithm.facts.knows_evaluations else None
        averages = [name + AVERAGE_SUFFIX for name in scenario.metrics]
        # a task's metric gives way to the run's own value of the same name
        self._measured = [name for name in [*scenario.metrics, *averages] if name not in (*OWN, PASSES)]
        names = [*self._measured, *OWN, *([PASSES] if self._work is not None else [])]
        folder = folder.resolve()
        run = TrackedRun(run_id, folder.name, folder, dict(_flat(scenario.resolved())), names)
        self._tellers = [_Teller(tracker, run) for tracker in trackers]
        self._failed, self._has_ended = set[str](), False
        self._observer = observer
        self._passes = [0.0]  # after so many rounds
        for each in rounds:
            self._count(each.round, each.reported, each.record)
        self._pending, self._is_first = list(lines), True

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        self._tell()  # what was measured before this round is durable with it
        self._count(closed.round, closed.reported, closed.record)
        self._note()

    def measured(self, line: dict[str, Any]) -> None:
        self._pending.append(line)

    def end(self, how: Ending, results: Results | None = None) -> None:
        """Tell how the run ended, and wait until the trackers have it, but not for long, and not again after a Ctrl-C.

        Args:
            how: how it ended.
            results: of a finished run.
        """
        if self._has_ended:
            return
        self._has_ended = True
        figures: dict[str, str | float] = {}
        if results is not None:
            self._tell()
            values = found([*self._measured, *FIGURES], results.summary, results.lines)
            figures |= {name: value for name, value in values.items() if value is not None}
            figures |= {name: str(results.summary[name]) for name in ("digest", "ledger_hash", "reason")}
        begun = [teller for teller in self._tellers if teller.ident is not None]
        for teller in begun:
            teller.end(how, figures)
        until_s = wall_seconds() + PATIENCE_S
        for teller in begun:
            teller.join(max(0.0, until_s - wall_seconds()))
            if teller.is_alive():
                teller.failure = f"it has not finished within {PATIENCE_S:g} seconds"
        self._note()

    def _tell(self) -> None:
        for line in self._pending:
            step = rounds_done(line, is_first=self._is_first)
            self._is_first = False
            values = {name: line.get(name) for name in self._measured}
            values |= {name: line.get(where) for name, where in OWN.items()}
            if self._work is not None and step < len(self._passes):
                values[PASSES] = self._passes[step]
            numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
            for teller in self._tellers:
                if teller.ident is None:  # only now, so that a run that cannot begin leaves no trace
                    teller.start()
                teller.tell(step, numbers)
        self._pending.clear()

    def _count(self, round: int, reported: Sequence[int], record: RoundRecord) -> None:
        """Count the forward passes behind the reports that a round counted; a resumed run publishes its last again."""
        if self._work is not None and round + 1 == len(self._passes):
            reports = len(reported) + sum(len(clients) for *_, clients in record.late)
            self._passes.append(self._passes[-1] + reports * self._work(round).evaluations)

    def _note(self) -> None:
        for teller in self._tellers:
            name = teller.tracker.tracker
            if teller.failure and name not in self._failed:
                self._failed.add(name)
                what = f"the tracker {name} is told no more of this run: {teller.failure}"
                self._observer.noted("untracked", what=what)


@contextmanager
def tracked(trackers: Sequence[Tracker], scenario: Scenario, run: OpenRun) -> Iterator[Tracking]:
    """Tell trackers of a run that takes place in this context, and whose results are given to `Tracking.end`."""
    rounds = run.journal.rounds() if trackers and run.was_resumed else ()
    run_id = run.journal.run_id.hex()
    tracking = Tracking(trackers, scenario, run.folder, run_id, rounds, run.lines, run.recorder)
    if trackers:
        run.recorder.tell(tracking)
    try:
        yield tracking
    except (KeyboardInterrupt, StopRequested):
        tracking.end("interrupted")
        raise
    except BaseException:
        tracking.end("failed")
        raise


def track_again(trackers: Sequence[Tracker], scenario: Scenario, results: Results, observer: Observer) -> None:
    """Tell trackers what they lack of a finished run."""
    if trackers:
        with closing(Journal.open(results.folder, for_writing=False)) as journal:
            run_id, rounds = journal.run_id.hex(), list(journal.rounds())
        Tracking(trackers, scenario, results.folder, run_id, rounds, results.lines, observer).end("finished", results)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Parameter]]:
    """Yield the single values of nested fields by their paths."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from _flat(each, f"{path}.{name}".lstrip("."))
    else:
        yield path, value
