"""The SQLite file of a journal: created whole or not at all, locked by one process, its errors one sentence each."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal import base
from seedbus.agents.journal.long_values import TABLE
from seedbus.bus.files import WrongFileType, check_file, descriptor, remove, sync_folder
from seedbus.bus.text import printable

FILE = "journal.sqlite"
LOCK = "lock"
_UNFINISHED = "journal.unfinished"
_LEFTOVERS = {LOCK, *(_UNFINISHED + suffix for suffix in ("", "-journal", "-wal", "-shm"))}
LONGEST = 2**24
"""The most bytes that a fact, or the definition of a table, may have."""
_STEPS = 50_000_000
"""How many steps of SQLite's virtual machine reading one table may take, beside one for each byte of the file: about a
second's work. Without a limit, pages that refer to each other in a circle would be read forever."""
_MOST_STEPS = 2**31 - 1
"""The largest limit that SQLite takes: files of 2 GB and more have no larger one."""
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, version INTEGER NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL
);
CREATE TABLE models (version INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE known (client INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE held (client INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE halves (client INTEGER PRIMARY KEY, note BLOB NOT NULL);
CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), packed BLOB NOT NULL);
CREATE TABLE metrics (number INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE rows (number INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE checkpoint (
    one INTEGER PRIMARY KEY CHECK (one = 1), segments INTEGER NOT NULL, state BLOB NOT NULL, chain BLOB NOT NULL
);
"""


def refuse_taken(folder: Path) -> None:
    """Raise `RunFolderError` unless the folder is empty, but for what a run left that was killed before it began."""
    if check_file(folder / FILE):
        raise RunFolderError(folder, "there is a run here already; resume it or name another folder")
    if any(path.name not in _LEFTOVERS for path in folder.iterdir()):
        raise RunFolderError(folder, "there is something else here, and no run; name a new or an empty folder")


def begin(folder: Path, facts: Mapping[str, str]) -> None:
    """Create the file in a locked folder. It gets its name once it is whole: a process that is killed leaves none."""
    unfinished = folder / _UNFINISHED
    for name in _LEFTOVERS - {LOCK}:
        remove(folder / name)
    os.close(descriptor(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL))  # SQLite would follow a link
    with closing(connect(unfinished, "rw")) as database:
        with database:
            database.executescript("BEGIN;" + _SCHEMA)
            database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        prepare(unfinished, database)  # not before: a write-ahead log would not be renamed with the file
    unfinished.replace(folder / FILE)
    for entry in (folder, folder.parent):
        sync_folder(entry)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open the database; mode: SQLite's, "rw" or "ro", with further parameters of its URI."""
    options: dict[str, Any] = {"cached_statements": 0} if mode.startswith("ro") else {}
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    database: sqlite3.Connection = sqlite3.connect(uri, uri=True, check_same_thread=False, **options)
    if options:  # SQLite counts a statement's steps from its first use, so no statement may be cached
        steps = _STEPS + sum(map(_size, _files(path)))
        database.set_progress_handler(lambda: 1, min(steps, _MOST_STEPS))
    return database


class Place:
    """Where a journal's file was when it was opened: SQLite goes on with a file that was deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._file = self._there()

    def check(self) -> None:
        """Raise `RunFolderError` if the file is there no more."""
        if self._there() != self._file:
            what = "the journal was deleted, moved or replaced while the run was going on"
            raise RunFolderError(self._path, f"{what}; the run has stopped, because its rounds would be lost")

    def _there(self) -> tuple[int, int] | None:
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def check_names(folder: Path, *, is_written: bool) -> bool:
    """Return whether there is a journal.

    SQLite opens files by name and follows links, so a link that appears after this check is not noticed.

    Raises:
        WrongFileType: one of the journal's files is a link, or no regular file.
    """
    database, wal, index, rollback = _files(folder / FILE)
    check_file(index, is_written=True)  # SQLite writes the index of a write-ahead log for readers, too
    is_there, *_ = [check_file(path, is_written=is_written) for path in (database, wal, rollback)]
    return is_there


def check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Raise `JournalDamaged` if there is a view, a trigger or a table that no journal has.

    Reading it would run SQL that the file's author chose, which may never end.
    """
    most = database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    for statement in ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON"):
        database.execute(statement)
    expected = _tables()
    for kind, name, statement in database.execute("SELECT type, name, sql FROM sqlite_master LIMIT 100"):
        if (kind, statement) != expected.get(name):
            what = f"{printable(str(kind), 20)} {printable(str(name), 40)}"
            raise JournalDamaged(path, 0, f"its {what} is none of a journal's")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)


@cache
def _tables() -> dict[str, tuple[str, str | None]]:
    """name → (kind, statement that created it) of each table and index, as SQLite stores them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(f"{_SCHEMA}{TABLE};{base.TABLES};")
        return {name: (kind, sql) for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master")}


def _files(path: Path) -> list[Path]:
    """The database's file, and those that SQLite puts beside it."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def prepare(path: Path, database: sqlite3.Connection) -> None:
    """Make every transaction durable.

    Raises:
        JournalDamaged: pages are lost or used twice. Further writing would overwrite sound ones.
    """
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalDamaged(path, 0, _line(verdict))


def locked(folder: Path) -> Any:
    """Return a lock on the folder, an open file. The system releases it when the process ends, however it ends.

    Raises:
        RunFolderError: another process holds it, or the folder cannot be written.
    """
    try:
        file = open(descriptor(folder / LOCK, os.O_RDWR | os.O_CREAT), "rb+")
    except WrongFileType as error:
        raise RunFolderError(folder, error.what) from None
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunFolderError(folder, "another process is running here") from None
    return file


@contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite, of decoding and of the system into `JournalDamaged` or `RunFolderError`."""
    path = folder / FILE
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # an error of decoding text has no code
        if code == sqlite3.SQLITE_INTERRUPT:
            raise JournalDamaged(path, 0, "reading it does not come to an end") from None
        if code == sqlite3.SQLITE_ERROR:  # our statements are correct, so the tables are not a journal's
            raise JournalDamaged(path, 0, _line(error)) from None
        raise RunFolderError(path, f"the journal cannot be read or written ({error})") from None
    except sqlite3.DatabaseError as error:
        raise JournalDamaged(path, 0, _line(error)) from None
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise JournalDamaged(path, 0, f"it holds what cannot be decoded ({_line(error)})") from None
    except WrongFileType as error:
        raise RunFolderError(folder, error.what) from None
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None


def _line(words: object) -> str:
    """One line: SQLite may quote text of several."""
    return " ".join(str(words).split())
