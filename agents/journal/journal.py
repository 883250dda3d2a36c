"""The journal: every commit, durable before anybody hears of it, and all that a resumed run needs.

One SQLite file (WAL, synchronous=FULL) in the run's folder. A round is one transaction: its commit, the members whose
version changed, the rows of the message ledger, the metrics, and the checkpoint of coordinator and bus. So a process
that is killed at any instant leaves the state after some whole round, and a resumed run goes on from exactly there.

The scenario is the first link of a chain: each round carries the digest of the one before it, the checkpoint that of
the last round and of all the other tables. A flipped byte is found, and so is where; so is a file of which only a part
is newer than the rest. A tail that is gone leaves a sound chain, whose end `journal_head.py` vouches for.
x₀ plus the journal is the model: `rounds` is all that `replay` needs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.digests import SEAL, TableDigests, digest, seal_of
from seedbus.agents.journal.file import (
    FILE,
    begin,
    check_names,
    check_tables,
    connect,
    locked,
    prepare,
    refuse_taken,
    said_plainly,
)
from seedbus.agents.journal.head import HEAD, Head, HeadWriter, read_head
from seedbus.agents.journal.reader import KEPT_EVERY, MEMBERS, Reading, checkpoint_digest, link
from seedbus.agents.journal.records import JournalEnd, LastRound, MemberPosition, StoredRound


@dataclass(frozen=True, slots=True)
class Entry:
    """One closed round. commit: its packed body, or None for a round without quorum; rows: new rows of the ledger.
    is_dense: whether a commit makes those before it useless.

    known: versions at which the server believes members to be, ~version of those who have left; held: those to which
    delivered plans brought them (a report may have been lost); partial_downloads: what they have of snapshots. Only
    what changed.
    record: how the round went, packed.

    snapshot: the one that the server holds, if it is another than before; b"": none any more.

    segments: complete files of the ledger; when `is_rotated`, all rows up to here are in them.
    """

    round: int
    version: int
    cohort: Sequence[int]
    reported: Sequence[int]
    commit: list[Any] | None
    known: Iterable[tuple[int, MemberPosition]]
    held: Iterable[tuple[int, int]]
    metrics: Sequence[dict[str, Any]]
    rows: bytes
    segments: int
    is_rotated: bool
    state: Sequence[Any]
    record: Sequence[Any] = ()
    partial_downloads: Iterable[tuple[int, bytes]] = ()
    snapshot: bytes | None = None
    is_dense: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a resumed run goes on from."""

    state: list[Any]
    segments: int
    rows: bytes
    metrics: list[dict[str, Any]]
    known: dict[int, MemberPosition]
    held: dict[int, int]
    last: LastRound
    """The last round: its number, the version after it, its cohort, who reported, and whether it made a commit."""
    partial_downloads: dict[int, bytes]
    snapshot: bytes


