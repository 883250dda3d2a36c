"""The ledger: one row for every message, in a sequence of Parquet files (segments).

A row is added when the message's fate is decided. Checkpoints store the rows that no segment contains yet (`take_new`),
so a run that is killed resumes with exactly the rows of its last durable commit. Two ledgers are equal if their
`ledger_hash` is. In memory all columns are numbers. In the files kinds, ends and fates are words, for programs of other
people, and there is a column more, `bytes`: what each message took on the wire.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.bounded import check_footer
from seedbus.bus.envelope import EVALUATOR, Kind
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.files import atomic_write, check_folder, descriptor, remove, sync_folder
from seedbus.bus.words import KINDS, address_of, end_in_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

MESSAGES = "messages"
"""The folder of the ledger, in a run's folder."""
_FEW_ROWS = 1_000_000  # the most in one segment; 128 MB in memory
SEGMENT_ROWS = 20_000  # 2 MB in memory, plus what their compression needs


class Fate(enum.IntEnum):
    """What happened to a message."""

    DELIVERED = 0
    DROPPED = 1
    REFUSED = 2
    UNDER_WAY = 3

    __hash__ = int.__hash__


FATES = {fate.value: fate.name.lower().replace("_", " ") for fate in Fate}
"""What files, commands and logs call them."""
DELIVERED, DROPPED, REFUSED = Fate.DELIVERED, Fate.DROPPED, Fate.REFUSED


