"""A run's folder that somebody else has prepared: nothing is written through links or pipes in place of its files."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from journal_cases import killed_run
from worlds import lossy, outcome

from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.errors import RunFolderError
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.files import WrongFileType, atomic_write, descriptor
from seedbus.scenarios.reporting.findings import ANALYSIS, kept
from seedbus.scenarios.reporting.results import Results, write
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.studies.study.store import StoredRun

WHAT = lossy(stop={"rounds": 12})
RUNNING = ["scenario.yaml", "metrics.jsonl", "log.jsonl", "lock", "journal.head", "clients", "messages"]
DATABASE = ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.sqlite-journal"]
TOO_LARGE = "it has 2,147,483,648 bytes; at most 1,073,741,824 are read"
WRITTEN = ["report.html", "report.html.unfinished", "results.json.unfinished", "messages/000000.parquet.unfinished"]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its eighth round."""
    with pytest.MonkeyPatch.context() as patch:
        return killed_run(tmp_path_factory.mktemp("cut"), patch, WHAT)


def refused(work: Callable[[], object], path: Path) -> str:
    """Check that `work` is refused with one sentence that names the path, and return the sentence."""
    with pytest.raises((RunFolderError, LedgerDamaged)) as raised:
        work()
    sentence = str(raised.value)
    assert path.name in sentence and "\n" not in sentence
    return sentence


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", [*RUNNING, *DATABASE, *WRITTEN])
def test_a_run_that_goes_on_writes_through_no_link(cut: Path, tmp_path: Path, name: str) -> None:
    folder, outside = Path(shutil.copytree(cut, tmp_path / "run")), tmp_path / "outside"
    outside.mkdir()
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    mine = outside / path.name
    if name in ("clients", "messages"):
        mine.mkdir()
        (mine / "mine.txt").write_text("mine")
    elif path.exists():
        path.rename(mine)  # a valid file, but outside the folder
    else:
        mine.write_bytes(b"mine")
    path.symlink_to(mine)
    before = tree(outside)
    assert "a symbolic link" in refused(lambda: run(WHAT, folder, resume=True), path)
    assert tree(outside) == before and path.is_symlink()


@pytest.mark.parametrize("name", ["lock", "journal.unfinished", "journal.unfinished-wal"])
def test_a_run_that_begins_writes_through_no_link(tmp_path: Path, name: str) -> None:
    path, mine = tmp_path / "run" / name, tmp_path / "mine"
    path.parent.mkdir()
    mine.write_text("mine")
    path.symlink_to(mine)
    assert "a symbolic link" in refused(lambda: run(WHAT, path.parent), path)
    assert mine.read_text() == "mine" and path.is_symlink()


def test_results_of_zeros_that_take_no_place_on_the_disk_are_not_read_into_the_memory(tmp_path: Path) -> None:
    results = Results.read(run(WHAT, tmp_path / "run").folder)
    os.truncate(results.folder / "metrics.jsonl", 2**31)
    assert TOO_LARGE in refused(lambda: results.lines, results.folder / "metrics.jsonl")
    os.truncate(results.folder / "results.json", 2**31)
    read = partial(Results.read, results.folder)
    assert TOO_LARGE in refused(read, results.folder / "results.json")
    for path, read_other in (
        (results.folder / ANALYSIS, partial(kept, results.folder)),
        (tmp_path / "run.json", StoredRun(WHAT, results.folder).measured),
    ):
        path.touch()
        os.truncate(path, 2**31)
        assert TOO_LARGE in refused(read_other, path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "lock", "journal.head", "journal.sqlite-wal"])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(cut: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(cut, tmp_path / "run"))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert f"{name} is a pipe; expected a file" in refused(lambda: run(WHAT, folder, resume=True), folder / name)


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.jsonl", "journal.sqlite"])
def test_a_file_that_has_another_name_elsewhere_is_not_written_in_place(cut: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(cut, tmp_path / "run"))
    os.link(folder / name, tmp_path / "mine")
    before = (tmp_path / "mine").read_bytes()
    assert "a hard link" in refused(lambda: run(WHAT, folder, resume=True), folder / name)
    assert (tmp_path / "mine").read_bytes() == before


def test_a_journal_that_is_only_read_is_not_written_through_a_hard_link_of_its_index(cut: Path, tmp_path: Path) -> None:
    folder, mine = Path(shutil.copytree(cut, tmp_path / "run")), tmp_path / "mine"
    assert (folder / "journal.sqlite-wal").exists()
    mine.write_bytes(b"mine")
    (folder / "journal.sqlite-shm").unlink(missing_ok=True)
    os.link(mine, folder / "journal.sqlite-shm")
    for work in (lambda: replay(folder), lambda: run(WHAT, folder, resume=True)):
        assert "a hard link" in refused(work, folder / "journal.sqlite-shm")
        assert mine.read_bytes() == b"mine"


def test_a_folder_that_is_itself_a_link_is_the_one_that_its_user_means(cut: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert outcome(run(WHAT, tmp_path / "link", resume=True)) == outcome(run(WHAT, tmp_path / "whole"))


def test_results_are_not_read_through_a_link_nor_a_model_written_through_one(tmp_path: Path) -> None:
    folder, mine = run(WHAT, tmp_path / "run").folder, tmp_path / "mine"
    mine.write_text("mine")
    model = replay(folder)
    for name in ("model", "model.unfinished"):
        (tmp_path / name).symlink_to(mine)
        assert f"{name} is a symbolic link" in refused(lambda: model.save(tmp_path / "model"), tmp_path / name)
        (tmp_path / name).unlink()
    for read in ("results.json", "messages/000000.parquet"):
        (folder / read).rename(tmp_path / "moved")
        (folder / read).symlink_to(tmp_path / "moved")
        assert "a symbolic link" in refused(lambda: Results.read(folder).messages, folder / read)
        (folder / read).unlink()
        (tmp_path / "moved").rename(folder / read)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["7", "7/0-3.memory", "7/0-3.memory.unfinished"])
def test_what_clients_remember_is_neither_written_nor_read_through_a_link(tmp_path: Path, name: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "clients" / name
    path.parent.mkdir(parents=True)
    if name == "7":
        outside.mkdir()
    else:
        outside.write_bytes(b"\x01")
    path.symlink_to(outside)
    before = outside.read_bytes() if outside.is_file() else list(outside.iterdir())
    with pytest.raises(WrongFileType, match="is a symbolic link"):
        ClientStateStore(tmp_path / "clients").before(7, 4)
        ClientStateStore(tmp_path / "clients").keep(7, 3, "three")
    assert (outside.read_bytes() if outside.is_file() else list(outside.iterdir())) == before


def test_a_name_that_becomes_a_link_while_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check finds no link, but there is one when the file is opened."""
    mine, ours = tmp_path / "mine", tmp_path / "ours"
    mine.write_text("mine")
    ours.symlink_to(mine)
    monkeypatch.setattr("seedbus.bus.files.check_file", lambda path, **_: False)
    for flags in (os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
        with pytest.raises(OSError):
            os.close(descriptor(ours, flags))
    ours.with_name("new.unfinished").symlink_to(mine)
    with pytest.raises(OSError):
        write(ours.with_name("new"), "theirs")
    assert mine.read_text() == "mine"


def test_sockets_and_devices_are_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("there")
        with pytest.raises(WrongFileType, match="there is a socket; expected a file"), atomic_write(tmp_path / "there"):
            pass
    with pytest.raises(WrongFileType, match="null is a device; expected a file"):
        descriptor(Path("/dev/null"), os.O_WRONLY)
