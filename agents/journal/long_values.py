"""Values of a journal that are too long for one row: models, replicas, and the checkpoint's state.

SQLite takes 10⁹ bytes in a row. A value of more than `pieces.WHOLE` bytes is in rows of a table of its own, and its own
row has a mark in its place. The table is made when it is first needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from seedbus import pieces
from seedbus.pieces import Bytes, Frame, Pieces

TABLE = """CREATE TABLE IF NOT EXISTS parts (
    name TEXT NOT NULL, version INTEGER NOT NULL, number INTEGER NOT NULL, packed BLOB NOT NULL,
    PRIMARY KEY (name, version, number)
)"""
MARK = b"\xc1"
"""What stands in the value's own row; no msgpack begins so."""
ROW = 2**26  # bytes of a row


class LongValues:
    """The long values of one journal, by name and version."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._has_none = False  # the table is known not to be there: then no round looks for it

    def put(self, name: str, version: int, value: Sequence[Bytes]) -> bytes:
        """Write a value, given in pieces, if it is long; return what its own row is to have."""
        self.delete(name, "version = ?", version)
        content = Pieces(value)
        if len(content) <= pieces.WHOLE:
            return bytes(content)
        self._has_none = False
        self._database.execute(TABLE)  # each time: the transaction that made it may have been taken back
        for number, start in enumerate(range(0, len(content), ROW)):
            self._insert(name, version, number, content.view(start, start + ROW))
        return MARK

    def _insert(self, *row: object) -> None:
        self._database.execute("INSERT INTO parts VALUES (?, ?, ?, ?)", row)

    def get(self, name: str, version: int, row: bytes) -> Frame:
        """Return a value; row: what its own row has.

        Raises:
            ValueError: rows of it are missing, or there twice.
        """
        if row != MARK:
            return row
        if not self._there():
            raise ValueError(f"the rows of {name} {version} are missing")
        where = "FROM parts WHERE name = ? AND version = ?"
        (size,) = self._database.execute(f"SELECT sum(length(packed)) {where}", (name, version)).fetchone()
        content = np.empty(size or 0, np.uint8)
        start, number = 0, -1
        for number, (its_number, packed) in enumerate(
            self._database.execute(f"SELECT number, packed {where} ORDER BY number", (name, version))
        ):
            if its_number != number or start + len(packed) > len(content):
                raise ValueError(f"row {number} of {name} {version} is missing, or there twice")
            content[start : start + len(packed)] = np.frombuffer(packed, np.uint8)
            start += len(packed)
        if number < 0 or start != len(content):
            raise ValueError(f"the rows of {name} {version} are missing")
        return Pieces([content.data.toreadonly()])

    def delete(self, name: str, which: str, *values: int) -> None:
        """Delete values of a name; which: a condition on their version."""
        self._has_none = self._has_none or not self._there()
        if not self._has_none:
            self._database.execute(f"DELETE FROM parts WHERE name = ? AND {which}", (name, *values))

    def _there(self) -> bool:
        return self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parts'").fetchone() is not None