class Row(NamedTuple):
    """One message.

    Attributes:
        sent_ns: when it was sent.
        arrived_ns: when it arrived; −1 if it never did.
        round: its round.
        kind: its `Kind`.
        sender: address of the sender.
        recipient: address of the recipient.
        header_bytes: bytes of the envelope before its body.
        payload_bytes: bytes of the body, digest and catch-up bytes included.
        framing_bytes: bytes that the transport added.
        digest_bytes: bytes of the payload that are digests for verification.
        catchup_bytes: bytes of the payload that bring a client up to date.
        scalars: gradient scalars in the payload.
        seeds: seeds in the payload; of a report none, though one of `fedscalar` has one.
        fate: its `Fate`.
        repeated: of the seeds in a plan that was delivered, those of commits that its client did not fold: it had them,
            or lacked one before them.
        fault: of a message that was dropped, the number of the scenario's fault, the first of several, by which it was;
            −1: by none, as in real time where the process of its client has gone.
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
    repeated: int = 0
    fault: int = -1


COLUMNS = Row._fields
SUMMED = ("header_bytes", "payload_bytes", "framing_bytes", "digest_bytes", "catchup_bytes", "scalars", "seeds")
INSTRUMENT = "instrument_bytes"  # total bytes of a kind's messages to and from the evaluator
_pack = struct.Struct(f"={len(COLUMNS)}q").pack
_DIGEST = b"seedbus.rows.sha256"
_ROUNDS = 2**32  # an envelope's round is below
Columns = dict[str, NDArray[np.int64]]
BYTES = "bytes"
"""The column of files and data frames that `sizes` returns."""
_ADDED = {"repeated": 0, "fault": -1}  # columns that segments of older runs lack, and what these are read as


def _number(of: dict[int, str]) -> Callable[[str], int]:
    numbers = {words: number for number, words in of.items()}
    return lambda words: numbers[words]


_WORDS: dict[str, tuple[Callable[[int], str], Callable[[str], int]]] = {
    "kind": (KINDS.__getitem__, _number(KINDS)),
    "sender": (end_in_words, address_of),
    "recipient": (end_in_words, address_of),
    "fate": (FATES.__getitem__, _number(FATES)),
}
"""The columns that are words in files: how a number becomes words, and words a number."""


class Ledger:
    """Collects rows in memory, writes them to disk in segments, and keeps totals.

    Attributes:
        folder: where the segments are.
        segment_rows: number of rows at which a segment is due.
        segments: number of segments written.
        on_row: called with the fields of each row that is added; None: nobody is told.
    """

    def __init__(self, folder: Path, segment_rows: int = SEGMENT_ROWS) -> None:
        self.folder = folder
        self.segment_rows = segment_rows
        self.segments = 0
        self.on_row: Callable[[tuple[int, ...]], None] | None = None
        self._totals: Counter[tuple[Kind, str]] = Counter()
        self._rows = array("q")  # rows of no segment yet, one after another
        self._taken = 0  # elements of `_rows` that `take_new` has returned
        self._counted = 0  # elements of `_rows` that are in `_totals`

    @property
    def totals(self) -> Counter[tuple[Kind, str]]:
        """(kind, column) → sum over all rows so far, for the columns of `SUMMED`, "messages" and `INSTRUMENT`."""
        self._count_new()
        return self._totals

    def append(self, row: tuple[int, ...]) -> None:
        """Add a row: a `Row` or a plain tuple of its fields."""
        self._rows.frombytes(_pack(*row))
        if self.on_row is not None:
            self.on_row(row)

    def take_new(self) -> bytes:
        """Return the rows added since the last call, as bytes for `restore`."""
        new = self._rows[self._taken :].tobytes()
        self._taken = len(self._rows)
        return new

    @property
    def is_full(self) -> bool:
        """Whether a segment is due."""
        return len(self._rows) >= self.segment_rows * len(COLUMNS)

    def write_segment(self, *, only_taken: bool = False) -> None:
        """Move rows from memory to the next segment, atomically and synced to disk.

        So many that reading would refuse the segment become several; a crash between them leaves some that the
        checkpoint does not know of, which `restore` removes.

        Args:
            only_taken: only those that `take_new` has returned; otherwise all.
        """
        left = self._taken if only_taken else len(self._rows)  # in real time rows may be added meanwhile; these stay
        while left:
            end = min(left, _FEW_ROWS * len(COLUMNS))
            self._write(_columns(self._rows[:end]))
            self._count_new()
            del self._rows[:end]
            self._taken = max(0, self._taken - end)
            self._counted -= end
            left -= end

    def _write(self, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: _stored(name, column) for name, column in with_sizes(columns).items()})
        table = table.replace_schema_metadata({_DIGEST: _digest(columns)})
        self.folder.mkdir(exist_ok=True)  # without its parent: a run's folder that was moved is not begun again
        check_folder(self.folder)
        with atomic_write(_path(self.folder, self.segments)) as file:
            pq.write_table(table, file, compression="zstd")
        if not self.segments:
            sync_folder(self.folder.parent)
        self.segments += 1

    def restore(self, segments: int, rows: bytes) -> None:
        """Go back to a checkpoint; later segments and rows are removed.

        Args:
            segments: number of segments at the checkpoint.
            rows: all that `take_new` had returned since the last of them, concatenated.

        Raises:
            LedgerDamaged: one of these segments is missing or cannot be read.
        """
        check_folder(self.folder)
        kept = set[Path]()
        for path in (_path(self.folder, number) for number in range(segments)):
            if not path.exists():
                raise LedgerDamaged(str(path), "is missing")
            kept.add(path)
        for path in set(self.folder.glob("*.*")) - kept:
            remove(path)
        self.segments = segments
        self._rows = array("q")
        self._rows.frombytes(rows)
        self._taken = len(self._rows)
        self._counted = 0
        self._totals.clear()
        for path in sorted(kept):
            self._count(_read(path))
        self._count_new()

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
            kind = Kind(number)
            mask = columns["kind"] == number
            sums = [int(mask.sum()), *values[:, mask].sum(axis=1).tolist(), int(sizes[mask & is_instrument].sum())]
            for name, value in zip(("messages", *SUMMED, INSTRUMENT), sums, strict=True):
                self._totals[kind, name] += value


def read_ledger(folder: Path) -> Columns:
    """Return all rows of a ledger's segments as columns, each int64 of shape [rows].

    Raises:
        LedgerDamaged: a segment is missing or cannot be read.
    """
    parts = [*parts_of(folder, len(list(folder.glob("*.parquet"))))]
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def parts_of(folder: Path, segments: int, rows: bytes = b"") -> Iterator[Columns]:
    """Yield the rows of a ledger in their order, a segment at a time, as `read_ledger` returns all of them.

    Args:
        folder: the ledger's.
        segments: how many of its segments are read.
        rows: what `take_new` returned since the last of them, concatenated.

    Raises:
        LedgerDamaged: a segment is missing or cannot be read.
    """
    # By number, and not by the names that exist, so that a missing segment is reported.
    yield from (_read(_path(folder, number)) for number in range(segments))
    yield _unpacked(folder, rows)


def newest_rows(folder: Path, rows: bytes) -> Columns:
    """Return the newest rows of a ledger, at least `SEGMENT_ROWS` if there are so many, as `read_ledger` does.

    Args:
        folder: the ledger's.
        rows: what `take_new` returned since the last segment, concatenated.

    Raises:
        LedgerDamaged: a segment cannot be read.
    """
    parts, number, count = [_unpacked(folder, rows)], len(list(folder.glob("*.parquet"))), 0
    while number and count < SEGMENT_ROWS:  # the last one may be short: it has what came after the last round
        number -= 1
        parts.insert(0, _read(_path(folder, number)))
        count += parts[0]["round"].size
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def sizes(columns: Columns) -> NDArray[np.int64]:
    """Return the bytes of each message on the wire, [rows]: header, payload and what the transport added."""
    return columns["header_bytes"] + columns["payload_bytes"] + columns["framing_bytes"]


def with_sizes(columns: Columns) -> Columns:
    """Return the columns with `sizes` after the three that it is the sum of."""
    names = [*COLUMNS]
    names.insert(names.index("framing_bytes") + 1, BYTES)
    all_columns = columns | {BYTES: sizes(columns)}
    return {name: all_columns[name] for name in names}


def is_canonical(columns: Columns) -> NDArray[np.bool_]:
    """Return a mask [rows] of the messages that the scenario determines.

    It excludes rows of hosts, which depend on when processes join and leave, and rows of transports (LINK).
    """
    ends: NDArray[np.int64] = np.minimum(columns["sender"], columns["recipient"])
    mask: NDArray[np.bool_] = (ends >= EVALUATOR) & (columns["kind"] != Kind.LINK)
    return mask


def ledger_hash(columns: Columns) -> str:
    """Return the hash of the canonical rows: every column but the framing and the fault, in the order of the rows.

    Framing depends on the transport, and the rows of hosts on its processes; neither may change the hash. It is the
    hash that the rows had before there were columns for what was repeated, where nothing was, and for the fault.
    """
    mask = is_canonical(columns)
    total = hashlib.sha256()
    for name in COLUMNS:
        if name not in ("framing_bytes", "fault") and (name != "repeated" or columns[name].any()):
            total.update(name.encode() + hashlib.sha256(columns[name][mask].astype("<i8").tobytes()).digest())
    return total.hexdigest()


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _digest(columns: Columns) -> bytes:
    """SHA-256 of a segment's rows, because Parquet itself does not detect a flipped bit in a number."""
    return hashlib.sha256(b"".join(columns[name].astype("<i8").tobytes() for name in columns)).digest()


