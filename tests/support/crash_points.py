"""Kills runs at given calls of functions, resumes each in another process, and compares it with an uninterrupted run.

This is a program: it imports everything once, has no other thread when it forks, and forks twice for each point, for
the run that is killed and for the run that resumes it.

    python crash_points.py FOLDER TASK

TASK is a JSON object:
    scenario: fields of the scenario.
    seed: of the random choices.
    points: at least how many calls to kill a run at, once each; 0 for all.
    kills: how many kills of runs that are killed and resumed repeatedly, until a resumed run reaches the end.

The program prints one JSON object: `points`, `of` (all calls that there are), `runs`, `kills` and `failures`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from worlds import lossy, outcome

from seedbus.agents import launcher
from seedbus.agents.errors import AgentError
from seedbus.agents.journal import file as files
from seedbus.agents.journal import journal as journals
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.observer import NullObserver
from seedbus.agents.server.server import Server
from seedbus.bus import Bus, Ledger
from seedbus.bus.errors import BusError
from seedbus.bus.in_flight import InFlightMessage
from seedbus.bus.transport import MemoryTransport
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.recording import Recorder
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

Point = tuple[str, int] | float
"""A place and the number of its call, from 1, or seconds after the start of the process."""
SEGMENT_ROWS = 40
_PATCH = pytest.MonkeyPatch()  # undone by the end of the process
PLACES: list[tuple[Any, str]] = [
    *((Journal, name) for name in ("append", "note", "finish", "rotated", "checkpoint", "close")),
    *(
        (Bus, name)
        for name in ("send", "record", "_depart", "_deliver", "_send_answer", "_settle", "checkpoint", "restore")
    ),
    *((Server, name) for name in ("_read", "_publish")),
    (MemoryTransport, "post"),
    *((Ledger, name) for name in ("take_new", "write_segment", "restore")),
    *((Recorder, name) for name in ("_write", "round_closed", "close")),
    *((Path, name) for name in ("mkdir", "replace", "unlink")),
    *((os, name) for name in ("pwrite", "ftruncate", "fsync")),
]
"""Methods and functions before and after which runs are killed. Every SQL statement is a place as well, "sql"."""


class KillSwitch:
    """Counts the calls of every place, and kills this process at one of them."""

    def __init__(self, point: Point | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self._point = point

    def __call__(self, place: str) -> None:
        self.calls[place] += 1
        if (place, self.calls[place]) == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Patch every place, for the rest of this process."""
        for owner, name in PLACES:
            setattr(owner, name, self._around(getattr(owner, name), f"{owner.__name__}.{name}"))
        connect = files.connect

        def connected(*arguments: Any) -> Any:
            database = connect(*arguments)
            database.set_trace_callback(lambda statement: self("sql"))
            return database

        for module in (journals, files):
            _PATCH.setattr(module, "connect", connected)

    def _around(self, original: Callable[..., Any], place: str) -> Callable[..., Any]:
        @wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            self(f"before {place}")
            result = original(*arguments, **options)
            self(f"after {place}")
            return result

        return call


class VersionRecorder(NullObserver):
    """Records every version that an observer or a follower learns of, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        deliver = Bus._deliver

        def delivered(bus: Bus, recipient: int, flight: InFlightMessage) -> int:
            self._record(flight.base)
            return deliver(bus, recipient, flight)

        _PATCH.setattr(Bus, "_deliver", delivered)

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self._record(closed.version)

    def _record(self, version: int) -> None:
        os.write(self._file, struct.pack("=q", version))


def newest_recorded(path: Path) -> int:
    """Return the newest version that was recorded; 0 if the process was killed before it recorded any."""
    if not path.exists():
        return 0
    return max((version for (version,) in struct.iter_unpack("=q", path.read_bytes())), default=0)


class CrashTrial:
    """One scenario, its uninterrupted run, and the runs that are killed.

    Attributes:
        whole: the outcome of the uninterrupted run.
        takes_s: how long the uninterrupted run took.
        rounds: the rounds in the journal of the uninterrupted run.
        failures: a sentence for each check that failed.
        kills: how many processes have been killed.
    """

    def __init__(self, folder: Path, what: Scenario) -> None:
        self.folder = folder
        self.what = what
        _PATCH.setattr(launcher, "Ledger", partial(Ledger, segment_rows=SEGMENT_ROWS))
        run(what, folder / "warm")  # what is imported and compiled late is then there in all forks
        began = time.perf_counter()
        self.whole = outcome(run(what, folder / "whole"))
        self.takes_s = time.perf_counter() - began
        self.rounds = rounds_of(folder / "whole")
        assert threading.active_count() == 1
        self.failures: list[str] = []
        self.kills = 0

    def calls(self, folder: Path) -> Counter[str]:
        """Count in another process how often a run calls each place."""
        path = folder / "calls.json"

        def count() -> None:
            switch = KillSwitch()
            switch.install()
            run(self.what, folder / "counted", observer=VersionRecorder(folder / "counted.heard"))
            path.write_text(json.dumps(switch.calls))

        assert forked(count) == 0
        return Counter(json.loads(path.read_text()))

    def run_once(self, folder: Path, point: Point | None) -> bool:
        """Run or resume until a point. Returns whether the run ended; what fails is recorded in `failures`."""

        def work() -> None:
            observer = VersionRecorder(folder.with_suffix(".heard"))
            KillSwitch(point).install()
            run(self.what, folder, resume=(folder / FILE).exists(), observer=observer)

        status = forked(work, point if isinstance(point, float) else None)
        if not os.WIFSIGNALED(status):
            if status:
                self.failures.append(f"{folder.name} at {point}: the run ended with status {status}")
            return True
        self.kills += 1
        with self.recording_failures(folder, point):
            self.check_kept(folder)
        return False

    def check_kept(self, folder: Path) -> None:
        """After a kill: the journal is a prefix of the uninterrupted run's, and no newer version has been published."""
        kept = rounds_of(folder) if (folder / FILE).exists() else []
        # a dense run keeps few commits: most are dropped as soon as there is a newer one
        is_dense = self.what.algorithm.facts.is_dense
        rows = [[row[:-1] if is_dense else row for row in rows] for rows in (kept, self.rounds)]
        assert rows[0] == rows[1][: len(kept)], "the journal is not a prefix"
        version, published = kept[-1][1] if kept else 0, newest_recorded(folder.with_suffix(".heard"))
        assert published <= version, f"version {published} was published, and {version} is in the journal"

    def check_end(self, folder: Path) -> None:
        """After the end: every commit is there once, and everything equals the uninterrupted run."""
        rounds = rounds_of(folder)
        assert [row[1] for row in rounds if row[-1] is not None] == list(range(1, rounds[-1][1] + 1))
        assert rounds == self.rounds, "the journal differs"
        result = outcome(Results.read(folder))
        for name in self.whole[0]:
            assert result[0][name] == self.whole[0][name], f"{name} is {result[0][name]}, not {self.whole[0][name]}"
        assert result == self.whole, "the metrics differ"
        log = (folder / "log.jsonl").read_text().splitlines()
        assert all(json.loads(line) for line in log)
        unfinished = [path.name for path in folder.rglob("*") if "unfinished" in path.name]
        assert not unfinished, f"{unfinished} is left over"

    def recording_failures(self, folder: Path, point: Point | None) -> RecordFailures:
        return RecordFailures(self.failures, f"{folder.name} at {point}")


