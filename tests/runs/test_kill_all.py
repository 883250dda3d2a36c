"""Server and workers killed together, at any moment, go on as if nothing had been."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from processes import is_alive, kill, seedbus, wait_for, workers_of
from worlds import HISO, lossy, outcome

from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

WORKERS = 2


def versions(folder: Path) -> list[int]:
    """The versions of all commits that a journal holds."""
    if not (folder / FILE).exists():
        return []
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return [each.version for each in journal.rounds() if each.commit is not None]


class Lives:
    """One run in a server and its workers, which are killed together until it is over."""

    def __init__(self, base: Path, file: Path, draw: random.Random) -> None:
        self.folder, self._file, self._draw = base / "run", file, draw
        self.kills = self.amid = self._known = 0

    def live(self, *, is_last: bool) -> bool:
        """One life, killed unless it is the last; returns whether it reached the run's end."""
        begun = (self.folder / FILE).exists()
        what = ["--resume", self.folder] if begun else [self._file, "--out", self.folder]
        command = seedbus("run", *what, "--workers", WORKERS, "--transport", "ipc", "-q", cwd=self.folder.parent)
        if not is_last:
            self._wait(command)
            if command.poll() is None:
                self._kill(command)
                return False
        _, told = command.communicate(timeout=120)
        assert command.returncode == 0, told
        return True

    def _wait(self, command: subprocess.Popen[str]) -> None:
        """Until a moment of its beginning, while processes come, or one of its rounds."""
        log = self.folder / "log.jsonl"
        lines = self._draw.randint(1, 90) if self._draw.random() < 0.7 else 10**9
        until = time.monotonic() + (60.0 if lines < 10**9 else self._draw.uniform(0.0, 4.0))
        before = _lines(log)
        while command.poll() is None and time.monotonic() < until and _lines(log) < before + lines:
            time.sleep(0.002)

    def _kill(self, command: subprocess.Popen[str]) -> None:
        workers, before = workers_of(command.pid), versions(self.folder)
        for process in (command.pid, *workers):
            kill(process, signal.SIGKILL)
        command.communicate(timeout=60)
        wait_for(lambda: not any(map(is_alive, workers)))
        kept = versions(self.folder)
        assert kept[: len(before)] == before and kept == list(range(1, len(kept) + 1))
        self.kills += 1
        self.amid += len(kept) > self._known
        self._known = len(kept)


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.mark.parametrize(
    ("kills", "rounds"),
    [pytest.param(6, 400, marks=pytest.mark.slow), pytest.param(100, 2000, marks=pytest.mark.soak)],
)
def test_everything_killed_at_once_at_random_moments_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, rounds: int
) -> None:
    task = {"name": "quadratic", "dimension": 20_000}
    what = lossy(task=task, algorithm=HISO, stop={"rounds": rounds}, evaluation={"every": 50})
    whole = outcome(run(what, tmp_path / "whole"))
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the sockets that a killed server leaves behind
    count, running, number, draw = 0, 0, 0, random.Random(11)
    while count < kills:
        base = tmp_path / str(number)
        base.mkdir()
        lives = Lives(base, tmp_path / "what.yaml", draw)
        while not lives.live(is_last=count + lives.kills >= kills):
            pass
        count, running, number = count + lives.kills, running + lives.amid, number + 1
        (mine, my_lines), (theirs, their_lines) = outcome(Results.read(lives.folder)), whole
        assert {**mine, "refusals": None} == {**theirs, "refusals": None} and my_lines == their_lines
        assert versions(lives.folder) == list(range(1, theirs["version"] + 1))
    print(f"{count} kills of {WORKERS + 1} processes in {number} runs, {running} after new rounds: 0 commits lost")
    assert running > kills // 4
