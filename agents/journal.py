"""The journal: every commit, durable before anybody hears of it, and all that a resumed run needs.

One SQLite file (WAL, synchronous=FULL) in the run's folder. A round is one transaction: its commit, the members whose
version changed, the rows of the message ledger, the metrics, and the checkpoint of coordinator and bus. So a process
that is killed at any instant leaves the state after some whole round, and a resumed run goes on from exactly there.

The scenario is the first link of a chain: each round carries the digest of the one before it, the checkpoint that of
the last round. A flipped byte is found, and so is where. x₀ plus the journal is the model: `rounds` is all that
`replay` needs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged, RunFolderError

FILE = "journal.sqlite"
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, version INTEGER NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL
);
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


@dataclass(frozen=True, slots=True)
class Entry:
    """One closed round. commit: its packed body, or None for a round without quorum; rows: new rows of the ledger.

    known: versions at which the server believes members to be, ~version of those who have left; held: those to which
    delivered plans brought them (a report may have been lost); halves: what they have of snapshots. Only what changed.

    snapshot: the one that the server holds, if it is another than before; b"": none any more.

    segments: complete files of the ledger; when `is_rotated`, all rows up to here are in them.
    """

    round: int
    version: int
    cohort: Sequence[int]
    reported: Sequence[int]
    commit: list[Any] | None
    known: Iterable[tuple[int, int]]
    held: Iterable[tuple[int, int]]
    metrics: Sequence[dict[str, Any]]
    rows: bytes
    segments: int
    is_rotated: bool
    state: list[Any]
    halves: Iterable[tuple[int, bytes]] = ()
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a resumed run goes on from."""

    state: list[Any]
    segments: int
    rows: bytes
    metrics: list[dict[str, Any]]
    known: dict[int, int]
    held: dict[int, int]
    last: tuple[int, int, list[int], list[int], bool]
    """The last round: its number, the version after it, its cohort, who reported, and whether it made a commit."""
    halves: dict[int, bytes]
    snapshot: bytes


