"""The file under a journal: begun whole or not at all, locked by one process, its errors one sentence."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.bus.files import sync_folder

FILE = "journal.sqlite"
LOCK = "lock"
_BEGUN = "journal.unfinished"
_BEGINNINGS = {LOCK, *(_BEGUN + suffix for suffix in ("", "-journal", "-wal", "-shm"))}
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
    """Raises `RunFolderError` unless a run may begin here: nothing is, or what one left that never came to begin."""
    if (folder / FILE).exists():
        raise RunFolderError(folder, "there is a run here already; resume it or name another folder")
    if any(path.name not in _BEGINNINGS for path in folder.iterdir()):
        raise RunFolderError(folder, "there is something else here, and no run; name a new or an empty folder")


def begin(folder: Path, facts: Mapping[str, str]) -> None:
    """A new file in a locked folder. It gets its name when it is whole: who is killed before has begun nothing."""
    begun = folder / _BEGUN
    for name in _BEGINNINGS - {LOCK}:
        (folder / name).unlink(missing_ok=True)
    with closing(connect(begun, "rwc")) as database:
        with database:
            database.executescript("BEGIN;" + _SCHEMA)
            database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        prepare(begun, database)  # only now: what is in a write-ahead log would not take part in the change of name
    begun.replace(folder / FILE)
    for entry in (folder, folder.parent):
        sync_folder(entry)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, check_same_thread=False)


def prepare(path: Path, database: sqlite3.Connection) -> None:
    """Make every transaction durable. Raises `JournalDamaged` for pages that are lost or used twice: writing on would
    overwrite what is sound."""
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise JournalDamaged(path, 0, _line(found))


def locked(folder: Path) -> Any:
    """A lock that the system drops when the process ends, however it ends."""
    try:
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunFolderError(folder, "another process is running here") from None
    return file


@contextmanager
def said_plainly(folder: Path) -> Iterator[None]:
    """SQLite's errors as one sentence that names the file; what cannot be decoded is damage too."""
    path = folder / FILE
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # text that is none has no code
        if code == sqlite3.SQLITE_ERROR:  # our statements are sound, so the tables are not ours
            raise JournalDamaged(path, 0, _line(error)) from None
        raise RunFolderError(path, f"the journal cannot be read or written ({error})") from None
    except sqlite3.DatabaseError as error:
        raise JournalDamaged(path, 0, _line(error)) from None
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise JournalDamaged(path, 0, f"it holds what cannot be decoded ({_line(error)})") from None
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None


def _line(words: object) -> str:
    """On one line: SQLite quotes what it finds."""
    return " ".join(str(words).split())
