"""The file under a journal: begun whole or not at all, locked by one process, its errors one sentence."""

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
from seedbus.bus.files import Misplaced, check_file, descriptor, remove, sync_folder
from seedbus.bus.text import printable

FILE = "journal.sqlite"
LOCK = "lock"
_BEGUN = "journal.unfinished"
_BEGINNINGS = {LOCK, *(_BEGUN + suffix for suffix in ("", "-journal", "-wal", "-shm"))}
LONGEST = 2**24
"""Bytes of a fact, and of what the file says of its tables."""
_STEPS = 50_000_000
"""Of SQLite's machine, a second's worth: what reading one table may take beside a step for each byte of the file. Pages
that refer to each other in circles would take for ever."""
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
    if check_file(folder / FILE):
        raise RunFolderError(folder, "there is a run here already; resume it or name another folder")
    if any(path.name not in _BEGINNINGS for path in folder.iterdir()):
        raise RunFolderError(folder, "there is something else here, and no run; name a new or an empty folder")


def begin(folder: Path, facts: Mapping[str, str]) -> None:
    """A new file in a locked folder. It gets its name when it is whole: who is killed before has begun nothing."""
    begun = folder / _BEGUN
    for name in _BEGINNINGS - {LOCK}:
        remove(folder / name)
    os.close(descriptor(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL))  # not by SQLite, which would follow a link
    with closing(connect(begun, "rw")) as database:
        with database:
            database.executescript("BEGIN;" + _SCHEMA)
            database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        prepare(begun, database)  # only now: what is in a write-ahead log would not take part in the change of name
    begun.replace(folder / FILE)
    for entry in (folder, folder.parent):
        sync_folder(entry)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    options: dict[str, Any] = {"cached_statements": 0} if mode.startswith("ro") else {}
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    database: sqlite3.Connection = sqlite3.connect(uri, uri=True, check_same_thread=False, **options)
    if options:  # the steps of a statement count from its first use on, so none may be used again
        database.set_progress_handler(lambda: 1, _STEPS + sum(map(_size, _files(path))))
    return database


def check_names(folder: Path, *, is_written: bool) -> bool:
    """Whether there is a journal. Raises `Misplaced` if one of its files is a link, or none at all.

    SQLite opens by name and follows links, so what takes a name's place after this check is not noticed.
    """
    is_there, *_ = [check_file(path, is_written=is_written) for path in _files(folder / FILE)]
    return is_there


def check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Raises `JournalDamaged` for a view, a trigger or any other table than ours: what a file's author wrote there
    would run when we read it, for ever if he likes."""
    most = database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    for statement in ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON"):
        database.execute(statement)
    known = _tables()
    for kind, name, statement in database.execute("SELECT type, name, sql FROM sqlite_master LIMIT 100"):
        if (kind, statement) != known.get(name):
            what = f"{printable(str(kind), 20)} {printable(str(name), 40)}"
            raise JournalDamaged(path, 0, f"its {what} is none of a journal's")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)


@cache
def _tables() -> dict[str, tuple[str, str | None]]:
    """name → (table or index, the statement that made it), as SQLite keeps them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        return {
            name: (kind, said) for kind, name, said in database.execute("SELECT type, name, sql FROM sqlite_master")
        }


def _files(path: Path) -> list[Path]:
    """A database's own, and what SQLite puts beside it."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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
        file = open(descriptor(folder / LOCK, os.O_RDWR | os.O_CREAT), "rb+")
    except Misplaced as error:
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
def said_plainly(folder: Path) -> Iterator[None]:
    """SQLite's errors as one sentence that names the file; what cannot be decoded is damage too."""
    path = folder / FILE
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # text that is none has no code
        if code == sqlite3.SQLITE_INTERRUPT:
            raise JournalDamaged(path, 0, "reading it does not come to an end") from None
        if code == sqlite3.SQLITE_ERROR:  # our statements are sound, so the tables are not ours
            raise JournalDamaged(path, 0, _line(error)) from None
        raise RunFolderError(path, f"the journal cannot be read or written ({error})") from None
    except sqlite3.DatabaseError as error:
        raise JournalDamaged(path, 0, _line(error)) from None
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise JournalDamaged(path, 0, f"it holds what cannot be decoded ({_line(error)})") from None
    except Misplaced as error:
        raise RunFolderError(folder, error.what) from None
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None


def _line(words: object) -> str:
    """On one line: SQLite quotes what it finds."""
    return " ".join(str(words).split())