def _unpacked(folder: Path, rows: bytes) -> Columns:
    """The columns of rows as `take_new` returns them. Raises `LedgerDamaged` if they cannot be a ledger's."""
    new = array("q")
    new.frombytes(rows[: len(rows) - len(rows) % (8 * len(COLUMNS))])
    columns = _columns(new)
    try:
        _check_values(columns)
    except ValueError as error:
        raise LedgerDamaged(str(folder), f"lacks its newest rows, which are damaged in the journal ({error})") from None
    return columns


def _check_values(columns: Columns) -> None:
    """Raise `ValueError` for numbers that no row has: a digest is no secret, so it proves no origin."""
    for name, known in (("kind", Kind), ("fate", Fate)):
        for number in np.unique(columns[name]).tolist():
            known(number)  # raises ValueError
    if not ((columns["round"] >= 0) & (columns["round"] < _ROUNDS)).all():  # readers index by it
        raise ValueError("it has rounds that no message can have")


def _columns(rows: array[int]) -> Columns:
    table = np.frombuffer(rows, np.int64).reshape(-1, len(COLUMNS)) if rows else np.empty((0, len(COLUMNS)), np.int64)
    return {name: np.ascontiguousarray(table[:, number]) for number, name in enumerate(COLUMNS)}


def _stored(name: str, column: NDArray[np.int64]) -> pa.Array:
    """A column as a file has it."""
    import pyarrow as pa

    if name not in _WORDS:
        return _arrow(_narrow(column))
    used, at = np.unique(column, return_inverse=True)
    words = [_WORDS[name][0](number) for number in used.tolist()]  # in ASCII
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    text = pa.StringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer("".join(words).encode()))
    return pa.DictionaryArray.from_arrays(_arrow(at.astype(np.int32)), text)