class RecordFailures(suppress):
    """A context that records a failure inside it, with where it happened, and goes on."""

    def __init__(self, failures: list[str], where: str) -> None:
        super().__init__(AssertionError, AgentError, BusError, LookupError)
        self._failures, self._where = failures, where

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is not None:
            self._failures.append(f"{self._where}: {error}")
        return bool(super().__exit__(kind, error, trace))


def forked(work: Callable[[], None], kill_after_s: float | None = None) -> int:
    """Run `work` in a forked process and return its status, as `os.waitpid` gives it."""
    pid = os.fork()
    if pid:
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def rounds_of(folder: Path) -> list[Any]:
    """Return the rounds in a run's journal."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return list(journal.rounds())


def spread(calls: Counter[str], count: int, draw: random.Random) -> Iterator[Point]:
    """Choose at least `count` calls (0: all), about equally many of each place, with its first and its last call."""
    share = 1
    while not count or sum(min(share, total) for total in calls.values()) < min(count, calls.total()):
        share += 1
        if share > max(calls.values()):
            break
    for place, total in sorted(calls.items()):
        chosen = {1, total} if share > 1 else set()
        while len(chosen) < min(share, total):
            chosen.add(draw.randint(1, total))
        yield from ((place, number) for number in sorted(chosen))


def kill_at_each(trial: CrashTrial, points: list[Point]) -> None:
    """Run once for each point, kill the run there, and resume it."""
    for number, point in enumerate(points):
        folder = trial.folder / str(number)
        if not trial.run_once(folder, point):
            trial.run_once(folder, None)
        with trial.recording_failures(folder, point):
            trial.check_end(folder)
        shutil.rmtree(folder)
        folder.with_suffix(".heard").unlink()


def kill_repeatedly(trial: CrashTrial, calls: Counter[str], kills: int, draw: random.Random) -> int:
    """Kill and resume runs at random calls and instants until `kills` processes have died. Returns how many runs."""
    before, number = trial.kills, 0
    while trial.kills - before < kills and not trial.failures:
        folder, is_over, number = trial.folder / f"lives-{number}", False, number + 1
        while not is_over:
            place = draw.choice(sorted(calls))
            at: Point = place, draw.randint(1, 2 + calls[place] // 4)
            is_over = trial.run_once(folder, at if draw.random() < 0.5 else draw.uniform(0.0, trial.takes_s))
        with trial.recording_failures(folder, None):
            trial.check_end(folder)
        shutil.rmtree(folder)
        folder.with_suffix(".heard").unlink()
    return number


def main() -> None:
    folder, task = Path(sys.argv[1]), json.loads(sys.argv[2])
    trial, draw = CrashTrial(folder, lossy(**task["scenario"])), random.Random(task["seed"])
    calls = trial.calls(folder)
    points = list(spread(calls, task["points"], draw)) if "points" in task else []
    kill_at_each(trial, points)
    runs = kill_repeatedly(trial, calls, task.get("kills", 0), draw)
    counts = {"points": len(points), "of": calls.total(), "runs": runs, "kills": trial.kills}
    sys.stdout.write(json.dumps(counts | {"failures": trial.failures}))


if __name__ == "__main__":
    main()
