"""Who owns each of some files, such as images: a table with the columns file and owner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from seedbus.models.errors import DataError
from seedbus.models.spelling import other_spellings
from seedbus.models.tables.columns import TableFile


def owners_of(files: Sequence[str], table: Path, field: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of each file's owner, [n], and the owners' names, sorted.

    Args:
        files: their paths within a folder, as the table names them; further lines of the table are passed over.
        table: a CSV or Parquet file.
        field: the scenario's field that names it.

    Raises:
        DataError: the table cannot be read, names a file twice, or lacks one or its owner.
    """
    lines = TableFile(table, field=None)
    names, owners = (lines.column(column, field, "texts") for column in ("file", "owner"))
    spellings = other_spellings(owners.tolist())
    owner_of: dict[str, str] = {}
    for row, (name, owner) in enumerate(zip(names, owners, strict=True)):
        if owner == "":
            raise DataError(lines.where(row, "owner"), "an empty cell", "the owner of the file")
        if (place := PurePath(name).as_posix()) in owner_of:
            raise DataError(lines.where(row, "file"), f"{name} again", "one line for each file")
        owner_of[place] = spellings.get(owner, owner)
    missing = next((file for file in files if file not in owner_of), None)
    if missing is not None:
        raise DataError(table, f"no line for {missing}", "a line for each image, with this path and its owner")
    people, numbers = np.unique(np.array([owner_of[file] for file in files], dtype=object), return_inverse=True)
    return numbers.astype(np.int64), people.tolist()
