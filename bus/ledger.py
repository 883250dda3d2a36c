"""The ledger: one row for every message, in rotated Parquet segments.

A row is written when the message's fate is settled. Rows since the last segment are handed to whoever keeps the
run's checkpoints (`take_new`), so that a run that is killed resumes with exactly the rows of its last durable commit.
Two ledgers are equal when `ledger_hash` says so.
"""

from __future__ import annotations

import enum
import hashlib
import os
import struct
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.bus.envelope import EVALUATOR, Kind
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.files import check_folder, descriptor, make_folder, remove, sync_folder, whole

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_ROWS = 20_000  # 2 MB that wait in memory, and what it takes to compress them


class Fate(enum.IntEnum):
    """What became of a message."""

    DELIVERED = 0
    DROPPED = 1
    REFUSED = 2
    UNDER_WAY = 3

    __hash__ = int.__hash__


DELIVERED, DROPPED, REFUSED = Fate.DELIVERED, Fate.DROPPED, Fate.REFUSED


class Row(NamedTuple):
    """One message. Times in simulated nanoseconds; arrived_ns is −1 for what never arrived.

    payload_bytes includes the digest and catch-up bytes, which are also counted apart; framing is the transport's.
    """

    sent_ns: int
    arrived_ns: int
    round: int
    kind: int
    sender: int
    recipient: int
    header_bytes: int
    payload_bytes: int
    framing_bytes: int
    digest_bytes: int
    catchup_bytes: int
    scalars: int
    seeds: int
    fate: int


COLUMNS = Row._fields
SUMMED = ("header_bytes", "payload_bytes", "framing_bytes", "digest_bytes", "catchup_bytes", "scalars", "seeds")
INSTRUMENT = "instrument_bytes"  # of all messages of a kind, those to and from the evaluator
_pack = struct.Struct(f"={len(COLUMNS)}q").pack
_DIGEST = b"seedbus.rows.sha256"
Columns = dict[str, NDArray[np.int64]]


class Ledger:
    """Collects rows in memory, writes them to `folder` a segment at a time, and keeps running totals."""

    def __init__(self, folder: Path, segment_rows: int = SEGMENT_ROWS) -> None:
        self.folder, self.segment_rows = folder, segment_rows
        self.segments = 0
        self._totals: Counter[tuple[Kind, str]] = Counter()
        self._rows = array("q")
        self._taken = self._counted = 0

    @property
    def totals(self) -> Counter[tuple[Kind, str]]:
        """Sums by kind, of all rows so far: those that are new since the last time are added up together."""
        self._count_new()
        return self._totals

    def append(self, row: tuple[int, ...]) -> None:
        """Add a `Row`, or the same numbers without their names."""
        self._rows.frombytes(_pack(*row))

    def take_new(self) -> bytes:
        """The rows since the last call, packed for `restore`."""
        new = self._rows[self._taken :].tobytes()
        self._taken = len(self._rows)
        return new

    @property
    def is_full(self) -> bool:
        """True when a segment is due."""
        return len(self._rows) >= self.segment_rows * len(COLUMNS)

    def write_segment(self) -> None:
        """Move all rows into the next Parquet file: complete and on the disk, or not there at all."""
        if not self._rows:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns, end = _columns(self._rows), len(self._rows)
        table = pa.table({name: _arrow(_narrow(column)) for name, column in columns.items()})
        table = table.replace_schema_metadata({_DIGEST: _digest(columns)})
        make_folder(self.folder)
        with whole(_path(self.folder, self.segments)) as file:
            pq.write_table(table, file, compression="zstd")
        if not self.segments:
            sync_folder(self.folder.parent)
        self.segments += 1
        self._count_new()
        # in real time rows may have come meanwhile, and these stay
        self._rows, self._taken, self._counted = self._rows[end:], max(0, self._taken - end), self._counted - end

    def restore(self, segments: int, rows: bytes) -> None:
        """Go back to a checkpoint: its first `segments` files and the rows taken since; anything later goes."""
        check_folder(self.folder)
        kept = {_path(self.folder, number) for number in range(segments)}
        for path in set(self.folder.glob("*.*")) - kept:
            remove(path)
        self.segments = segments
        self._rows = array("q")
        self._rows.frombytes(rows)
        self._taken, self._counted = len(self._rows), 0
        self._totals.clear()
        for path in sorted(kept):
            self._count(_read(path))

    def _count_new(self) -> None:
        end = len(self._rows)
        if self._counted < end:
            self._count(_columns(self._rows[self._counted : end]))
            self._counted = end

    def _count(self, columns: Columns) -> None:
        values = np.stack([columns[name] for name in SUMMED])
        sizes = columns["header_bytes"] + columns["payload_bytes"]
        is_instrument = (columns["sender"] == EVALUATOR) | (columns["recipient"] == EVALUATOR)
        for number in np.unique(columns["kind"]).tolist():
            kind, here = Kind(number), columns["kind"] == number
            found = [int(here.sum()), *values[:, here].sum(axis=1).tolist(), int(sizes[here & is_instrument].sum())]
            for name, value in zip(("messages", *SUMMED, INSTRUMENT), found, strict=True):
                self._totals[kind, name] += value


