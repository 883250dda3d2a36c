"""Columns of a table in a CSV or Parquet file, as numbers or as texts.

What a file is, is seen from its first bytes: Parquet, CSV, or CSV that was packed with gzip. In a CSV file a column is
one of numbers if more than half of its cells are numbers, and then all must be; otherwise it is one of texts. Spaces
around a cell do not count. Booleans of a Parquet file are the texts true and false, as they are in CSV. Numbers with a
decimal comma are none, and a column of them is refused, as it would become one of as many texts. A mistake is named
with the line of the file, or in a Parquet file with the row, from 1.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.untrusted import Limited, csv_rows, most_unpacked, opened_parquet, too_large
from seedbus.models.errors import DataError
from seedbus.models.preprocessing import as_text

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["numbers", "texts"]
Values = NDArray[Any]
"""The cells of a column: float64 [n], or texts as objects [n]."""

LARGEST = 1e100
_NUMBER = (
    r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?([nN][aA][nN]|[iI][nN][fF]([iI][nN][iI][tT][yY])?)$"
)
_COMMA = r"^[+-]?[0-9.]*,[0-9]+([eE][+-]?[0-9]+)?$"
_SEPARATORS = ";\t|,"
_MOST_COLUMNS = 100_000  # of a table; while CSV text is read each takes 10 kB, however few rows it has
_SHOWN = 60  # characters of a cell in a sentence
_FORMATS = "a table as CSV text in UTF-8 (.gz is unpacked), or as Parquet"


def kind_of(values: Values) -> Kind:
    """Return whether cells are numbers or texts."""
    return "numbers" if values.dtype.kind == "f" else "texts"


class TableFile:
    """A file with a table. It is read when a column is first asked for.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, separator: str = ",", *, field: str | None = "task.separator") -> None:
        """Name a table.

        Args:
            path: the file.
            separator: the character between the cells of a CSV file.
            field: the scenario's field that chooses it, for sentences; None: it has to be this one.
        """
        self.path = path
        self._separator = separator
        self._field = field

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns. Raises `DataError`."""
        names = [str(name).strip() for name in self._table.column_names]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise DataError(self.path, f"two columns {twice}", "columns with different names")
        return names

    @cached_property
    def _places(self) -> dict[str, int]:
        """The number of each column, by its name."""
        return {name: place for place, name in enumerate(self.names)}

    def __len__(self) -> int:
        """Return the number of rows. Raises `DataError`."""
        return int(self._table.num_rows)

    def column(self, name: str, field: str, kind: Kind | None = None, rows: slice = slice(None)) -> Values:
        """Return the cells of a column.

        Args:
            name: the column's name.
            field: the scenario's field that names it, for the sentence if there is no such column.
            kind: what its cells must be; None: what they are.
            rows: those whose cells are returned, without a step.

        Raises:
            DataError: the file has no such column, or a cell is neither a text nor a finite number.
        """
        self.check(name, field)
        with self._explained():
            return self._cells(name, kind, rows)

    def _cells(self, name: str, kind: Kind | None, rows: slice) -> Values:
        import pyarrow
        import pyarrow.compute as compute

        first, end, _ = rows.indices(len(self))
        cells = self._table.column(self._places[name]).slice(first, end - first)
        if pyarrow.types.is_dictionary(cells.type):
            cells = self._without_dictionary(cells, name)
        if pyarrow.types.is_boolean(cells.type):
            cells = cells.cast(pyarrow.string())  # true and false, as in CSV
        if _is_text(cells.type):
            texts = compute.utf8_trim_whitespace(compute.fill_null(cells, ""))
            if kind == "texts" or (kind is None and 2 * _count(texts, f"{_NUMBER}|{_COMMA}") <= len(texts)):
                return _objects(texts)
            is_number = np.asarray(compute.match_substring_regex(texts, _NUMBER))
            self._refuse(~is_number, texts, name, kind, first)
            values = np.array([float(text) for text in texts.to_pylist()])
        elif any(is_of(cells.type) for is_of in _numeric()):
            if kind == "texts" and pyarrow.types.is_integer(cells.type):  # a long one is no float64
                return np.array(compute.fill_null(cells.cast(pyarrow.string()), "").to_pylist(), dtype=object)
            values = np.asarray(cells.cast(pyarrow.float64(), safe=False).fill_null(float("nan")))
            texts = cells
            if kind == "texts":
                return np.array(["" if np.isnan(value) else as_text(value) for value in values], dtype=object)
        else:
            raise self._wrong_type(cells.type, name)
        self._refuse(~(np.abs(values) <= LARGEST), texts, name, kind, first)
        return values

    def _without_dictionary(self, cells: Any, name: str) -> Any:
        """Return cells that are numbers of a list of values as these values.

        Raises:
            DataError: they are neither texts nor numbers.
            OSError: they are too large.
        """
        import pyarrow.compute as compute

        kind = cells.type.value_type
        if not _is_text(kind) and not any(is_of(kind) for is_of in _numeric()):
            raise self._wrong_type(kind, name)
        if _is_text(kind):
            sizes = (compute.binary_length(chunk.dictionary).take(chunk.indices) for chunk in cells.chunks)
            if sum(compute.sum(each).as_py() or 0 for each in sizes) > (most := most_unpacked(self.path)):
                raise too_large(most)
        return cells.cast(kind)

    def _wrong_type(self, kind: Any, name: str) -> DataError:
        where = f"{self.path}, column {name}"
        return DataError(where, f"cells of the type {kind}", "texts or numbers, or other task.features")

    def check(self, name: str, field: str) -> None:
        """Raise `DataError` if there is no such column; the arguments are those of `column`."""
        if name not in self._places:
            expected = f"one of {_listed(self.names)}{self.separator_hint(self.names)}"
            raise DataError(self.path, f"no column {name} for {field}", expected)

    def separator_hint(self, names: Sequence[str]) -> str:
        """Return the end of a sentence about these names of columns if another separator may be meant, else ""."""
        found = next((mark for mark in _SEPARATORS if mark != self._separator and mark in "".join(names)), None)
        if self._is_parquet or (found is None and len(names) > 1):
            return ""
        if self._field is None:
            return f", with {json.dumps(self._separator)} between the cells"
        said = "the character between its cells" if found is None else f"{json.dumps(found)}, which its first line has"
        return f", or {self._field}: {said}"

    def where(self, row: int, name: str) -> str:
        """Return the place of a cell in words.

        Args:
            row: the number of its row, from 0.
            name: the name of its column.
        """
        if self._is_parquet:
            return f"{self.path}, row {row + 1}, column {name}"
        lines = (line for line, cells in self._lines() if cells)
        next(lines)  # the header
        return f"{self.path}, line {next(line for number, line in enumerate(lines) if number == row)}, column {name}"

    def _refuse(self, is_wrong: NDArray[np.bool_], cells: Any, name: str, kind: Kind | None, first: int) -> None:
        """Raise `DataError` for the first cell that is wrong in a column of numbers; first: the first cell's row."""
        wrong = np.flatnonzero(is_wrong)
        if wrong.size:
            cell = cells[int(wrong[0])].as_py()
            found = "an empty cell" if cell is None or cell == "" else repr(cell)[:_SHOWN]
            remedy = "" if kind else f", or {name} among task.categorical, which takes all its cells as texts"
            point = " with a decimal point" if isinstance(cell, str) and "," in cell else ""
            expected = f"a number from -{LARGEST:g} to {LARGEST:g}{point} in every row{remedy}"
            raise DataError(self.where(first + int(wrong[0]), name), f"{found} in a column of numbers", expected)

    @cached_property
    def _is_parquet(self) -> bool:
        with self._explained(), self.path.open("rb") as file:
            return file.read(4) == b"PAR1"

    @cached_property
    def _table(self) -> pyarrow.Table:
        """The file's table, in which all columns of CSV are texts. Raises `DataError`."""
        with self._explained():
            table = self._read_parquet() if self._is_parquet else self._read_csv()
        if table.num_rows == 0:
            raise DataError(self.path, "no rows", "a row at least below the names of the columns")
        return table

    def _read_parquet(self) -> pyarrow.Table:
        """Read texts as numbers of different texts, and no cells of other types without a fixed size.

        Parquet stores a repeated value once, so a small file could fill all memory with a large one.
        """
        import pyarrow.parquet

        with opened_parquet(self.path) as file:
            schema = file.schema_arrow
        if len(schema) > _MOST_COLUMNS:
            raise DataError(self.path, f"{len(schema):,} columns", f"at most {_MOST_COLUMNS:,}")
        texts = [each.name for each in schema if _is_text(each.type)]
        unread = [place for place, each in enumerate(schema) if not _is_text(each.type) and not _is_small(each.type)]
        own = [each.name for place, each in enumerate(schema) if place not in unread] if unread else None
        table = pyarrow.parquet.read_table(self.path, columns=own, read_dictionary=texts)
        for place in unread:
            nothing = pyarrow.nulls(table.num_rows, pyarrow.int8()), pyarrow.array([], schema.field(place).type)
            table = table.add_column(place, schema.field(place).name, pyarrow.DictionaryArray.from_arrays(*nothing))
        return table

    def _read_csv(self) -> pyarrow.Table:
        import pyarrow
        from pyarrow import csv as arrow

        line, names = next(self._lines(), (0, []))
        if not names or "\0" in "".join(names):
            raise DataError(self.path, "no names of columns in the first line", _FORMATS)
        if len(names) > _MOST_COLUMNS:
            raise DataError(self.path, f"{len(names):,} columns", f"at most {_MOST_COLUMNS:,}")
        unique = [str(number) for number in range(len(names))]
        try:
            with self._source() as source:
                table = arrow.read_csv(
                    source,
                    arrow.ReadOptions(column_names=unique, skip_rows=line),
                    arrow.ParseOptions(delimiter=self._separator, newlines_in_values=True),
                    arrow.ConvertOptions(column_types=dict.fromkeys(unique, pyarrow.string())),
                )
        except pyarrow.ArrowInvalid:
            self._check_widths(names)
            raise
        return table.rename_columns(names)

    def _check_widths(self, names: Sequence[str]) -> None:
        """Raise `DataError` for the first row that has another number of cells than the header."""
        for line, cells in self._lines():
            if cells and len(cells) != len(names):
                found = f"{len(cells)} cells" if len(cells) != 1 else "1 cell"
                expected = f"{len(names)}, as in the first line{self.separator_hint(names)}"
                raise DataError(f"{self.path}, line {line}", found, expected)

    def _source(self) -> pyarrow.NativeFile:
        """Return the file for Arrow, whose threads may read on after an error: they must not call Python at its end."""
        import pyarrow

        if not self._is_packed():
            return pyarrow.OSFile(str(self.path))
        with self._opened() as file:
            return pyarrow.BufferReader(file.read())

    def _is_packed(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"

    def _opened(self) -> IO[bytes]:
        if not self._is_packed():
            return self.path.open("rb")
        most = most_unpacked(self.path)
        return io.BufferedReader(Limited(gzip.open(self.path), most, too_large(most)))

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of each line, from 1, and its cells; of a row of several lines the last one's."""
        with self._opened() as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            yield from csv_rows(text, self._separator)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what readers raise into `DataError`."""
        from pyarrow import ArrowException

        try:
            yield
        except (DataError, MemoryError):
            raise
        except (OSError, EOFError, ValueError, csv.Error, zlib.error, ArrowException) as error:
            why = getattr(error, "strerror", None) or str(error).splitlines()[0][:200]
            raise DataError(self.path, f"a file that cannot be read ({why})", _FORMATS) from None


def state_of(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return path, size and modification time of files; it changes when they do. Raises `DataError`."""
    try:
        return tuple((str(path), (status := os.stat(path)).st_size, status.st_mtime_ns) for path in paths)
    except OSError as error:
        raise DataError(error.filename, f"a file that cannot be read ({error.strerror})", _FORMATS) from None


def _count(texts: Any, pattern: str) -> int:
    """Return how many texts match."""
    import pyarrow.compute as compute

    return int(np.count_nonzero(compute.match_substring_regex(texts, pattern)))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _objects(texts: Any) -> Values:
    """Return texts as objects, of which equal ones of a part are one: a small file could hold very many."""
    parts = [part.dictionary_encode() for part in texts.chunks]
    taken = [np.array(part.dictionary.to_pylist(), dtype=object)[part.indices.to_numpy()] for part in parts]
    return np.concatenate([np.empty(0, dtype=object), *taken])


def _is_small(kind: Any) -> bool:
    """Whether a cell of this type has few bytes, or the number of a value that is stored once."""
    from pyarrow import types

    return bool(types.is_dictionary(kind) or types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind))


def _numeric() -> list[Any]:
    from pyarrow import types

    return [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal]


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
