"""A division that was made elsewhere: a CSV table says which client holds which sample."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from seedbus.models.data.roots import find, locate
from seedbus.models.data.untrusted import csv_rows
from seedbus.models.errors import DataError
from seedbus.models.partition import Indices, Partition, digest

_HEADER = ["client", "row"]
_MAX_DIGITS = 9


class File(Partition, frozen=True):
    """A CSV file with the columns client and row says which client holds which sample.

    A row is the number of a sample in the data set's training file, from 0. Rows that the task holds out are passed
    over, so the table need not change with `task.validation`. Samples that the table leaves out are not trained on.
    """

    by: ClassVar[Literal["rows"]] = "rows"
    is_proven: ClassVar[bool] = True

    kind: Literal["file"] = "file"
    file: str = Field(
        min_length=1, description="the CSV file: beside the scenario's file, or in a directory of SEEDBUS_DATA"
    )

    @field_validator("seed")
    @classmethod
    def _refuse_seed(cls, value: int | None) -> int | None:
        if value is not None:
            raise ValueError("a file says who holds what, and nothing is drawn; expected no seed")
        return value

    @field_validator("file")
    @classmethod
    def _locate(cls, value: str, info: ValidationInfo) -> str:
        """Make the path of a file beside the scenario's file absolute. Raises as `roots.locate` does."""
        return locate(value, info.context, os.path.isfile)

    def split(self, rows: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from the sample at each row, −1 if held out.

        Raises:
            DataError: the table cannot be read, names a row that there is not, or leaves a client without samples.
        """
        path, lines = self._path(), self._lines(clients)
        unknown = np.flatnonzero(lines[:, 1] >= rows.size)
        if unknown.size:
            raise DataError(
                path,
                f"row {lines[unknown[0], 1]} for client {lines[unknown[0], 0]}",
                f"a row from 0 to {rows.size - 1}",
            )
        held = [rows[part] for part in _by_client(lines, clients)]
        parts = [np.sort(part[part >= 0]).astype(np.int64) for part in held]
        empty = next((client for client, part in enumerate(parts) if not part.size), None)
        if empty is not None:
            raise DataError(
                path,
                f"only rows that the task holds out for client {empty}",
                "a training sample for every client: other rows, or a smaller task.validation",
            )
        return parts

    def file_digest(self, clients: int) -> str:
        return digest(_by_client(self._lines(clients), clients)).hex()

    def _path(self) -> Path:
        """Return the file, which may lie in a directory of SEEDBUS_DATA. Raises `DataError`."""
        found = find(self.file, os.path.isfile)
        if found is None:
            where = "beside the scenario's file, or in a directory that SEEDBUS_DATA names"
            raise DataError("partition.file", f"no file {self.file}", f"a CSV file with client,row {where}")
        return found

    def _lines(self, clients: int) -> Indices:
        """Return the table, [lines, 2], in which every client occurs and no row twice. Raises `DataError`."""
        path = self._path()
        lines = np.array(list(_parsed(path, clients)), dtype=np.int64).reshape(-1, 2)
        rows, counts = np.unique(lines[:, 1], return_counts=True)
        if (counts > 1).any():
            row = rows[counts > 1][0]
            owners = lines[lines[:, 1] == row, 0]
            found = f"row {row} twice, for clients {owners[0]} and {owners[1]}"
            raise DataError(path, found, "every row at most once")
        missing = np.setdiff1d(np.arange(clients), lines[:, 0])
        if missing.size:
            raise DataError(
                path, f"no row for client {missing[0]}", f"a row at least for each client, 0 to {clients - 1}"
            )
        return lines


def _parsed(path: Path, clients: int) -> Iterator[tuple[int, int]]:
    """Yield (client, row) of each line of the table. Raises `DataError`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv_rows(file)
            _, header = next(rows, (1, []))
            if header != _HEADER:
                raise _refusal(path, 1, header, f"the columns {','.join(_HEADER)}")
            for number, line in rows:
                if not line:
                    continue
                if len(line) != 2 or not all(map(_is_number, line)):
                    raise _refusal(path, number, line, "two whole numbers, a client and a row")
                client, row = map(int, line)
                if client >= clients:
                    raise _refusal(path, number, line, f"a client from 0 to {clients - 1}")
                yield client, row
    except (OSError, ValueError, csv.Error) as error:
        if isinstance(error, DataError):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(path, f"a file that cannot be read ({why})", "CSV text with the columns client,row") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _refusal(path: Path, number: int, line: list[str], expected: str) -> DataError:
    return DataError(f"{path}, line {number}", repr(",".join(line)[:80]), expected)


def _by_client(lines: Indices, clients: int) -> list[Indices]:
    """Return for each client its rows, ascending, from lines [n, 2]."""
    ordered = lines[np.lexsort((lines[:, 1], lines[:, 0]))]
    return np.split(ordered[:, 1], np.searchsorted(ordered[:, 0], np.arange(1, clients)))
