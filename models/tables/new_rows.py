"""New rows of a table, as a model that was trained on earlier ones reads them.

They are read as the training part was, so the same cells give the same inputs: a text that the training part did not
have is all zeros, an empty cell is a text, and a column of numbers has a number in every row. Of a text that differs
from one of the training part only in upper and lower case or spaces, a note tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.batches import parts
from seedbus.models.errors import DataError
from seedbus.models.preprocessing import Column, Texts, as_text
from seedbus.models.spelling import folded, value_of
from seedbus.models.tables.columns import Kind, TableFile
from seedbus.models.tables.encoding import encoded

if TYPE_CHECKING:
    import pyarrow


def inputs_of(
    rows: Path | Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    separator: str,
    most: int,
    tell: Callable[[str], object] = lambda sentence: None,
) -> Iterator[NDArray[np.float32]]:
    """Yield the inputs of new rows in their order, float32 [at most `most`, inputs].

    Args:
        rows: a CSV or Parquet file, or mappings from the names of columns to cells.
        columns: those that the model reads; further ones are passed over.
        separator: the character between the cells of a CSV file.
        most: rows at once; a text becomes as many inputs as its column has texts, so all may not fit into the memory.
        tell: is told in a sentence, once a column, what may not be meant so.

    Raises:
        DataError: a column is missing, or a cell is not of its kind; it is named with its line or row, from 1.
    """
    file = TableFile(rows, separator, field=None) if isinstance(rows, Path) else _Given(rows, columns)
    for column in columns:
        file.check(column.name, "the model")
    told = set[str]()
    for span in parts(len(file), most):

        def where(row: int, name: str, first: int = span.start) -> str:
            return file.where(first + row, name)

        blocks = []
        for column in columns:
            kind: Kind = "texts" if isinstance(column, Texts) else "numbers"
            values = file.column(column.name, "the model", kind, span)
            blocks.append(encoded(column, values, where))
            if isinstance(column, Texts) and column.name not in told:
                unknown = sorted(set(values[~blocks[-1].any(axis=1)]))
                for sentence in _nearly_known(column, unknown):
                    told.add(column.name)
                    tell(sentence)
        yield np.concatenate(blocks, axis=1)


def _nearly_known(column: Texts, unknown: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if texts that the training part did not have differ from one of its own in spelling alone."""
    known = {folded(text): text for text in column.texts}
    alike = next((text for text in unknown if folded(text) in known), None)
    if alike is not None:
        found = f"{column.name} has {alike!r}, which the training part did not have; it had {known[folded(alike)]!r}"
        yield f"{found}: spell them alike if they are one"


class _Given(TableFile):
    """Rows that are given in Python, as a file of CSV would have them: all cells are texts."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        super().__init__(Path("rows"))
        self._rows = rows
        self._columns = [column.name for column in columns]
        texts = (column for column in columns if isinstance(column, Texts))
        self._booleans = {column.name for column in texts if {"true", "false"} & set(map(value_of, column.texts))}

    def where(self, row: int, name: str) -> str:
        """Return the place of a cell in words; see `TableFile.where`."""
        return f"row {row + 1}, column {name}"

    @cached_property
    def _table(self) -> pyarrow.Table:
        import pyarrow

        rows, texts = list(enumerate(self._rows)), pyarrow.string()
        cells = ([self._cell(row, number, name) for number, row in rows] for name in self._columns)
        return pyarrow.table([pyarrow.array(each, texts) for each in cells], names=self._columns)

    def _cell(self, row: Mapping[str, Any], number: int, name: str) -> str:
        """Return a cell as text. Raises `DataError`."""
        if name not in row:
            raise DataError(self.where(number, name), "no such cell", "one, which may be None or an empty text")
        cell = row[name]
        if cell is None or isinstance(cell, str):
            return (cell or "").encode(errors="replace").decode()
        if isinstance(cell, bool | np.bool_) and name in self._booleans:
            return str(bool(cell)).lower()  # as a column of booleans in a file is read
        try:
            if isinstance(cell, int | np.integer | np.bool_):
                return str(int(cell))  # a long one, such as that of a person, is no float64
            value = float(cell)
        except (TypeError, ValueError, OverflowError):
            found = f"a cell of the type {type(cell).__name__}"
            raise DataError(self.where(number, name), found, "a text, a number, or None for an empty cell") from None
        return "" if math.isnan(value) else as_text(value)