class Journal:
    """The journal of one run; one process at a time."""

    def __init__(self, folder: Path, database: sqlite3.Connection, lock: Any) -> None:
        self.folder, self._database, self._lock = folder, database, lock
        row = database.execute("SELECT chain FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
        self._chain: bytes = row[0] if row else self._root()
        self._snapshot = _digest(self._held_snapshot())

    @classmethod
    def create(cls, folder: Path, facts: dict[str, str]) -> Journal:
        """A new journal in a folder that has none. facts: what the run is (its resolved scenario among them)."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        if (folder / FILE).exists():
            raise RunFolderError(folder, "there is a run here already; resume it or name another folder")
        if any(folder.iterdir()):
            raise RunFolderError(folder, "there is something else here, and no run; name a new or an empty folder")
        with _said_plainly(folder), ExitStack() as undo:
            lock = undo.enter_context(_locked(folder))
            database = undo.enter_context(closing(_connect(folder, "rwc")))
            _make_durable(database)
            with database:
                database.executescript("BEGIN;" + _SCHEMA)
                database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            journal = cls(folder, database, lock)
            undo.pop_all()
        return journal

    @classmethod
    def open(cls, folder: Path, *, for_writing: bool = True) -> Journal:
        """The journal of a run that exists. Raises `RunFolderError` or `JournalDamaged`."""
        if not (folder / FILE).is_file():
            raise RunFolderError(folder, f"there is no run here (no {FILE})")
        if not (folder / FILE).stat().st_size:
            raise JournalDamaged(folder / FILE, 0, "it is empty")
        with _said_plainly(folder), ExitStack() as undo:
            lock = undo.enter_context(_locked(folder)) if for_writing else None
            # without a write-ahead log nobody is writing, and the folder may be on a medium that cannot be written
            quiet = "" if (folder / f"{FILE}-wal").exists() else "&immutable=1"
            database = undo.enter_context(closing(_connect(folder, "rw" if for_writing else f"ro{quiet}")))
            if for_writing:
                _make_durable(database)
            journal = cls(folder, database, lock)
            undo.pop_all()
        return journal

    @property
    def run_id(self) -> bytes:
        """Eight bytes that tell this run from every other, even of the same scenario."""
        known = self.facts().get("run")
        if known is None:
            known = os.urandom(8).hex()
            self.note({"run": known})
        return self.proof("run", known)

    def proof(self, name: str, known: str | None = None) -> bytes:
        """A fact that is written in hexadecimal. Raises `JournalDamaged`."""
        text = self.facts().get(name, "") if known is None else known
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise JournalDamaged(self.folder / FILE, 0, f"its {name} {text!r} is not hexadecimal") from None

    def facts(self) -> dict[str, str]:
        with _said_plainly(self.folder):
            return dict(self._database.execute("SELECT name, value FROM facts").fetchall())

    def note(self, facts: dict[str, str]) -> None:
        """Add or replace facts."""
        with _said_plainly(self.folder), self._database as database:
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def append(self, entry: Entry) -> None:
        """Make a round durable; when this returns it is on the disk."""
        body: bytes = msgpack.packb([list(entry.cohort), list(entry.reported), entry.commit])
        chain = _link(self._chain, entry.round, entry.version, body)
        with _said_plainly(self.folder), self._database as database:
            database.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (entry.round, entry.version, body, chain))
            database.executemany("INSERT OR REPLACE INTO known VALUES (?, ?)", entry.known)
            database.executemany("INSERT OR REPLACE INTO held VALUES (?, ?)", entry.held)
            lines = [(json.dumps(line),) for line in entry.metrics]
            database.executemany("INSERT INTO metrics (line) VALUES (?)", lines)
            if entry.is_rotated:
                database.execute("DELETE FROM rows")
            elif entry.rows:
                database.execute("INSERT INTO rows (packed) VALUES (?)", (entry.rows,))
            database.executemany("INSERT OR REPLACE INTO halves VALUES (?, ?)", entry.halves)
            snapshot = self._snapshot
            if entry.snapshot is not None:
                database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (entry.snapshot,))
                snapshot = _digest(entry.snapshot)
            state: bytes = msgpack.packb(entry.state)
            checkpoint = (entry.segments, state, _digest(chain + state + snapshot))
            database.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", checkpoint)
        self._chain, self._snapshot = chain, snapshot

    def finish(self, metrics: Sequence[dict[str, Any]], segments: int, facts: dict[str, str]) -> None:
        """The run is over: its last metrics, facts about its end, and all rows are in the ledger's segments."""
        with _said_plainly(self.folder), self._database as database:
            database.executemany("INSERT INTO metrics (line) VALUES (?)", [(json.dumps(line),) for line in metrics])
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
            database.execute("DELETE FROM rows")
            database.execute("UPDATE checkpoint SET segments = ?", (segments,))

    def rotated(self, segments: int) -> None:
        """All rows of the checkpoint are in the ledger's segments now."""
        with _said_plainly(self.folder), self._database as database:
            database.execute("DELETE FROM rows")
            database.execute("UPDATE checkpoint SET segments = ?", (segments,))

    def checkpoint(self) -> Checkpoint | None:
        """The state after the last whole round, or None if there is none yet. Raises `JournalDamaged`."""
        with _said_plainly(self.folder):
            found = self._database.execute("SELECT segments, state, chain FROM checkpoint").fetchone()
            if found is None:
                return None
            segments, state, link = found
            rows = b"".join(packed for (packed,) in self._database.execute("SELECT packed FROM rows ORDER BY number"))
            known = dict(self._database.execute("SELECT client, version FROM known").fetchall())
            held = dict(self._database.execute("SELECT client, version FROM held").fetchall())
            halves = dict(self._database.execute("SELECT client, note FROM halves WHERE note != x''").fetchall())
            snapshot, verified = self._held_snapshot(), deque(self.rounds(), maxlen=1)
            if not verified or link != _digest(self._chain + state + _digest(snapshot)):
                good = verified[0][0] + 1 if verified else 0
                raise JournalDamaged(self.folder / FILE, good, "the checkpoint does not verify")
            round, version, cohort, reported, commit = verified.pop()
            unpacked = msgpack.unpackb(state, strict_map_key=False)
        last = (round, version, cohort, reported, commit is not None)
        return Checkpoint(unpacked, segments, rows, self.metrics(), known, held, last, halves, snapshot)

    def _held_snapshot(self) -> bytes:
        found = self._database.execute("SELECT packed FROM snapshot").fetchone()
        return bytes(found[0]) if found else b""

    def metrics(self) -> list[dict[str, Any]]:
        with _said_plainly(self.folder):
            lines = self._database.execute("SELECT line FROM metrics ORDER BY number").fetchall()
            return [json.loads(line) for (line,) in lines]

    def rounds(self, after: int = 0) -> Iterator[tuple[int, int, list[int], list[int], list[Any] | None]]:
        """(round, version after it, cohort, reported, packed commit or None), verified. Raises `JournalDamaged`.

        after: the last version that is not of interest.
        """
        chain, good = self._root(), 0
        path = self.folder / FILE
        with _said_plainly(self.folder):
            if after:  # a round makes one commit at most: none before round `after` made a later one
                first = "SELECT round FROM rounds WHERE round >= ? AND version > ? ORDER BY round LIMIT 1"
                found = self._database.execute(first, (after, after)).fetchone()
                if found is None:
                    return
                good = found[0]
                before = self._database.execute("SELECT chain FROM rounds WHERE round = ?", (good - 1,)).fetchone()
                chain = before[0] if before else chain
            for round, version, body, link in self._database.execute(
                "SELECT round, version, body, chain FROM rounds WHERE round >= ? ORDER BY round", (good,)
            ):
                chain = _link(chain, round, version, body)
                if round != good or chain != link:
                    raise JournalDamaged(path, good, f"round {good} does not verify")
                cohort, reported, commit = msgpack.unpackb(body)
                yield round, version, cohort, reported, commit
                good += 1

    def _root(self) -> bytes:
        """What the chain of rounds begins with: the digest of the scenario."""
        return _digest(self.facts().get("scenario", "").encode())

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()


def _link(previous: bytes, round: int, version: int, body: bytes) -> bytes:
    return _digest(previous + b"%d %d " % (round, version) + body)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _connect(folder: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{(folder / FILE).absolute().as_uri()}?mode={mode}", uri=True, check_same_thread=False)


def _make_durable(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")


def _locked(folder: Path) -> Any:
    """A lock that the system drops when the process ends, however it ends."""
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunFolderError(folder, "another process is running here") from None
    return file


@contextmanager
def _said_plainly(folder: Path) -> Iterator[None]:
    """SQLite's errors as one sentence that names the file; what cannot be decoded is damage too."""
    path = folder / FILE
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such"):  # table, or column
            raise JournalDamaged(path, 0, str(error)) from None
        raise RunFolderError(path, f"the journal cannot be read or written ({error})") from None
    except sqlite3.DatabaseError as error:
        raise JournalDamaged(path, 0, str(error)) from None
    except (ValueError, msgpack.UnpackException) as error:
        raise JournalDamaged(path, 0, f"it holds what cannot be decoded ({error})") from None
