"""The journal: every commit, durable before it is published, and all that a resumed run needs.

One SQLite file (WAL, synchronous=FULL) in the run's folder. A round is one transaction: its commit, the members whose
version changed, the rows of the message ledger, the metrics, and the checkpoint of coordinator and bus. So a process
that is killed at any instant leaves the state after some whole round, and a resumed run goes on from exactly there.

The digest of the scenario is the first link of a chain. Each round adds a link, the digest of the one before it and of
itself; the checkpoint carries the digest of the last link and of all other tables. A flipped byte is detected, with the
round that holds it, and so is a file of which only some parts are newer than the rest. Rounds that are cut off at the
end leave a sound chain; `head.py` detects their loss.

x₀ and the journal together are the model: `replay` needs `rounds` and nothing else. `base.py` is what a journal has in
the place of first commits that were pruned.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.base import Base
from seedbus.agents.journal.digests import ROOT, SEAL, MemberValue, TableDigests, digest, seal_of
from seedbus.agents.journal.file import (
    FILE,
    Place,
    begin,
    check_names,
    check_tables,
    connect,
    locked,
    plain_errors,
    prepare,
    refuse_taken,
)
from seedbus.agents.journal.head import HEAD, Head, HeadWriter, read_head
from seedbus.agents.journal.metrics import taken_apart
from seedbus.agents.journal.reader import MEMBERS, JournalReader, checkpoint_digest, kept_every, link, unpacked_state
from seedbus.agents.journal.records import (
    Checkpoint,
    Entry,
    Glance,
    JournalEnd,
    LastRound,
    MemberPosition,
    StoredRound,
)
from seedbus.bus.records import Count, Text, record
from seedbus.pieces import Frame, Pieces, buffers, packed

END = "end"
"""The name of the fact that says how to take a run's end back: files of the ledger, lines of metrics, other facts."""


