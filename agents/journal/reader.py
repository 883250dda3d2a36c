"""Reads a journal's file and verifies it against its chain. Raises `JournalDamaged` and SQLite's own errors."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import JournalDamaged
from seedbus.agents.journal.base import Bases
from seedbus.agents.journal.digests import ROOT, TableDigests, digest
from seedbus.agents.journal.file import LONGEST
from seedbus.agents.journal.long_values import LongValues
from seedbus.agents.journal.records import Glance, JournalEnd, MemberPosition, StoredRound
from seedbus.pieces import Frame, Pieces, buffers, unpacked

KEPT_EVERY, MOST_KEPT = 50, 64
"""See `kept_every`."""
MEMBERS = {"known": "version", "held": "version", "halves": "note"}
"""The tables of members, each with the name of its column of values."""


def kept_every(newest: int) -> int:
    """Return k: dense commits, each a whole model, are kept of every version that k divides, and of the newest.

    It is `KEPT_EVERY`, and doubled whenever it would keep more than `MOST_KEPT`, so that a run may be of any length.
    What a larger k divides a smaller one divides too: none is asked for that was deleted before.
    """
    every = KEPT_EVERY
    while newest // every > MOST_KEPT:
        every *= 2
    return every


def link(previous: bytes, round: int, version: int, body: bytes) -> bytes:
    """Return the link that a round adds to the chain, 16 bytes."""
    return digest(previous + b"%d %d " % (round, version) + body)


def unpacked_state(state: Frame) -> Any:
    """Return the state of a checkpoint."""
    (packed,) = buffers(state) or (b"",)
    return msgpack.unpackb(packed, strict_map_key=False)


def checkpoint_digest(end: JournalEnd, segments: int, state: Frame) -> bytes:
    """Return the digest of a checkpoint, of the chain of rounds and of all other tables, 16 bytes."""
    return digest(end.chain, end.tables.digest(), b"%d " % segments, state)


class JournalReader:
    """Reads the tables of a journal. Errors name the file by `path`."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        self.long_values = LongValues(database)
        self.bases = Bases(database, self.long_values)

    def select(self, what: str, *values: Any) -> sqlite3.Cursor:
        """Execute a SELECT with these values in the place of its question marks."""
        return self._database.execute(f"SELECT {what}", values)

    def facts(self) -> dict[str, str]:
        """Return all facts, the seal among them, unverified."""
        most = self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        try:
            return dict(self.select("name, value FROM facts LIMIT 1000"))
        finally:
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)

    def members(self, table: str) -> Iterator[tuple[int, Any]]:
        """Yield (client, value) of a table of members, by ascending client."""
        return self._ascending(table, "client", MEMBERS[table])

    def metrics(self) -> Iterator[str]:
        """Return the lines of metrics, each JSON, oldest first."""
        return (line for _, line in self._ascending("metrics", "number", "line"))

    def rows(self) -> Iterator[bytes]:
        """Return the rows of the ledger that are in none of its files yet, packed, a round at a time."""
        return (packed for _, packed in self._ascending("rows", "number", "packed"))

    def held(self) -> bytes:
        """Return what the server holds for clients that lag, packed; b"": nothing."""
        (packed,) = self.select("packed FROM snapshot").fetchone() or (b"",)
        return bytes(self.long_values.get("snapshot", 0, packed))

    def end(self) -> JournalEnd:
        """Return the last link of the chain and the digests of the other tables, computed anew."""
        (chain,) = self.select("chain FROM rounds ORDER BY round DESC LIMIT 1").fetchone() or (self.root(),)
        tables = TableDigests().holding(self.held())
        for table in MEMBERS:
            tables = tables.moved(table, (), ((value, (client,)) for client, value in self.members(table)))
        return JournalEnd(chain, tables.grown(metrics=self.metrics(), rows=self.rows()))

    def glance(self) -> Glance:
        """Return what the tables hold at one moment, even while another process writes them."""
        self._database.execute("BEGIN")
        try:
            (version,) = self.select("version FROM rounds ORDER BY round DESC LIMIT 1").fetchone() or (0,)
            segments, state, _ = self.checkpoint() or (0, None, b"")
            return Glance(
                self.length(),
                version,
                {client: MemberPosition.unpack(number) for client, number in self.members("known")},
                segments,
                b"".join(self.rows()),
                None if state is None else unpacked_state(state),
            )
        finally:
            self._database.execute("ROLLBACK")

    def checkpoint(self) -> tuple[int, Frame, bytes] | None:
        """Return the checkpoint's number of segments, its packed state and its digest; None before the first."""
        row = self.select("segments, state, chain FROM checkpoint").fetchone()
        if row is None:
            return None
        segments, state, chain = row
        return segments, self.long_values.get("state", 0, state), chain

    def length(self) -> int:
        """Return the number of rounds, provided that none is missing between two others."""
        (last,) = self.select("max(round) FROM rounds").fetchone()
        return 0 if last is None else int(last) + 1

    def link_of(self, round: int) -> bytes | None:
        """Return the link that a round added to the chain; None if there is no such round."""
        row = self.select("chain FROM rounds WHERE round = ?", round).fetchone()
        if row is None:
            return None
        (chain,) = row
        return bytes(chain)

    def rounds(self, after: int = 0) -> Iterator[StoredRound]:
        """Yield the rounds from the one on that made version `after` + 1, each once it is verified."""
        good, chain, base = self._first_round(after), self.root(), self.bases.get()
        if base is not None:
            for round, version, body in self.bases.rounds(base) if after < base.replica.version else ():
                if version > after or not after:
                    yield self._stored(round, version, body)
            good, chain = max(good, base.round), base.link
        chain = self.link_of(good - 1) or chain
        columns = "round, version, body, chain FROM rounds WHERE round >= ? ORDER BY round"
        for round, version, body, its_link in self.select(columns, good):
            chain = link(chain, round, version, body)
            if round != good or chain != its_link:
                raise JournalDamaged(self._path, good, f"round {good} does not verify")
            stored = self._stored(round, version, msgpack.unpackb(body))
            if isinstance(stored.commit, bytes):
                stored = stored._replace(commit=self._model(version, stored.commit, good))
            yield stored
            good += 1

    def _stored(self, round: int, version: int, body: Any) -> StoredRound:
        try:
            return StoredRound.unpack(round, version, body)
        except ValueError as error:
            what = f"round {round} has another form than a run writes ({error})"
            raise JournalDamaged(self._path, round, what) from None

    def _model(self, version: int, its_digest: bytes, good: int) -> list[Any]:
        """Return a dense commit, or [] if it is not kept."""
        (packed,) = self.select("packed FROM models WHERE version = ?", version).fetchone() or (None,)
        (newest,) = self.select("version FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
        if packed is None and version != newest and version % kept_every(newest):
            return []
        model = None if packed is None else self.long_values.get("model", version, packed)
        if model is None or digest(model) != its_digest:
            raise JournalDamaged(self._path, good, f"the model of version {version} does not verify")
        commit: list[Any] = (
            unpacked(model, longest_array=64, longest_text=0) if isinstance(model, Pieces) else msgpack.unpackb(model)
        )
        return commit

    def _first_round(self, after: int) -> int:
        """Return the round that made version `after` + 1, or a number beyond all rounds.

        A round makes one commit at most, so that round's number is not below `after`.
        """
        if not after:
            return 0
        first = "round FROM rounds WHERE round >= ? AND version > ? ORDER BY round LIMIT 1"
        (number,) = self.select(first, after, after).fetchone() or (sys.maxsize,)
        return int(number)

    def _ascending(self, table: str, key: str, value: str) -> Iterator[tuple[int, Any]]:
        """Yield the rows of a table by ascending key. Pages that are used twice could give rows without end."""
        before = None
        for number, content in self.select(f"{key}, {value} FROM {table} ORDER BY {key}"):
            if before is not None and number <= before:
                raise JournalDamaged(self._path, 0, f"{table} has the {key} {number} twice")
            before = number
            yield number, content

    def root(self) -> bytes:
        """The first link of the chain: the digest of the scenario that the run began with."""
        facts = self.facts()
        root = facts.get(ROOT)
        return digest(facts.get("scenario", "").encode()) if root is None else bytes.fromhex(root)
