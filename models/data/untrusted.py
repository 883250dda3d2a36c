"""Reading files that somebody else may have written: a small one can nest without end, or unpack to all memory.

The invariant: a mistake is an `OSError` or a `ValueError` with a reason, which the reader of a format makes a sentence
that names the file.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from typing_extensions import Buffer

from seedbus.bounded import LARGEST_JSON, announced, check_footer

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnSchema, ParquetFile

ALWAYS_UNPACKED = 256 * 2**20
"""How many bytes a packed file may unpack to, however small it is."""
_MOST_TENSORS = 100_000  # of one file; the largest models have as many, in many files
_MOST_IN_ROW = 4 * 2**20  # characters of a row of CSV text, which is read as a whole
_LONGEST_SIDE = 65_535  # pixels of an image, as of a JPEG
_MOST_TIMES = 100  # as large as a packed file; packed text is 3 to 20 times, and gzip allows 1,000
_CELL = 8  # bytes, as those that follow
_DECIMAL = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document. Raises `ValueError`, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def regular(path: Path) -> Path:
    """Return the path of a file or of a link to one. Raises `OSError` for others: reading a pipe may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "neither a file nor a link to one", str(path))
    return path


def safetensors_header(path: Path) -> Any:
    """Return the JSON at the begin of a safetensors file, which has the type, the shape and the place of each tensor.

    Raises:
        OSError: it is no file, or announces more than it has, or more than tensors of a file take.
        ValueError: it is no JSON, or has too many tensors.
    """
    with regular(path).open("rb") as file:
        header = parse_json(announced(file, int.from_bytes(file.read(8), "little"), LARGEST_JSON, "a header"))
    if isinstance(header, dict) and len(header) > _MOST_TENSORS:
        raise ValueError(f"{len(header):,} tensors; at most {_MOST_TENSORS:,} are read")
    return header


@contextmanager
def opened_parquet(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file that is no larger in memory than it may be. Raises `OSError`; pyarrow's own errors pass."""
    import pyarrow.parquet

    with path.open("rb") as file:
        check_footer(file)
        with pyarrow.parquet.ParquetFile(file) as parquet:
            check_parquet(parquet, path)
            yield parquet


def check_sides(width: int, height: int) -> None:
    """Raise `ValueError` for an image that is a strip of few pixels, but fills the memory while it is resized."""
    if max(width, height) > _LONGEST_SIDE:
        raise ValueError(f"{width:,} × {height:,} pixels, and at most {_LONGEST_SIDE:,} of a side are accepted")


def csv_rows(
    file: TextIO, separator: str = ",", quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row's last line, from 1, and the row's cells.

    Args:
        file: CSV text, opened with `newline=""`.
        separator: the character between the cells.
        quoting: how cells are quoted, as the module csv says it.

    Raises:
        ValueError: a row is too long.
        csv.Error: a cell is, or the text is no CSV.
    """
    length = 0

    def lines() -> Iterator[str]:
        nonlocal length
        while line := file.readline(_MOST_IN_ROW + 1):
            length += len(line)
            if length > _MOST_IN_ROW:
                raise ValueError(f"a row has more than {_MOST_IN_ROW:,} characters")
            yield line

    reader = csv.reader(lines(), delimiter=separator, quoting=quoting)
    for cells in reader:
        length = 0
        yield reader.line_num, cells


def most_unpacked(path: Path) -> int:
    """Return how many bytes a packed file may unpack to. Raises `OSError`."""
    return max(ALWAYS_UNPACKED, _MOST_TIMES * path.stat().st_size)


def too_large(most: int) -> OSError:
    """Return the error of a packed file that holds more than `most` bytes."""
    return OSError(errno.EFBIG, f"it unpacks to more than {most:,} bytes, the most for its size")


def check_parquet(file: ParquetFile, path: Path) -> None:
    """Raise `OSError` if a Parquet file declares more cells, or more bytes of them, than one of its size may hold.

    Args:
        file: the file, opened.
        path: where it is.
    """
    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    unpacked, column_alone = 0, _CELL * sum(group.num_rows for group in groups)  # booleans, too, once they are texts
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        counts = [group.num_rows for group in groups]
        if column.max_repetition_level:
            counts = [max(count, _values_in_lists(file, place, number)) for place, count in enumerate(counts)]
        unpacked += _width(column) * sum(counts)
    most = most_unpacked(path)
    if max(unpacked, column_alone, sum(group.total_byte_size for group in groups)) > most:
        raise too_large(most)


def _values_in_lists(file: ParquetFile, group: int, column: int) -> int:
    """Return how many values a column of lists has in a group of rows.

    Where a file contradicts itself, pyarrow ends the process that asks for this. So the reader opens the column before,
    of which it reads no row, and raises an error there.
    """
    next(file.reader.iter_batches(0, row_groups=[group], column_indices=[column]), None)
    return int(file.metadata.row_group(group).column(column).num_values)


def _width(column: ColumnSchema) -> int:
    """Return how many bytes of memory a cell needs, however few it has in the file; of texts, their place alone."""
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = int(column.length)
    else:
        width = _WIDTHS.get(column.physical_type, _CELL)
    if column.logical_type.type == "DECIMAL":
        return max(width, _DECIMAL)
    is_nested = column.max_repetition_level > 0 or column.max_definition_level > 1  # lists and structs need places too
    return max(width, _CELL) if is_nested else width


class Limited(io.RawIOBase):
    """A file opened for reading that raises an error once more bytes have been read than it may hold."""

    def __init__(self, file: io.BufferedIOBase, most: int, error: Exception) -> None:
        """Wrap a file, which is closed with this one.

        Args:
            file: the file.
            most: how many bytes it may hold.
            error: what reading raises if it holds more.
        """
        self._file = file
        self._left = most
        self._error = error

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read the next bytes into the buffer; return their number."""
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise self._error
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