def _narrow(column: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.int32]:
    fits = column.size == 0 or (int(column.min()) >= -(2**31) and int(column.max()) < 2**31)
    return column.astype(np.int32) if fits else column


def _arrow(column: NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    """The column as an Arrow array without a copy. Made from buffers: given a NumPy array, Arrow imports pandas."""
    import pyarrow as pa

    kind = pa.int64() if column.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _numbers(name: str, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of int32, int64 or words, as an array [rows]; raises `ValueError` if one is missing.

    It is widened here: Arrow's own cast imports pyarrow.compute, which takes longer than a short run's rounds.
    """
    import pyarrow as pa

    if column.null_count:
        raise ValueError(f"numbers are missing in it: {column.null_count}")
    parts: list[NDArray[np.integer]] = [np.empty(0, np.int64)]
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            numbers = [_WORDS[name][1](words) for words in chunk.dictionary.to_pylist()]
            parts.append(np.array(numbers, np.int64)[_whole(chunk.indices)])
        else:
            parts.append(_whole(chunk))
    return np.concatenate(parts)


def _whole(chunk: pa.Array) -> NDArray[np.integer]:
    """An array of int32 or int64, which lacks none, without a copy."""
    if not len(chunk):
        return np.empty(0, np.int64)
    return np.frombuffer(chunk.buffers()[1], chunk.type.to_pandas_dtype())[chunk.offset : chunk.offset + len(chunk)]


def _check_size(parquet: ParquetFile) -> None:
    """Raise `ValueError` for a file that would need far more memory than a segment: Parquet stores equal rows once."""
    import pyarrow as pa

    declared = parquet.metadata
    unpacked = sum(declared.row_group(number).total_byte_size for number in range(declared.num_row_groups))
    if declared.num_rows > _FEW_ROWS or unpacked > _FEW_ROWS * 8 * len(COLUMNS):
        found = f"it declares {declared.num_rows} rows in {unpacked} bytes"
        raise ValueError(f"{found}; expected at most {_FEW_ROWS} rows")
    schema, words = parquet.schema_arrow, pa.dictionary(pa.int32(), pa.string())
    accepted = {name: (pa.int32(), pa.int64(), *([words] if name in _WORDS else [])) for name in _names(parquet)}
    if not all(schema.field(name).type in types for name, types in accepted.items()):
        raise ValueError("it has columns that are neither whole numbers of 32 or 64 bits nor words that it may have")


def _names(parquet: ParquetFile) -> list[str]:
    """The columns of a segment; one of an older run has words nowhere and lacks some."""
    return [name for name in (*COLUMNS, BYTES) if name not in (*_ADDED, BYTES) or name in parquet.schema_arrow.names]


def _read(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(path, "rb", opener=lambda _, flags: descriptor(path, flags)) as file:
            check_footer(file)
            with pq.ParquetFile(file) as parquet:
                _check_size(parquet)
                table = parquet.read(columns=_names(parquet), use_threads=False)
        columns = {name: _numbers(name, table.column(name)) for name in table.column_names}
        is_sound = np.array_equal(columns.pop(BYTES, sizes(columns)), sizes(columns))
        is_sound &= table.schema.metadata[_DIGEST] == _digest(columns)
        for name, value in _ADDED.items():
            columns.setdefault(name, np.full_like(columns["fate"], value))
        _check_values(columns)
    except FileNotFoundError:
        raise LedgerDamaged(str(path), "is missing") from None
    except (OSError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise LedgerDamaged(str(path), f"is damaged ({str(error).partition(chr(10))[0]})") from None
    if not is_sound:
        raise LedgerDamaged(str(path), "is damaged (its rows are not those that were written)")
    return columns
