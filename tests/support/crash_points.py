"""Kills a process, for good, at the n-th call of a place in a run, resumes in another process, and compares.

A program of its own: it imports everything once, runs no other thread when it forks, and forks twice a point, once for
the run that dies and once for the run that goes on. `python crash_points.py FOLDER TASK`, where TASK is JSON: the
`scenario`'s fields, a `seed`, about how many `points` (0: all) and how many `kills` of runs of which every life is
killed until one reaches the end. It answers with one JSON object.
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
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.recording import Recorder
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

Point = tuple[str, int] | float
"""A place and which of its calls, or seconds after the beginning of a life."""
SEGMENT_ROWS = 40
_PATCH = pytest.MonkeyPatch()  # undone by the end of the process
PLACES: list[tuple[Any, str]] = [
    *((Journal, name) for name in ("append", "note", "finish", "rotated", "checkpoint", "close")),
    *(
        (Bus, name)
        for name in ("send", "record", "_depart", "_deliver", "_send_answer", "_settle", "checkpoint", "restore")
    ),
    *((Server, name) for name in ("_read", "_publish")),
    *((Ledger, name) for name in ("take_new", "write_segment", "restore")),
    *((Recorder, name) for name in ("_write", "round_closed", "close")),
    *((Path, name) for name in ("mkdir", "replace", "unlink")),
    *((os, name) for name in ("pwrite", "ftruncate", "fsync")),
]
"""What is killed before and after; every SQL statement is a place too, "sql"."""


class Wire:
    """Counts the calls of every place, and kills this process at one of them."""

    def __init__(self, point: Point | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self._point = point

    def __call__(self, place: str) -> None:
        self.calls[place] += 1
        if (place, self.calls[place]) == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    def lay(self) -> None:
        """For the rest of this process."""
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


class Hearer(NullObserver):
    """Notes, where no kill undoes it, every version that an observer or a follower heard of."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        deliver = Bus._deliver

        def delivered(bus: Bus, recipient: int, flight: InFlightMessage) -> None:
            self._heard(flight.base)
            deliver(bus, recipient, flight)

        _PATCH.setattr(Bus, "_deliver", delivered)

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self._heard(closed.version)

    def _heard(self, version: int) -> None:
        os.write(self._file, struct.pack("=q", version))


def heard(path: Path) -> int:
    """The newest version that anybody heard of; of a life that ended before it began to listen, none."""
    if not path.exists():
        return 0
    return max((version for (version,) in struct.iter_unpack("=q", path.read_bytes())), default=0)


