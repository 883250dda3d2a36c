"""Server and workers that are killed together at any moment, and resumed, give the bits of an undisturbed run."""

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
    """Return the versions of all commits in a journal."""
    if not (folder / FILE).exists():
        return []
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return [each.version for each in journal.rounds() if each.commit is not None]


class KilledRun:
    """A run by a server and its workers, which are killed together and resumed until the run ends.

    Attributes:
        kills: how often they have been killed.
        kills_with_progress: how many of the kills came after new commits.
    """

    def __init__(self, base: Path, file: Path, draw: random.Random) -> None:
        self.folder = base / "run"
        self.kills = 0
        self.kills_with_progress = 0
        self._file = file
        self._draw = draw
        self._commits = 0

    def run_once(self, *, is_last: bool) -> bool:
        """Start or resume the run and kill it, unless it is the last time. Returns whether the run ended."""
        is_resumed = (self.folder / FILE).exists()
        what = ["--resume", self.folder] if is_resumed else [self._file, "--out", self.folder]
        command = seedbus("run", *what, "--workers", WORKERS, "--transport", "ipc", "-q", cwd=self.folder.parent)
        if not is_last:
            self._wait(command)
            if command.poll() is None:
                self._kill(command)
                return False
        _, stderr = command.communicate()
        assert command.returncode == 0, stderr
        return True

    def _wait(self, command: subprocess.Popen[str]) -> None:
        """Wait for a random moment, of the start while processes join or of a round, or for the end."""
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
        command.communicate()
        wait_for(lambda: not any(map(is_alive, workers)))
        kept = versions(self.folder)
        assert kept[: len(before)] == before and kept == list(range(1, len(kept) + 1))
        self.kills += 1
        self.kills_with_progress += len(kept) > self._commits
        self._commits = len(kept)


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.mark.parametrize(
    ("kills", "rounds"),
    [pytest.param(4, 250, marks=pytest.mark.slow), pytest.param(100, 2000, marks=pytest.mark.soak)],
)
def test_everything_killed_at_once_at_random_moments_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, rounds: int
) -> None:
    task = {"name": "quadratic", "dimension": 20_000}
    what = lossy(task=task, algorithm=HISO, stop={"rounds": rounds}, evaluation={"every": 50})
    whole = outcome(run(what, tmp_path / "whole"))
    (tmp_path / "what.yaml").write_text(dump(what.resolved()))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the sockets that a killed server leaves behind
    count, with_progress, number, draw = 0, 0, 0, random.Random(11)
    while count < kills:
        base = tmp_path / str(number)
        base.mkdir()
        killed = KilledRun(base, tmp_path / "what.yaml", draw)
        while not killed.run_once(is_last=count + killed.kills >= kills):
            pass
        count += killed.kills
        with_progress += killed.kills_with_progress
        number += 1
        (mine, my_lines), (theirs, their_lines) = outcome(Results.read(killed.folder)), whole
        assert {**mine, "refusals": None} == {**theirs, "refusals": None} and my_lines == their_lines
        assert versions(killed.folder) == list(range(1, theirs["version"] + 1))
    print(
        f"{count} kills of {WORKERS + 1} processes in {number} runs, {with_progress} after new rounds: 0 commits lost"
    )
    assert with_progress > kills // 4
