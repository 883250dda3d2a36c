"""What a journal's file holds, checked against its chain. Raises `JournalDamaged`, and SQLite's own errors."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged
from seedbus.agents.journal.digests import TableDigests, digest
from seedbus.agents.journal.file import LONGEST
from seedbus.agents.journal.records import JournalEnd, StoredRound

KEPT_EVERY = 50
"""Of dense commits, each a whole model, the newest is kept, and every so many."""
MEMBERS = {"known": "version", "held": "version", "halves": "note"}
"""The tables of members, and what each says of one."""


def link(previous: bytes, round: int, version: int, body: bytes) -> bytes:
    """The link of the chain that a round adds."""
    return digest(previous + b"%d %d " % (round, version) + body)


def checkpoint_digest(chain: bytes, segments: int, state: bytes, seals: TableDigests) -> bytes:
    """What a checkpoint carries: the digest of itself, of the last round and of all other tables."""
    return digest(chain + seals.digest() + b"%d " % segments + state)


class Reading:
    """The tables of a journal, read. path: the file's, for what is said of it."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path, self._database = path, database

    def select(self, what: str, *values: Any) -> sqlite3.Cursor:
        return self._database.execute(f"SELECT {what}", values)

    def facts(self) -> dict[str, str]:
        """As they stand there, their seal among them."""
        most = self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        try:
            return dict(self.select("name, value FROM facts LIMIT 1000"))
        finally:
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)

    def members(self, table: str) -> Iterator[tuple[int, Any]]:
        """(client, what one of the tables of members says of it)."""
        return self._ascending(table, "client", MEMBERS[table])

    def metrics(self) -> Iterator[str]:
        return (line for _, line in self._ascending("metrics", "number", "line"))

    def rows(self) -> Iterator[bytes]:
        """New rows of the ledger, packed, a round's at a time."""
        return (packed for _, packed in self._ascending("rows", "number", "packed"))

    def snapshot(self) -> bytes:
        found: tuple[bytes] | None = self.select("packed FROM snapshot").fetchone()
        return found[0] if found else b""

    def end(self) -> JournalEnd:
        """The last link of the chain, and the seals of the other tables."""
        row = self.select("chain FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
        seals = TableDigests().holding(self.snapshot())
        for table in MEMBERS:
            seals = seals.moved(table, {}, self.members(table))
        chain = row[0] if row else self._root()
        return JournalEnd(chain, seals.grown(metrics=self.metrics(), rows=self.rows()))

    def length(self) -> int:
        """How many rounds there are, if none is missing between."""
        (last,) = self.select("max(round) FROM rounds").fetchone()
        return 0 if last is None else int(last) + 1

    def link_of(self, round: int) -> bytes | None:
        """What a round adds to the chain; None: it is not there."""
        found = self.select("chain FROM rounds WHERE round = ?", round).fetchone()
        return bytes(found[0]) if found else None

    def rounds(self, after: int = 0) -> Iterator[StoredRound]:
        """Those from the one on that made version after + 1, each verified before it is given."""
        good = self._first_round(after)
        chain = self.link_of(good - 1) or self._root()
        stored = "round, version, body, chain FROM rounds WHERE round >= ? ORDER BY round"
        for round, version, body, its_link in self.select(stored, good):
            chain = link(chain, round, version, body)
            if round != good or chain != its_link:
                raise JournalDamaged(self._path, good, f"round {good} does not verify")
            cohort, reported, record, commit = msgpack.unpackb(body)
            if isinstance(commit, bytes):
                commit = self._model(version, commit, good)
            yield StoredRound(round, version, cohort, reported, record, commit)
            good += 1

    def _model(self, version: int, its_digest: bytes, good: int) -> list[Any]:
        """A dense commit, or [] if it is not kept."""
        found = self.select("packed FROM models WHERE version = ?", version).fetchone()
        is_newest = self.select("1 FROM rounds WHERE version > ? LIMIT 1", version).fetchone() is None
        if found is None and not is_newest and version % KEPT_EVERY:
            return []
        if found is None or digest(found[0]) != its_digest:
            raise JournalDamaged(self._path, good, f"the model of version {version} does not verify")
        commit: list[Any] = msgpack.unpackb(found[0])
        return commit

    def _first_round(self, after: int) -> int:
        """The round that made version after + 1, or where it will be. A round makes one commit at most."""
        if not after:
            return 0
        first = "round FROM rounds WHERE round >= ? AND version > ? ORDER BY round LIMIT 1"
        found = self.select(first, after, after).fetchone()
        return int(found[0]) if found else sys.maxsize

    def _ascending(self, table: str, key: str, value: str) -> Iterator[tuple[int, Any]]:
        """A table in the order of its keys. Pages that are in use twice would give rows without end."""
        before = None
        for found in self.select(f"{key}, {value} FROM {table} ORDER BY {key}"):
            if before is not None and found[0] <= before:
                raise JournalDamaged(self._path, 0, f"{table} has the {key} {found[0]} twice")
            before = found[0]
            yield found

    def _root(self) -> bytes:
        """What the chain of rounds begins with: the digest of the scenario."""
        return digest(self.facts().get("scenario", "").encode())
