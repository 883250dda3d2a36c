"""The base of a journal whose first rounds were pruned: the model that their commits made, and what else they said.

Of a pruned round the commit is deleted, and all else is kept, packed with that of other rounds into blocks. The base
has the replica that the deleted commits made, and the link of the chain that the last of these rounds added. So the
chain goes on where it was: the links of later rounds prove which rounds were pruned, to whoever has kept them.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import msgpack
from msgspec import Meta

from seedbus.agents.journal.digests import digest
from seedbus.agents.journal.long_values import LongValues
from seedbus.agents.messages import PackedReplica
from seedbus.bus.records import Count, record
from seedbus.pieces import buffers

TABLES = """CREATE TABLE IF NOT EXISTS base (
    one INTEGER PRIMARY KEY CHECK (one = 1), facts BLOB NOT NULL, fields BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS pruned (round INTEGER PRIMARY KEY, packed BLOB NOT NULL)"""
BLOCK = 2**20
"""Bytes, before they are packed, at which a block of pruned rounds is closed."""
_LONGEST = 2**27  # bytes of the longest block: one round may have millions of clients
_Digest = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Base(NamedTuple):
    """What a journal has in the place of its first commits.

    Attributes:
        round: the first round that is kept whole.
        link: the link of the chain that the round before it added, 16 bytes.
        blocks: (first round, digest) of each block of pruned rounds.
        replica: what the commits before it made.
    """

    round: int
    link: bytes
    blocks: list[tuple[int, bytes]]
    replica: PackedReplica


class _Facts(NamedTuple):
    """What the row of a base says beside the fields."""

    round: Count
    link: _Digest
    blocks: list[tuple[Count, _Digest]]
    version: Count
    digest: _Digest


class Bases:
    """The base of one journal, in tables that are made when a journal is first pruned."""

    def __init__(self, database: sqlite3.Connection, long_values: LongValues) -> None:
        self._database = database
        self._long_values = long_values

    def get(self) -> Base | None:
        """Return the base; None: the journal has all of its commits. Raises `ValueError`: it does not verify."""
        if self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'base'").fetchone() is None:
            return None
        facts, fields, seal = self._database.execute("SELECT facts, fields, seal FROM base").fetchone() or (b"",) * 3
        fields = self._long_values.get("base", 0, fields)
        if seal != digest(facts, fields):
            raise ValueError("its base does not verify")
        said = record(_Facts, msgpack.unpackb(facts))
        return Base(said.round, said.link, said.blocks, PackedReplica(said.version, said.digest, fields))

    def rounds(self, base: Base) -> Iterator[tuple[int, int, Any]]:
        """Yield (round, version, body) of each pruned round; the body has [] for a commit that is deleted.

        Raises:
            ValueError: a block is missing, does not verify, or does not lead to the base.
        """
        expected = version = 0
        for first, its_digest in base.blocks:
            block = self._database.execute("SELECT packed FROM pruned WHERE round = ?", (first,)).fetchone()
            (packed,) = block or (b"",)
            if first != expected or digest(packed) != its_digest:
                raise ValueError(f"the pruned rounds from {expected} on do not verify")
            for version, *body in msgpack.unpackb(_inflated(packed)):
                yield expected, version, body
                expected += 1
        if expected != base.round:
            raise ValueError(f"the pruned rounds from {expected} to {base.round - 1} are missing")
        if version != base.replica.version:
            raise ValueError(f"the pruned rounds lead to version {version}, and its base is {base.replica.version}")

    def put(self, base: Base) -> None:
        """Replace the rounds before a base by it, inside a transaction. The blocks before are kept, and added to."""
        self._database.execute("BEGIN")  # Python's module begins none before it creates a table
        for statement in TABLES.split(";"):
            self._database.execute(statement)
        blocks = list(base.blocks)
        pruned = "FROM rounds WHERE round < ?"
        stored = self._database.execute(f"SELECT version, body {pruned} ORDER BY round", (base.round,))
        (first,) = self._database.execute("SELECT min(round) FROM rounds").fetchone()
        for count, packed in _blocks(_bare(version, msgpack.unpackb(body)) for version, body in stored):
            self._database.execute("INSERT INTO pruned VALUES (?, ?)", (first, packed))
            blocks.append((first, digest(packed)))
            first += count
        self._database.execute(f"DELETE {pruned}", (base.round,))
        version, its_digest, fields = base.replica
        facts: bytes = msgpack.packb([base.round, base.link, blocks, version, its_digest])
        row = self._long_values.put("base", 0, list(buffers(fields)))
        self._database.execute("INSERT OR REPLACE INTO base VALUES (1, ?, ?, ?)", (facts, row, digest(facts, fields)))


def _bare(version: int, body: list[Any]) -> bytes:
    """Return a round without its commit, packed; [] stands for one."""
    *others, commit = body
    packed: bytes = msgpack.packb([version, *others, None if commit is None else []])
    return packed


def _blocks(rounds: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of rounds in each block, and the block."""
    block: list[bytes] = []
    size = 0
    for each in rounds:
        block.append(each)
        size += len(each)
        if size >= BLOCK:
            yield len(block), _deflated(block)
            block, size = [], 0
    if block:
        yield len(block), _deflated(block)


def _deflated(rounds: list[bytes]) -> bytes:
    head = msgpack.Packer().pack_array_header(len(rounds))
    return zlib.compress(b"".join([head, *rounds]), 9)


def _inflated(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, _LONGEST)
    except zlib.error as error:
        raise ValueError(f"a block of pruned rounds cannot be unpacked ({error})") from None
    if not unpacking.eof:
        raise ValueError("a block of pruned rounds is cut off, or too long")
    return content