class Journal:
    """The journal of one run. One process at a time may write it.

    Attributes:
        folder: the run's folder.
    """

    def __init__(self, folder: Path, database: sqlite3.Connection, lock: Any, head: Head) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock
        self._reader = JournalReader(folder / FILE, database)
        self._known_end: JournalEnd | None = None
        self._head = head
        self._head_writer: HeadWriter | None = None
        self._place: Place | None = None

    @classmethod
    def create(cls, folder: Path, facts: dict[str, str]) -> Journal:
        """Create a journal in a folder that has none, and open it.

        Args:
            folder: the run's folder; it is created if it does not exist.
            facts: what the run is, its resolved scenario among them.

        Raises:
            RunFolderError: the folder cannot be written, is in use, or is not empty.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        refuse_taken(folder)
        with closing(locked(folder)), plain_errors(folder):
            refuse_taken(folder)  # again: another process may have had the lock until now
            begin(folder, facts | {SEAL: seal_of(facts)})
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, *, for_writing: bool = True) -> Journal:
        """Open the journal of a run that exists. Raises `RunFolderError`, `JournalDamaged`."""
        try:
            is_there = check_names(folder, is_written=for_writing)
        except OSError as error:
            raise RunFolderError(folder, f"there is no run here that can be read ({error.strerror})") from None
        if not is_there:
            raise RunFolderError(folder, f"there is no run here (no {FILE})")
        if not (folder / FILE).stat().st_size:
            raise JournalDamaged(folder / FILE, 0, "it is empty")
        with plain_errors(folder), ExitStack() as undo:
            lock = undo.enter_context(locked(folder)) if for_writing else None
            # without a write-ahead log no process is writing, and the medium may be read-only
            quiet = "" if (folder / f"{FILE}-wal").exists() else "&immutable=1"
            # before the journal: if another process is writing, a head read later could be ahead of what is read here
            head = read_head(folder)
            database = undo.enter_context(closing(connect(folder / FILE, "rw" if for_writing else f"ro{quiet}")))
            check_tables(folder / FILE, database)
            journal = cls(folder, database, lock, head)
            if for_writing:
                with journal._plain_errors():
                    prepare(folder / FILE, database)
                journal._head_writer, journal._place = HeadWriter(folder), Place(folder / FILE)
            undo.pop_all()
        return journal

    @property
    def run_id(self) -> bytes:
        """Eight random bytes that tell this run from every other, even of the same scenario."""
        identifier = self.facts().get("run")
        if identifier is None:
            identifier = os.urandom(8).hex()
            self.note({"run": identifier})
        return self.proof("run", identifier)

    def proof(self, name: str, text: str | None = None) -> bytes:
        """Return the bytes of a fact that is written in hexadecimal; text: the fact, if it was read before.

        Raises:
            JournalDamaged: it is not hexadecimal.
        """
        text = self.facts().get(name, "") if text is None else text
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise JournalDamaged(self.folder / FILE, 0, f"its {name} {text!r} is not hexadecimal") from None

    def facts(self) -> dict[str, str]:
        """Return all facts, verified. Raises `JournalDamaged`."""
        with self._plain_errors():
            facts = self._reader.facts()
            if facts.pop(SEAL, None) != seal_of(facts):
                raise JournalDamaged(self.folder / FILE, 0, "its facts do not verify")
            return facts

    def note(self, facts: dict[str, str]) -> None:
        """Add or replace facts."""
        with self._writing():
            self._note(facts)

    def append(self, entry: Entry) -> None:
        """Make a round durable: when this returns, it is on the disk."""
        chain, tables = self._end()
        commit: list[Any] | bytes | None = entry.commit
        model = list(packed(commit)) if entry.is_dense and commit is not None else None
        if model is not None:  # the chain holds its digest alone, so that the model may be deleted later
            commit = digest(*model)
        body: bytes = msgpack.packb([list(entry.cohort), list(entry.reported), entry.record, commit])
        chain = link(chain, entry.round, entry.version, body)
        lines, state = [json.dumps(line) for line in entry.metrics], Pieces(packed(entry.state))
        rows = [entry.rows] if entry.rows and not entry.is_rotated else []
        with self._writing() as database:
            database.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (entry.round, entry.version, body, chain))
            if model is not None:
                row = self._reader.long_values.put("model", entry.version, model)
                database.execute("INSERT INTO models VALUES (?, ?)", (entry.version, row))
                which, old = "version < ? AND version % ?", (entry.version, kept_every(entry.version))
                database.execute(f"DELETE FROM models WHERE {which}", old)
                self._reader.long_values.delete("model", which, *old)
            tables = self._moved("known", [(client, position.pack()) for client, position in entry.positions], tables)
            tables = self._moved("held", entry.actual_versions, tables)
            if entry.is_rotated:
                database.execute("DELETE FROM rows")
                tables = tables.rotated()
            tables = self._moved("halves", entry.partial_downloads, tables)
            if entry.held is not None:
                row = self._reader.long_values.put("snapshot", 0, [entry.held])
                database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (row,))
                tables = tables.holding(entry.held)
            end = JournalEnd(chain, self._grown(lines, rows, tables))
            self._write_checkpoint(entry.segments, state, end)
        self._known_end = end
        if self._head_writer is not None:
            with self._plain_errors(reads=False):
                self._head_writer.put(entry.round, chain)

    def finish(
        self, metrics: Sequence[dict[str, Any]], segments: int, facts: dict[str, str], *, kept: int | None = None
    ) -> None:
        """Write the end of a run.

        Args:
            metrics: its last lines of metrics.
            segments: how many files the ledger has; all rows are in them.
            facts: what is to be noted of the end.
            kept: how many of these files are of whole rounds, so that `reopen` can take the end back; None: it cannot.
        """
        chain, tables = self._end()
        lines = [json.dumps(line) for line in metrics]
        with self._writing() as database:
            if kept is not None:
                (newest,) = database.execute("SELECT max(number) FROM metrics").fetchone()
                facts = facts | {END: json.dumps([kept, newest or 0, sorted(facts)])}
            self._note(facts)
            database.execute("DELETE FROM rows")
            end = JournalEnd(chain, self._grown(lines, [], tables.rotated()))
            before = self._reader.checkpoint()
            if before is not None:
                self._write_checkpoint(segments, before[1], end)
        self._known_end = end

    def before_end(self) -> tuple[int, int, list[str]] | None:
        """Return what `reopen` takes the run's end back to; None: nothing is noted of it.

        Returns:
            The number of the ledger's files, that of the newest line of metrics, and the names of the end's facts.

        Raises:
            JournalDamaged: the note has another form than a run writes.
        """
        noted = self.facts().get(END)
        if noted is None:
            return None
        with self._plain_errors():
            end = json.loads(noted)
            try:
                return record(tuple[Count, Count, list[Text]], end)
            except ValueError as error:
                what = f"its note of the run's end has another form than a run writes ({error})"
                raise JournalDamaged(self.folder / FILE, 0, what) from None

    def reopen(self, facts: dict[str, str]) -> None:
        """Take back the end of the run, if it has one, so that the run goes on from its last whole round.

        The digests of all tables are made anew, so `checkpoint` is to have verified them.

        Args:
            facts: what is different from now on, such as the scenario. The chain of rounds remains what it was.

        Raises:
            JournalDamaged: see `before_end`.
        """
        segments, newest, names = self.before_end() or (None, None, [])
        now = self.facts()
        now.pop(END, None)
        root = now.get(ROOT, self._reader.root().hex())
        remaining = {name: value for name, value in now.items() if name not in names} | {ROOT: root} | facts
        with self._writing() as database:
            database.execute("DELETE FROM facts")
            sealed = remaining | {SEAL: seal_of(remaining)}
            database.executemany("INSERT INTO facts VALUES (?, ?)", sealed.items())
            if newest is not None:
                database.execute("DELETE FROM metrics WHERE number > ?", (newest,))
            checkpoint = self._reader.checkpoint()
            if checkpoint is not None:
                before, state, _ = checkpoint
                self._write_checkpoint(before if segments is None else segments, state, self._reader.end())
        self._known_end = None

    def rotated(self, segments: int) -> None:
        """Note that all rows of the checkpoint are in the ledger's files now, of which there are `segments`."""
        self.finish([], segments, {})

    def base(self) -> Base | None:
        """Return what the journal has in the place of its first commits, verified; None: it has all of them.

        Raises:
            JournalDamaged: it does not verify.
        """
        with self._plain_errors():
            return self._reader.bases.get()

    def link_before(self, round: int) -> bytes:
        """Return the link of the chain that the round before this one added, unverified. Raises `JournalDamaged`."""
        with self._plain_errors():
            base = self._reader.bases.get()
            if base is not None and round == base.round:
                return base.link
            found = self._reader.link_of(round - 1) if round else self._reader.root()
            if found is None:
                raise JournalDamaged(self.folder / FILE, 0, f"round {round - 1} is missing")
            return found

    def prune(self, base: Base) -> None:
        """Delete the commits before a base, which takes their place, and give the space back to the file system.

        If the process is killed, either all of them are deleted or none. Space that was not given back is used for
        later rounds.
        """
        with self._writing():
            self._reader.bases.put(base)
        with self._plain_errors(reads=False):
            self._database.execute("VACUUM")

    def checkpoint(self) -> Checkpoint | None:
        """Return the state after the last whole round, verified; None before the first. Raises `JournalDamaged`."""
        with self._plain_errors():
            verified = deque(self._reader.rounds(), maxlen=1)
            found = self._reader.checkpoint()
            if found is None and not verified:
                return None
            segments, state, claimed = found or (0, b"", b"")
            if not verified or claimed != checkpoint_digest(self._reader.end(), segments, state):
                raise JournalDamaged(self.folder / FILE, 0, "the checkpoint does not verify")
            stored = verified.pop()
            last = LastRound(
                stored.round,
                stored.version,
                stored.cohort,
                stored.reported,
                has_commit=stored.commit is not None,
                opened_ns=stored.record.opened_ns,
            )
            rows = b"".join(self._reader.rows())
            known, held, halves = (self._reader.members(table) for table in MEMBERS)
            positions = {client: MemberPosition.unpack(number) for client, number in known}
            actual_versions = dict(held)
            partial_downloads = {client: note for client, note in halves if note}
            unpacked = unpacked_state(state)
        return Checkpoint(
            state=unpacked,
            segments=segments,
            rows=rows,
            metrics=self.metrics(),
            positions=positions,
            actual_versions=actual_versions,
            last=last,
            partial_downloads=partial_downloads,
            held=self._reader.held(),
            base=self.base(),
        )

    def segments(self) -> int:
        """Return how many files of the ledger the newest checkpoint knows of, unverified."""
        with self._plain_errors():
            (segments,) = self._database.execute("SELECT segments FROM checkpoint").fetchone() or (0,)
        return int(segments)

    def glance(self) -> Glance:
        """Return what the journal holds now, unverified but for its head. Raises `JournalDamaged`."""
        with self._plain_errors():
            self._refuse_lost()
            return self._reader.glance()

    def metrics(self) -> list[dict[str, Any]]:
        """Return all lines of metrics, oldest first. Raises `JournalDamaged`."""
        return [line for line, _ in self.evaluations()]

    def evaluations(self) -> list[tuple[dict[str, Any], list[int] | None]]:
        """Return each line of metrics, oldest first, and the clients that have measured it; None: not some of them.

        Raises:
            JournalDamaged: one of them has another form.
        """
        with self._plain_errors():
            self._refuse_lost()
            found = []
            for number, line in enumerate(self._reader.metrics()):
                try:
                    found.append(taken_apart(json.loads(line)))
                except ValueError as error:
                    what = f"its evaluation {number} has another form than a run writes ({error})"
                    raise JournalDamaged(self.folder / FILE, 0, what) from None
            return found

    def rounds(self, after: int = 0) -> Iterator[StoredRound]:
        """Yield the rounds from the one on that made version `after` + 1, verified.

        Raises:
            JournalDamaged: after the last sound round.
        """
        with self._plain_errors():
            yield from self._reader.rounds(after)
            self._refuse_lost()

    def lost(self) -> JournalDamaged | None:
        """Return the error if rounds are lost that were durable when `journal.head` was written, else None.

        A journal that was opened for reading raises this error itself, after the sound rounds. Of one that was opened
        for writing the caller decides whether the run may go on without those rounds.
        """
        try:
            with self._plain_errors():
                self._check_head()
        except JournalDamaged as error:
            return error
        return None

    @property
    def is_head_damaged(self) -> bool:
        """Whether a slot of `journal.head` cannot be read. The other slot may name the round before the last."""
        return self._head.is_damaged

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Return a context that only interprets what was read: whatever fails there is damage.

        Raises:
            JournalDamaged: what was read has another form than this version writes.
        """
        with self._plain_errors():
            try:
                yield
            except (LookupError, ArithmeticError) as error:
                raise ValueError(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        """Close the files, and release the lock."""
        self._database.close()
        if self._head_writer is not None:
            self._head_writer.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Return a transaction; when the context ends, what it wrote is on the disk, in the file of the folder."""
        with self._plain_errors(reads=False):
            with self._database as database:
                yield database
            if self._place is not None:
                self._place.check()

    # -- inside a transaction

    def _note(self, facts: dict[str, str]) -> None:
        sealed = facts | {SEAL: seal_of(self.facts() | facts)}
        self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", sealed.items())

    def _moved(self, table: str, moved: Iterable[tuple[int, MemberValue]], tables: TableDigests) -> TableDigests:
        """Write new values of members, one statement for each value. Returns the digests after that."""
        now: dict[MemberValue, list[int]] = {}
        for client, value in moved:
            now.setdefault(value, []).append(client)
        column, among = MEMBERS[table], f"FROM json_each(?) JOIN {table} ON client = value"
        holders = f"{column}, json_group_array(client) {among} GROUP BY {column}"
        packed = {value: json.dumps(clients) for value, clients in now.items()}
        clients_json = f"[{','.join(text[1:-1] for text in packed.values())}]"
        before = [(value, json.loads(clients)) for value, clients in self._reader.select(holders, clients_json)]
        insert = f"INSERT OR REPLACE INTO {table} SELECT value, ? FROM json_each(?)"
        self._database.executemany(insert, packed.items())
        return tables.moved(table, before, now.items())

    def _grown(self, lines: list[str], rows: list[bytes], tables: TableDigests) -> TableDigests:
        """Add lines of metrics and rows of the ledger. Returns the digests after that."""
        self._database.executemany("INSERT INTO metrics (line) VALUES (?)", [(line,) for line in lines])
        self._database.executemany("INSERT INTO rows (packed) VALUES (?)", [(packed,) for packed in rows])
        return tables.grown(metrics=lines, rows=rows)

    def _write_checkpoint(self, segments: int, state: Frame, end: JournalEnd) -> None:
        row = self._reader.long_values.put("state", 0, list(buffers(state)))
        checkpoint = (segments, row, checkpoint_digest(end, segments, state))
        self._database.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", checkpoint)

    # -- reading

    def _refuse_lost(self) -> None:
        if self._lock is None:
            self._check_head()

    def _check_head(self) -> None:
        """Raise `JournalDamaged` if the journal does not hold the round that its head names."""
        last, path = self._head.round, self.folder / FILE
        if last is None:
            if self._head.is_damaged:
                raise JournalDamaged(path, 0, f"nothing in {HEAD} can be read, so rounds may be lost")
            return
        link_of_last = self._reader.link_of(last)
        if link_of_last is None:
            raise JournalDamaged(path, 0, f"rounds {self._reader.length()} to {last} were durable and are lost")
        if link_of_last != self._head.link:
            raise JournalDamaged(path, 0, f"round {last} is not the one that {HEAD} vouches for")

    def _end(self) -> JournalEnd:
        """Return the end of the journal, which is read once and then kept up to date."""
        if self._known_end is None:
            with self._plain_errors():
                self._known_end = self._reader.end()
        return self._known_end

    @contextmanager
    def _plain_errors(self, *, reads: bool = True) -> Iterator[None]:
        """Turn every error into one sentence; that of a damaged journal states how many of its rounds are sound.

        Args:
            reads: whether an `AttributeError` or a `TypeError` is damage, because a stored value has another type than
                was written. While writing, such an error is a bug.
        """
        type_errors, path = (AttributeError, TypeError), self.folder / FILE
        try:
            with plain_errors(self.folder):
                yield
        except (JournalDamaged, *type_errors) as error:
            if not isinstance(error, JournalDamaged):
                if not reads:
                    raise
                error = JournalDamaged(path, 0, f"it holds what cannot be decoded ({error})")
            good = 0
            with suppress(JournalDamaged, RunFolderError, *type_errors), plain_errors(self.folder):
                for _ in self._reader.rounds():
                    good += 1
            raise JournalDamaged(path, good, error.what) from None