class Journal:
    """The journal of one run; one process at a time."""

    def __init__(self, folder: Path, database: sqlite3.Connection, lock: Any, head: Head) -> None:
        self.folder, self._database, self._lock = folder, database, lock
        self._reading = Reading(folder / FILE, database)
        self._ends: JournalEnd | None = None
        self._head = head
        self._heads: HeadWriter | None = None

    @classmethod
    def create(cls, folder: Path, facts: dict[str, str]) -> Journal:
        """A new journal in a folder that has none. facts: what the run is (its resolved scenario among them)."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        refuse_taken(folder)
        with closing(locked(folder)), said_plainly(folder):
            refuse_taken(folder)  # by who had the lock until now
            begin(folder, facts | {SEAL: seal_of(facts)})
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, *, for_writing: bool = True) -> Journal:
        """The journal of a run that exists. Raises `RunFolderError` or `JournalDamaged`."""
        try:
            is_there = check_names(folder, is_written=for_writing)
        except OSError as error:
            raise RunFolderError(folder, f"there is no run here that can be read ({error.strerror})") from None
        if not is_there:
            raise RunFolderError(folder, f"there is no run here (no {FILE})")
        if not (folder / FILE).stat().st_size:
            raise JournalDamaged(folder / FILE, 0, "it is empty")
        with said_plainly(folder), ExitStack() as undo:
            lock = undo.enter_context(locked(folder)) if for_writing else None
            # without a write-ahead log nobody is writing, and the folder may be on a medium that cannot be written
            quiet = "" if (folder / f"{FILE}-wal").exists() else "&immutable=1"
            # before its journal, which another process may be writing: afterwards the head could be the newer one
            head = read_head(folder)
            database = undo.enter_context(closing(connect(folder / FILE, "rw" if for_writing else f"ro{quiet}")))
            check_tables(folder / FILE, database)
            journal = cls(folder, database, lock, head)
            if for_writing:
                with journal._plainly():
                    prepare(folder / FILE, database)
                journal._heads = HeadWriter(folder)
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
        with self._plainly():
            found = self._reading.facts()
            if found.pop(SEAL, None) != seal_of(found):
                raise JournalDamaged(self.folder / FILE, 0, "its facts do not verify")
            return found

    def note(self, facts: dict[str, str]) -> None:
        """Add or replace facts."""
        with self._plainly(reads=False), self._database:
            self._note(facts)

    def append(self, entry: Entry) -> None:
        """Make a round durable; when this returns it is on the disk."""
        chain, seals = self._end()
        commit: list[Any] | bytes | None = entry.commit
        model = msgpack.packb(commit) if entry.is_dense and commit is not None else None
        if model is not None:  # the chain vouches for it, and goes on without it once it is let go
            commit = digest(model)
        body: bytes = msgpack.packb([list(entry.cohort), list(entry.reported), list(entry.record), commit])
        chain = link(chain, entry.round, entry.version, body)
        lines, state = [json.dumps(line) for line in entry.metrics], msgpack.packb(entry.state)
        rows = [entry.rows] if entry.rows and not entry.is_rotated else []
        with self._plainly(reads=False), self._database as database:
            database.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (entry.round, entry.version, body, chain))
            if model is not None:
                database.execute("INSERT INTO models VALUES (?, ?)", (entry.version, model))
                old = (entry.version, KEPT_EVERY)
                database.execute("DELETE FROM models WHERE version < ? AND version % ?", old)
            known = {client: position.pack() for client, position in entry.known}
            seals = self._moved("known", known, seals)
            seals = self._moved("held", dict(entry.held), seals)
            if entry.is_rotated:
                database.execute("DELETE FROM rows")
                seals = seals.rotated()
            seals = self._moved("halves", dict(entry.partial_downloads), seals)
            if entry.snapshot is not None:
                database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (entry.snapshot,))
                seals = seals.holding(entry.snapshot)
            seals = self._grown(lines, rows, seals)
            self._check_in(entry.segments, state, chain, seals)
        self._ends = JournalEnd(chain, seals)
        if self._heads is not None:
            with self._plainly(reads=False):
                self._heads.put(entry.round, chain)

    def finish(self, metrics: Sequence[dict[str, Any]], segments: int, facts: dict[str, str]) -> None:
        """The run is over: its last metrics, facts about its end, and all rows are in the ledger's segments."""
        chain, seals = self._end()
        lines = [json.dumps(line) for line in metrics]
        with self._plainly(reads=False), self._database as database:
            self._note(facts)
            database.execute("DELETE FROM rows")
            seals = self._grown(lines, [], seals.rotated())
            found = database.execute("SELECT state FROM checkpoint").fetchone()
            if found is not None:
                self._check_in(segments, found[0], chain, seals)
        self._ends = JournalEnd(chain, seals)

    def rotated(self, segments: int) -> None:
        """All rows of the checkpoint are in the ledger's segments now."""
        self.finish([], segments, {})

    def checkpoint(self) -> Checkpoint | None:
        """The state after the last whole round, or None if there is none yet. Raises `JournalDamaged`."""
        with self._plainly():
            verified = deque(self._reading.rounds(), maxlen=1)
            found = self._database.execute("SELECT segments, state, chain FROM checkpoint").fetchone()
            if found is None and not verified:
                return None
            segments, state, claimed = found or (0, b"", b"")
            chain, seals = self._reading.end()
            if not verified or claimed != checkpoint_digest(chain, segments, state, seals):
                raise JournalDamaged(self.folder / FILE, 0, "the checkpoint does not verify")
            stored = verified.pop()
            last = LastRound(
                stored.round, stored.version, stored.cohort, stored.reported, has_commit=stored.commit is not None
            )
            rows = b"".join(self._reading.rows())
            known, held, partial_downloads = (dict(self._reading.members(table)) for table in MEMBERS)
            positions = {client: MemberPosition.unpack(stored) for client, stored in known.items()}
            unpacked = msgpack.unpackb(state, strict_map_key=False)
        partial_downloads = {client: note for client, note in partial_downloads.items() if note}
        return Checkpoint(
            unpacked, segments, rows, self.metrics(), positions, held, last, partial_downloads, self._reading.snapshot()
        )

    def metrics(self) -> list[dict[str, Any]]:
        with self._plainly():
            self._refuse_lost()
            return [json.loads(line) for line in self._reading.metrics()]

    def rounds(self, after: int = 0) -> Iterator[StoredRound]:
        """All rounds from the one on that made version after + 1, verified. Raises `JournalDamaged` after the sound."""
        with self._plainly():
            yield from self._reading.rounds(after)
            self._refuse_lost()

    def lost(self) -> JournalDamaged | None:
        """What was durable when `journal.head` was written, and is there no more. A journal that is read raises it
        itself, after the sound rounds; what becomes of a run that is to go on without them, its caller decides."""
        try:
            with self._plainly():
                self._check_head()
        except JournalDamaged as error:
            return error
        return None

    @property
    def is_head_damaged(self) -> bool:
        """Whether a part of `journal.head` cannot be read; what is left of it may vouch for one round less."""
        return self._head.is_damaged

    def close(self) -> None:
        self._database.close()
        if self._heads is not None:
            self._heads.close()
        if self._lock is not None:
            self._lock.close()

    # -- inside a transaction

    def _note(self, facts: dict[str, str]) -> None:
        sealed = facts | {SEAL: seal_of(self.facts() | facts)}
        self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", sealed.items())

    def _moved(self, table: str, now: Mapping[int, int] | Mapping[int, bytes], seals: TableDigests) -> TableDigests:
        """Members at other versions, or with other notes."""
        among = f"client, {MEMBERS[table]} FROM {table} WHERE client IN (SELECT value FROM json_each(?))"
        before = dict(self._reading.select(among, json.dumps(list(now))))
        self._database.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", now.items())
        return seals.moved(table, before, now.items())

    def _grown(self, lines: list[str], rows: list[bytes], seals: TableDigests) -> TableDigests:
        self._database.executemany("INSERT INTO metrics (line) VALUES (?)", [(line,) for line in lines])
        self._database.executemany("INSERT INTO rows (packed) VALUES (?)", [(packed,) for packed in rows])
        return seals.grown(metrics=lines, rows=rows)

    def _check_in(self, segments: int, state: bytes, chain: bytes, seals: TableDigests) -> None:
        checkpoint = (segments, state, checkpoint_digest(chain, segments, state, seals))
        self._database.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", checkpoint)

    # -- reading

    def _refuse_lost(self) -> None:
        if self._lock is None:
            self._check_head()

    def _check_head(self) -> None:
        """Raises `JournalDamaged` if the journal does not hold the round that its head vouches for."""
        last, path = self._head.round, self.folder / FILE
        if last is None:
            if self._head.is_damaged:
                raise JournalDamaged(path, 0, f"nothing in {HEAD} can be read, so rounds may be lost")
            return
        found = self._reading.link_of(last)
        if found is None:
            raise JournalDamaged(path, 0, f"rounds {self._reading.length()} to {last} were durable and are lost")
        if found != self._head.link:
            raise JournalDamaged(path, 0, f"round {last} is not the one that {HEAD} vouches for")

    def _end(self) -> JournalEnd:
        """What `Reading.end` says, read once."""
        if self._ends is None:
            with self._plainly():
                self._ends = self._reading.end()
        return self._ends

    @contextmanager
    def _plainly(self, *, reads: bool = True) -> Iterator[None]:
        """Every error is one sentence, and that of a damaged journal says how many of its rounds are sound.

        reads: what has another type than was written is damage too; elsewhere it would be a mistake of ours.
        """
        odd, path = (AttributeError, TypeError), self.folder / FILE
        try:
            with said_plainly(self.folder):
                yield
        except (JournalDamaged, *odd) as error:
            if not isinstance(error, JournalDamaged):
                if not reads:
                    raise
                error = JournalDamaged(path, 0, f"it holds what cannot be decoded ({error})")
            good = 0
            with suppress(JournalDamaged, RunFolderError, *odd), said_plainly(self.folder):
                for _ in self._reading.rounds():
                    good += 1
            raise JournalDamaged(path, good, error.what) from None