class Trial:
    """One scenario, its uninterrupted run, and the runs that are killed."""

    def __init__(self, folder: Path, what: Scenario) -> None:
        self.folder, self.what = folder, what
        _PATCH.setattr(launcher, "Ledger", partial(Ledger, segment_rows=SEGMENT_ROWS))
        run(what, folder / "warm")  # here: what is imported and compiled late is there for all
        began = time.perf_counter()
        self.whole = outcome(run(what, folder / "whole"))
        self.takes_s = time.perf_counter() - began
        self.rounds = rounds_of(folder / "whole")
        assert threading.active_count() == 1
        self.failures: list[str] = []
        self.kills = 0

    def calls(self, folder: Path) -> Counter[str]:
        """How often each place is called by a run, which another process counts."""
        into = folder / "calls.json"

        def count() -> None:
            wire = Wire()
            wire.lay()
            run(self.what, folder / "counted", observer=Hearer(folder / "counted.heard"))
            into.write_text(json.dumps(wire.calls))

        assert forked(count) == 0
        return Counter(json.loads(into.read_text()))

    def life(self, folder: Path, point: Point | None) -> bool:
        """Run, or go on, until a point; returns whether this life was the last. What is wrong is noted."""

        def live() -> None:
            observer = Hearer(folder.with_suffix(".heard"))
            Wire(point).lay()
            run(self.what, folder, resume=(folder / FILE).exists(), observer=observer)

        status = forked(live, point if isinstance(point, float) else None)
        if not os.WIFSIGNALED(status):
            if status:
                self.failures.append(f"{folder.name} at {point}: it ended with status {status}")
            return True
        self.kills += 1
        with self.told(folder, point):
            self.check_kept(folder)
        return False

    def check_kept(self, folder: Path) -> None:
        """After a kill: the journal is a prefix of the whole run's, and nobody knows more than it holds."""
        kept = rounds_of(folder) if (folder / FILE).exists() else []
        # of a dense run's commits most are dropped as soon as there is a newer one
        rows = [[row[:-1] if self.what.algorithm.is_dense else row for row in rows] for rows in (kept, self.rounds)]
        assert rows[0] == rows[1][: len(kept)], "the journal is no prefix"
        version, known = kept[-1][1] if kept else 0, heard(folder.with_suffix(".heard"))
        assert known <= version, f"version {known} was heard of, and {version} is in the journal"

    def check_end(self, folder: Path) -> None:
        """After the end: every commit once, and all as in the run that nobody interrupted."""
        rounds = rounds_of(folder)
        assert [row[1] for row in rounds if row[-1] is not None] == list(range(1, rounds[-1][1] + 1))
        assert rounds == self.rounds, "the journal differs"
        found = outcome(Results.read(folder))
        for name in self.whole[0]:
            assert found[0][name] == self.whole[0][name], f"{name} is {found[0][name]}, not {self.whole[0][name]}"
        assert found == self.whole, "the metrics differ"
        log = (folder / "log.jsonl").read_text().splitlines()
        assert all(json.loads(line) for line in log)
        left = [path.name for path in folder.rglob("*") if "unfinished" in path.name]
        assert not left, f"{left} is left over"

    def told(self, folder: Path, point: Point | None) -> Noting:
        return Noting(self.failures, f"{folder.name} at {point}")


class Noting(suppress):
    """Failures of what is inside, noted with where they were."""

    def __init__(self, failures: list[str], where: str) -> None:
        super().__init__(AssertionError, AgentError, BusError, LookupError)
        self._failures, self._where = failures, where

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is not None:
            self._failures.append(f"{self._where}: {error}")
        return bool(super().__exit__(kind, error, trace))


def forked(work: Callable[[], None], kill_after_s: float | None = None) -> int:
    """Work in a process of its own; how that ended, as `os.waitpid` says it."""
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
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return list(journal.rounds())


def spread(calls: Counter[str], count: int, draw: random.Random) -> Iterator[Point]:
    """At least so many points, as many of each place as there are, its first and its last call among them; 0: all."""
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


def each_point(trial: Trial, points: list[Point]) -> None:
    """A run for each point, killed there once."""
    for number, point in enumerate(points):
        folder = trial.folder / str(number)
        if not trial.life(folder, point):
            trial.life(folder, None)
        with trial.told(folder, point):
            trial.check_end(folder)
        shutil.rmtree(folder)
        folder.with_suffix(".heard").unlink()


def many_lives(trial: Trial, calls: Counter[str], kills: int, draw: random.Random) -> int:
    """Runs of which every life is killed, at a place or at any instant, until one reaches the end; returns how many."""
    before, number = trial.kills, 0
    while trial.kills - before < kills and not trial.failures:
        folder, is_over, number = trial.folder / f"lives-{number}", False, number + 1
        while not is_over:
            place = draw.choice(sorted(calls))
            at: Point = place, draw.randint(1, 2 + calls[place] // 4)
            is_over = trial.life(folder, at if draw.random() < 0.5 else draw.uniform(0.0, trial.takes_s))
        with trial.told(folder, None):
            trial.check_end(folder)
        shutil.rmtree(folder)
        folder.with_suffix(".heard").unlink()
    return number


def main() -> None:
    folder, task = Path(sys.argv[1]), json.loads(sys.argv[2])
    trial, draw = Trial(folder, lossy(**task["scenario"])), random.Random(task["seed"])
    calls = trial.calls(folder)
    points = list(spread(calls, task["points"], draw)) if "points" in task else []
    each_point(trial, points)
    runs = many_lives(trial, calls, task.get("kills", 0), draw)
    found = {"points": len(points), "of": calls.total(), "runs": runs, "kills": trial.kills}
    sys.stdout.write(json.dumps(found | {"failures": trial.failures}))


if __name__ == "__main__":
    main()