def read_ledger(folder: Path) -> Columns:
    """All rows of a ledger's segments as int64 columns. Raises `LedgerDamaged`."""
    # by number and not by what is there: a segment missing between others is named
    parts = [_read(_path(folder, number)) for number in range(len(list(folder.glob("*.parquet"))))]
    return {name: np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in COLUMNS}


def is_canonical(columns: Columns) -> NDArray[np.bool_]:
    """Which rows are the scenario's own, and not those of processes that come and go or of a transport."""
    ends: NDArray[np.int64] = np.minimum(columns["sender"], columns["recipient"])
    mask: NDArray[np.bool_] = (ends >= EVALUATOR) & (columns["kind"] != Kind.LINK)
    return mask


def ledger_hash(columns: Columns) -> str:
    """The canonical hash: the messages of clients and evaluator, every column but the framing, in their own order.

    Framing belongs to the transport, and who joins how often to the processes: neither may make a difference.
    """
    of_rounds, whole = is_canonical(columns), hashlib.sha256()
    for name in COLUMNS:
        if name != "framing_bytes":
            whole.update(name.encode() + hashlib.sha256(columns[name][of_rounds].astype("<i8").tobytes()).digest())
    return whole.hexdigest()


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _digest(columns: Columns) -> bytes:
    """SHA-256 of a segment's rows: Parquet itself does not notice a flipped bit in a number."""
    return hashlib.sha256(b"".join(columns[name].astype("<i8").tobytes() for name in COLUMNS)).digest()


def _columns(rows: array[int]) -> Columns:
    table = np.frombuffer(rows, np.int64).reshape(-1, len(COLUMNS)) if rows else np.empty((0, len(COLUMNS)), np.int64)
    return {name: np.ascontiguousarray(table[:, number]) for number, name in enumerate(COLUMNS)}


def _narrow(column: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.int32]:
    fits = column.size == 0 or (int(column.min()) >= -(2**31) and int(column.max()) < 2**31)
    return column.astype(np.int32) if fits else column


def _arrow(column: NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    """The column for Parquet, not copied. Out of buffers, because for an array of NumPy's Arrow would import pandas."""
    import pyarrow as pa

    kind = pa.int64() if column.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of int64 without nulls."""
    parts = [
        np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _read(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(descriptor(path, os.O_RDONLY), "rb") as opened, pq.ParquetFile(opened) as file:
            table = file.read(use_threads=False)
        columns = {name: _numbers(table.column(name).cast(pa.int64()).fill_null(0)) for name in COLUMNS}
        is_sound = table.schema.metadata[_DIGEST] == _digest(columns)
    except FileNotFoundError:
        raise LedgerDamaged(str(path), "is missing") from None
    except (OSError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise LedgerDamaged(str(path), f"is damaged ({str(error).partition(chr(10))[0]})") from None
    if not is_sound:
        raise LedgerDamaged(str(path), "is damaged (its rows are not those that were written)")
    return columns
