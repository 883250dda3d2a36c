"""What a killed process leaves in the folder for temporary files is removed by the next one; nothing else is."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from seedbus.bus import files
from seedbus.bus.files import TEMPORARY, temporary_folder

KILLED = """
import os, signal, sys
from seedbus.bus.files import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_killed_process(place: Path) -> Path:
    told = subprocess.run([sys.executable, "-c", KILLED, str(place)], capture_output=True, text=True).stdout
    return Path(told.strip())


def test_a_temporary_folder_is_removed_with_what_is_in_it(tmp_path: Path) -> None:
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
        (folder / "run").mkdir()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "own"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_no_process_has_locked_is_removed_with_what_is_in_it(tmp_path: Path) -> None:
    left = tmp_path / f"{TEMPORARY}left"
    (left / "run").mkdir(parents=True)
    with temporary_folder(str(tmp_path)):
        assert not left.exists()


@pytest.mark.slow
def test_the_next_process_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    assert left.parent == tmp_path and left.is_dir()
    with temporary_folder(str(tmp_path)) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_folders_in_use_and_those_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, link, file = tmp_path / "elsewhere", tmp_path / f"{TEMPORARY}link", tmp_path / f"{TEMPORARY}file"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    file.touch()
    with temporary_folder(str(tmp_path)) as one, temporary_folder(str(tmp_path)) as other:
        assert one.is_dir() and other.is_dir() and one != other
    theirs = tmp_path / f"{TEMPORARY}theirs"
    theirs.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: theirs.stat().st_uid + 1)
    files._remove_abandoned(tmp_path)
    assert theirs.is_dir() and link.is_symlink() and elsewhere.is_dir() and file.is_file()


def test_a_folder_that_was_taken_for_abandoned_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    make = tempfile.mkdtemp

    def taken_at_once(prefix: str, dir: Path) -> str:
        made.append(Path(make(prefix=prefix, dir=dir)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr("tempfile.mkdtemp", taken_at_once)
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.is_dir() and folder == made[1]


def test_without_locks_a_folder_is_made_and_none_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f"{TEMPORARY}left"
    left.mkdir()

    def no_locks(opened: int, operation: int) -> None:
        raise OSError("Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with temporary_folder(str(tmp_path)) as folder:
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == [left]
