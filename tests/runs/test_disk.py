"""A disk that is full, read-only or has another file in the way: one sentence, and no round is lost."""

from __future__ import annotations

import errno
import itertools
import json
import os
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import seedbus
from worlds import go, lossy, outcome

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.bus import Ledger
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import dump

WHAT = lossy(stop={"rounds": 12})


def resume(folder: Path) -> Results:
    return run(WHAT, folder, resume=True)


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(RunFolderError, match=r"the run's folder cannot be made \(File exists\)"):
        run(WHAT, tmp_path / "run")


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.jsonl", "scenario.yaml", "results.json.unfinished"])
def test_a_folder_in_place_of_a_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    Journal.create(tmp_path / "run", {"scenario": json.dumps(WHAT.resolved())}).close()
    (tmp_path / "run" / name).mkdir()
    with pytest.raises(RunFolderError, match=f"{name} is a folder; expected a file"):
        resume(tmp_path / "run")


def test_a_finished_run_on_a_medium_that_cannot_be_written_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = go(tmp_path / "run", WHAT).folder
    connect, asked = sqlite3.connect, list[str]()

    def watched(database: str, **options: Any) -> Any:
        asked.append(database)
        return connect(database, **options)

    monkeypatch.setattr(sqlite3, "connect", watched)
    before = sorted(path.name for path in folder.iterdir())
    assert replay(folder).digest == Results.read(folder).digest
    assert asked and all("mode=ro&immutable=1" in database for database in asked)  # SQLite then creates no files
    assert sorted(path.name for path in folder.iterdir()) == before


_FULL = """
import resource, sys
from pathlib import Path
from seedbus.cli import main as cli
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop()), resource.RLIM_INFINITY))
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 60_000, 150_000])
def test_a_disk_that_fills_up_is_one_sentence_and_loses_no_round(tmp_path: Path, room: int) -> None:
    """No file may grow past `room` bytes, as on a disk that is full."""
    file, folder = tmp_path / "small.yaml", tmp_path / "run"
    file.write_text(dump(WHAT.resolved()), encoding="utf-8")
    ended = seedbus("-c", _FULL, "run", file, "-q", "--out", folder, "--set", "stop.rounds=40", room)
    printed, said = ended.communicate()
    assert (ended.returncode, printed) == (4, ""), said
    assert said.startswith(f"seedbus: {folder}") and said.count("\n") == 1
    if room < 60_000:
        return
    what = load(file, ["stop.rounds=40"])
    assert outcome(run(what, folder, resume=True)) == outcome(run(what, tmp_path / "whole"))


def test_a_disk_that_is_full_when_the_ledger_is_written_loses_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Ledger, **options: bool) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "write_segment", full)
        said = r"the run's folder cannot be written \(No space left on device\); .* be resumed \(--resume\) once"
        with pytest.raises(RunFolderError, match=said):
            run(WHAT, tmp_path / "run")
    assert outcome(resume(tmp_path / "run")) == outcome(go(tmp_path / "whole", WHAT))


NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def may_mount() -> bool:
    """Whether this machine lets a process mount file systems in a namespace."""
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not may_mount(), reason="this machine does not allow user namespaces")
@pytest.mark.parametrize("step", [92, pytest.param(4, marks=pytest.mark.soak)])
def test_a_small_disk_is_one_sentence_at_any_size_and_the_run_goes_on_once_it_has_grown(
    tmp_path: Path, step: int
) -> None:
    program = [sys.executable, str(Path(__file__).parents[1] / "support" / "full_disk.py")]
    rooms = json.dumps(list(range(4, 440, step)))
    done = subprocess.run([*NAMESPACE, *program, str(tmp_path), rooms], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *small, read_only = json.loads(done.stdout)
    stopped = [found for found in small if found["code"]]
    for found in [*stopped, read_only]:
        assert found["code"] == 4 and not found["failures"], found
        assert found["said"].startswith(f"seedbus: {tmp_path / 'disk' / 'run'}") and found["said"].count("\n") == 1
        assert found is read_only or "--resume" in found["said"] or not found["rounds"], found
    assert "Read-only file system" in read_only["said"] and read_only["rounds"] == 6
    kept = [found["rounds"] for found in stopped]
    assert min(kept) == 0 and max(kept) >= 9, "it stopped before the first round, and near the last"
    print(f"{len(stopped)} disks that were full, at {len(set(kept))} different rounds; every run ended alike")


@pytest.mark.slow
def test_a_write_that_the_disk_refuses_is_one_sentence_and_loses_no_round(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of fsync fails once, each in a run of its own."""
    fsync, whole = os.fsync, outcome(run(WHAT, memory / "whole"))
    monkeypatch.setattr("seedbus.agents.launcher.Ledger", partial(Ledger, segment_rows=40))

    def fails_at(number: int) -> bool:
        calls = itertools.count(1)

        def refused(descriptor: int) -> None:
            if next(calls) == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(descriptor)

        folder = memory / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refused)
            try:
                run(WHAT, folder)
            except RunFolderError as error:
                assert os.strerror(errno.EIO) in str(error)
                assert outcome(resume(folder)) == whole
                return True
        return False

    failures = sum(itertools.takewhile(bool, map(fails_at, itertools.count(1))))
    print(f"{failures} calls that failed, each in its turn: every run ended alike")
    assert failures > 6
