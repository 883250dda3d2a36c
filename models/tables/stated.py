"""What the tables of several owners have in common, as the scenario states it, and one owner's table read by that.

    columns:
      age: {mean: 54, deviation: 9}     a column of numbers: an input is (number − mean) / deviation
      sex: [female, male]               a column of texts: an input for each
      disease: ["0", "1"]               the target, here of two classes

Nothing of it is measured, so no owner tells anything of a table. What does not fit is refused with its row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partitions.own import SPECIMENS
from seedbus.models.preprocessing import Column, Numbers, Texts
from seedbus.models.tables.columns import Kind, TableFile, Values
from seedbus.models.tables.encoding import Facts, encoded
from seedbus.models.tables.settings import TableSettings
from seedbus.models.tables.stated_columns import Stated, StatedNumbers


def stated_facts(task: TableSettings) -> Facts:
    """Return what is known of the tables of all owners."""
    columns = task.columns or {}
    features = [_column(name, each) for name, each in columns.items() if name != task.target]
    target = _column(task.target, columns[task.target])
    if isinstance(target, Numbers):
        return Facts("regression", features, ["all"], target.mean, target.deviation, [], [], [])
    contents = [f"{task.target} is one of {len(target.texts)} classes"]
    return Facts("classification", features, [*target.texts], 0.0, 1.0, [], contents, [])


def read_stated(task: TableSettings, place: Path) -> Images:
    """Return the samples of an owner's table. Raises `DataError` with the row and column of what does not fit."""
    if not place.is_file():
        raise DataError(place, "no file", "a table as a CSV or Parquet file")
    facts, file = stated_facts(task), TableFile(place, task.separator)
    blocks = [_block(file, column) for column in facts.columns]
    if facts.kind == "regression":
        number = Numbers(name=task.target, mean=facts.mean, deviation=facts.deviation)
        blocks.append(_block(file, number))
        labels = np.zeros(len(file), dtype=np.int64)
    else:
        labels = _block(file, Texts(name=task.target, texts=tuple(facts.classes))).argmax(axis=1).astype(np.int64)
    return Images(np.concatenate(blocks, axis=1), labels)


def stated_specimens(task: TableSettings) -> Images:
    """Return rows that are nobody's: normal numbers, and a class after the other."""
    facts = stated_facts(task)
    width = len(facts.inputs) + (facts.kind == "regression")
    count = max(SPECIMENS, len(facts.classes))
    rows = generator("specimens", task.name, width).standard_normal((count, width), dtype=np.float32)
    return Images(rows, np.arange(count, dtype=np.int64) % len(facts.classes))


def no_rows(task: TableSettings) -> Images:
    """Return a table without rows."""
    return stated_specimens(task).take(np.zeros(0, dtype=np.int64))


def _column(name: str, stated: Stated) -> Column:
    if isinstance(stated, StatedNumbers):
        return Numbers(name=name, mean=stated.mean, deviation=stated.deviation)
    return Texts(name=name, texts=stated)


def _block(file: TableFile, column: Column) -> NDArray[np.float32]:
    """Return the inputs of a column, float32 [n, inputs]; of texts exactly one is 1. Raises `DataError`."""
    kind: Kind = "numbers" if isinstance(column, Numbers) else "texts"
    values = file.column(column.name, "task.columns", kind)
    block = encoded(column, values, file.where)
    for row, text in _unknown(column, values, block):
        found = repr(text)[:60] if text else "an empty cell"
        raise DataError(file.where(row, column.name), found, f"one of {_listed(column)}")
    return block


def _unknown(column: Column, values: Values, block: NDArray[Any]) -> Iterator[tuple[int, str]]:
    """Yield the row of each text that is none of the column's, and the text."""
    if isinstance(column, Texts):
        for row in np.flatnonzero(~block.any(axis=1)).tolist():
            yield row, values[row]


def _listed(column: Column, most: int = 10) -> str:
    texts: Sequence[str] = column.texts if isinstance(column, Texts) else ()
    return ", ".join(map(repr, texts[:most])) + (", …" if len(texts) > most else "")
